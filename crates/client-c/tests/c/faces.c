/* Every function of the header, wrong arguments first, then a whole connection. The server answers
   each message with itself; the first argument is a token for it, the second one, where there is
   one, for a server that does not answer. */
#include "ringgate_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static unsigned char token[RGC_TOKEN_BYTES];
static unsigned char large[60000];

static void null_is_answered(void) {
    struct rgc_event event = RGC_EVENT_INIT;
    struct rgc_quality quality = RGC_QUALITY_INIT;
    struct rgc_statistics statistics = RGC_STATISTICS_INIT;
    int error = 0;
    CHECK(rgc_connect(NULL, 2048, NULL, &error) == NULL && error == RGC_ERROR_NULL);
    CHECK(rgc_connect(NULL, 0, NULL, NULL) == NULL);
    rgc_free(NULL);
    CHECK(rgc_user(NULL) == NULL);
    CHECK(rgc_turn(NULL, 0) == RGC_ERROR_NULL && rgc_turn_for(NULL, 0) == RGC_ERROR_NULL);
    CHECK(rgc_turn_forever(NULL) == RGC_ERROR_NULL);
    CHECK(rgc_flush(NULL) == RGC_ERROR_NULL);
    CHECK(rgc_next(NULL, &event) == RGC_ERROR_NULL);
    CHECK(rgc_send(NULL, RGC_RELIABLE, 0, "x", 1, 0) == RGC_ERROR_NULL);
    CHECK(rgc_message_bytes_max(NULL, RGC_RELIABLE) == 0);
    CHECK(rgc_disconnect(NULL) == RGC_ERROR_NULL);
    CHECK(rgc_disconnect_after(NULL, 1) == RGC_ERROR_NULL);
    CHECK(rgc_farewell(NULL, NULL, NULL, 0) == RGC_ERROR_NULL);
    CHECK(rgc_is_connected(NULL) == 0 && rgc_is_finished(NULL) == 1);
    CHECK(rgc_has_delivered_all(NULL) == 0);
    CHECK(rgc_quality(NULL, &quality) == RGC_ERROR_NULL);
    CHECK(rgc_statistics(NULL, &statistics) == RGC_ERROR_NULL);
}

static void there_are_words_for_everything(void) {
    CHECK(strcmp(rgc_error_text(RGC_OK), "no error") == 0);
    for (int error = RGC_ERROR_KIND; error < 0; error++)
        CHECK(strcmp(rgc_error_text(error), rgc_error_text(1)) != 0);
    CHECK(strcmp(rgc_reason_text(RGC_REASON_DENIED), "denied") == 0);
    CHECK(strcmp(rgc_reason_text(RGC_REASON_DELIVERY_SILENCE), "delivery_silence") == 0);
    CHECK(strcmp(rgc_reason_text(RGC_REASON_TOKEN_EXPIRED), "connect token expired") == 0);
    CHECK(strlen(rgc_reason_text(12345)) > 0 && strlen(rgc_version_text()) > 0);
    CHECK(rgc_library_version() == (RGC_LIBRARY_MAJOR << 16 | RGC_LIBRARY_MINOR));
}

static void what_is_no_token_or_option_is_refused(void) {
    struct rgc_options options = RGC_OPTIONS_INIT;
    int error = 0;
    CHECK(rgc_connect(large, sizeof large, NULL, &error) == NULL && error == RGC_ERROR_TOKEN);
    CHECK(rgc_connect(token, sizeof token - 1, NULL, &error) == NULL && error == RGC_ERROR_TOKEN);
    options.size = 0;
    CHECK(rgc_connect(token, sizeof token, &options, &error) == NULL && error == RGC_ERROR_SIZE);
    options.size = sizeof options;
    options.packet_bytes = 199;
    CHECK(rgc_connect(token, sizeof token, &options, &error) == NULL && error == RGC_ERROR_OPTION);
    options.packet_bytes = 0;
    options.reserved = 1;
    CHECK(rgc_connect(token, sizeof token, &options, &error) == NULL && error == RGC_ERROR_OPTION);
}

/* The next event of that kind; whatever comes before it must not be the end. */
static struct rgc_event wait_for(rgc_client *client, uint32_t kind) {
    struct rgc_event event = RGC_EVENT_INIT;
    for (int turns = 0; turns < 6000; turns++) {
        while (rgc_next(client, &event) > 0) {
            if (event.kind == kind)
                return event;
            CHECK(event.kind != RGC_CLOSED);
        }
        CHECK(rgc_turn(client, INT64_C(10000000)) == RGC_OK);
    }
    CHECK(!"it comes within a minute");
    return event;
}

/* What a newer game has behind our structures is zeroed, and an older one's end is left alone. */
static void sizes_are_kept_to(rgc_client *client) {
    struct {
        struct rgc_statistics known;
        uint64_t newer;
    } longer = {RGC_STATISTICS_INIT, 7};
    struct rgc_statistics shorter = RGC_STATISTICS_INIT;
    longer.known.size = sizeof longer;
    CHECK(rgc_statistics(client, &longer.known) == RGC_OK);
    CHECK(longer.known.size == sizeof longer && longer.newer == 0);
    CHECK(longer.known.datagrams_out > 0);
    shorter.size = sizeof shorter - 1;
    shorter.messages_out = 77;
    CHECK(rgc_statistics(client, &shorter) == RGC_ERROR_SIZE && shorter.messages_out == 77);
    shorter.size = (size_t)-1;
    CHECK(rgc_statistics(client, &shorter) == RGC_ERROR_SIZE);
    CHECK(rgc_statistics(client, NULL) == RGC_ERROR_NULL);
    CHECK(rgc_next(client, NULL) == RGC_ERROR_NULL);
    struct rgc_event event = RGC_EVENT_INIT;
    event.size = 8;
    CHECK(rgc_next(client, &event) == RGC_ERROR_SIZE);
}

static void messages_go_and_come(rgc_client *client) {
    CHECK(rgc_send(client, 4, 0, "x", 1, 0) == RGC_ERROR_KIND);
    CHECK(rgc_send(client, RGC_RELIABLE, 0, NULL, 1, 0) == RGC_ERROR_NULL);
    CHECK(rgc_send(client, RGC_RELIABLE, 0, "x", 0, 0) == RGC_ERROR_EMPTY);
    CHECK(rgc_send(client, RGC_SEQUENCED, 0, large, sizeof large, 0) == RGC_ERROR_TOO_LONG);
    CHECK(rgc_message_bytes_max(client, RGC_RELIABLE) == RGC_MESSAGE_BYTES_MAX);
    CHECK(rgc_message_bytes_max(client, RGC_UNRELIABLE) > 1000);
    CHECK(rgc_message_bytes_max(client, 0) == 0);
    for (size_t at = 0; at < sizeof large; at++)
        large[at] = (unsigned char)(at * 7 >> 3);
    CHECK(rgc_send(client, RGC_RELIABLE, 255, large, sizeof large, 9) == RGC_OK);
    CHECK(rgc_flush(client) == RGC_OK && !rgc_has_delivered_all(client));
    struct rgc_event event = wait_for(client, RGC_REPORT);
    CHECK(event.token == 9 && event.is_delivered == 1 && rgc_has_delivered_all(client));
    CHECK(rgc_send(client, RGC_RELIABLE, 255, large, sizeof large, 0) == RGC_OK);
    event = wait_for(client, RGC_MESSAGE);
    CHECK(event.channel_kind == RGC_RELIABLE && event.channel == 255);
    CHECK(event.bytes_len == sizeof large && memcmp(event.bytes, large, sizeof large) == 0);
    int taken = 0;
    while (rgc_send(client, RGC_RELIABLE, 1, large, sizeof large, 0) == RGC_OK)
        taken += 1;
    CHECK(taken > 1 && taken < 10);
    CHECK(rgc_send(client, RGC_RELIABLE, 1, large, sizeof large, 0) == RGC_ERROR_FULL);
    struct rgc_quality quality = RGC_QUALITY_INIT;
    CHECK(rgc_quality(client, &quality) == RGC_OK && quality.round_trip_ns > 0);
    CHECK(quality.reliable_bytes > sizeof large);
}

static void read_token(const char *path) {
    FILE *file = path == NULL ? NULL : fopen(path, "rb");
    CHECK(file != NULL && fread(token, 1, sizeof token, file) == sizeof token);
    fclose(file);
}

/* A server that says nothing: all that could end a wait is that the client gives up. */
static void times_that_have_passed_are_not_waited_for(const char *path) {
    struct rgc_event event = RGC_EVENT_INIT;
    rgc_client *client;
    read_token(path);
    client = rgc_connect(token, sizeof token, NULL, NULL);
    for (int64_t passed = -1; passed > INT64_MIN / 8; passed *= 8) {
        CHECK(rgc_turn_for(client, passed) == RGC_OK && rgc_turn(client, passed - 1) == RGC_OK);
        CHECK(rgc_next(client, &event) == 0);
    }
    while (rgc_next(client, &event) == 0)
        CHECK(rgc_turn_forever(client) == RGC_OK);
    CHECK(event.kind == RGC_CLOSED && event.reason == RGC_REASON_REQUEST_TIMED_OUT);
    rgc_free(client);
}

int main(int argc, char **argv) {
    read_token(argc > 1 ? argv[1] : NULL);
    null_is_answered();
    there_are_words_for_everything();
    what_is_no_token_or_option_is_refused();

    struct rgc_options options = RGC_OPTIONS_INIT;
    int here = 0, error = 1;
    options.user = &here;
    options.keep_alive_ms = 500;
    rgc_client *client = rgc_connect(token, sizeof token, &options, &error);
    CHECK(client != NULL && error == RGC_OK && rgc_user(client) == &here);
    CHECK(!rgc_is_connected(client) && !rgc_is_finished(client));
    CHECK(rgc_send(client, RGC_RELIABLE, 0, "x", 1, 0) == RGC_ERROR_CLOSED);
    struct rgc_quality quality = RGC_QUALITY_INIT;
    CHECK(rgc_quality(client, &quality) == RGC_ERROR_CLOSED);
    struct rgc_event event = wait_for(client, RGC_CONNECTED);
    CHECK(strncmp(event.server, "127.0.0.1:", 10) == 0 && event.slots > 0);
    CHECK(rgc_is_connected(client));
    sizes_are_kept_to(client);
    messages_go_and_come(client);
    /* What waits is waited for. */
    CHECK(rgc_disconnect_after(client, INT64_C(60000000000)) == RGC_OK && rgc_is_connected(client));
    CHECK(rgc_send(client, RGC_RELIABLE, 0, "x", 1, 0) == RGC_ERROR_CLOSED);
    event = wait_for(client, RGC_CLOSED);
    CHECK(rgc_farewell(client, NULL, NULL, 0) == 0);
    CHECK(event.reason == RGC_REASON_LEFT && rgc_is_finished(client));
    CHECK(rgc_turn(client, -1) == RGC_OK && rgc_next(client, &event) == 0);
    rgc_free(client);
    if (argc > 2) times_that_have_passed_are_not_waited_for(argv[2]);
    printf("done\n");
    return 0;
}
