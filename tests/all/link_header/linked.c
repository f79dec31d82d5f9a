/*
 * A game that links with the library, and keeps something of its own for each session: an echo that
 * counts. What is wrong ends it.
 */
#include "ringgate_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("wrong in line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct player {
    uint64_t session;
    unsigned payloads;
};

/* What is not there is answered. */
static void ask_with_nothing(void) {
    struct rg_event event;
    struct rg_options nowhere = {0};
    struct rg_stats stats;
    int number = 0;
    memset(&stats, 0xff, sizeof stats);
    HOLD(rg_connect(NULL, "x") == NULL && rg_connect("/run", NULL) == NULL);
    HOLD(rg_connect_with(NULL) == NULL && rg_connect_with(&nowhere) == NULL);
    HOLD(rg_wait(NULL, 0) == -1 && rg_fd(NULL) == -1 && rg_is_up(NULL) == 0 && rg_ping(NULL) == 0);
    HOLD(rg_next(NULL, &event) == -1);
    HOLD(rg_send(NULL, 1, "x", 1) == RG_SEND_LINK_DOWN);
    HOLD(rg_send(NULL, 1, NULL, 1) == RG_SEND_PAYLOAD_LENGTH);
    HOLD(rg_multicast(NULL, NULL, 1, "x", 1) == 0);
    HOLD(rg_close_session(NULL, 1, RG_CLOSE_KICKED) == RG_SEND_LINK_DOWN);
    HOLD(rg_send_message(NULL, 1, RG_RELIABLE, 0, "x", 1, 0) == RG_SEND_LINK_DOWN);
    HOLD(rg_ask_quality(NULL, 1) == RG_SEND_LINK_DOWN);
#if RG_LIBRARY_MINOR > 0
    rg_set_intake(NULL, 0);
    HOLD(rg_announce(NULL, NULL) == -1 && rg_standing(NULL) == RG_STANDING_WAITING);
#endif
    HOLD(rg_set_user(NULL, 1, &number) == -1 && rg_user(NULL, 1) == NULL);
    rg_each_user(NULL, 0, NULL, NULL);
    rg_stats_sized(NULL, &stats, sizeof stats);
    HOLD(stats.payloads_taken == 0 && stats.bundles_sent == 0);
    rg_stats_sized(NULL, NULL, 0);
    rg_flush(NULL);
    rg_free(NULL);
    for (number = -300; number < 300; number++)
        HOLD(rg_link_loss_text((unsigned)number)[0] && rg_close_reason_text((unsigned)number)[0] &&
             rg_record_error_text((unsigned)number)[0] && rg_send_result_text(number)[0]);
}

/* The table of pointers against what it should hold. */
static void keep_many(rg_backend *backend) {
    enum { SESSIONS = 3000 };
    static int kept[SESSIONS];
    uint64_t n;
    for (n = 1; n < SESSIONS; n++)
        HOLD(rg_set_user(backend, n << 40, &kept[n]) == 0);
    for (n = 1; n < SESSIONS; n += 3)
        HOLD(rg_set_user(backend, n << 40, NULL) == 0);
    for (n = 1; n < SESSIONS; n++)
        HOLD(rg_user(backend, n << 40) == (n % 3 == 1 ? NULL : (void *)&kept[n]));
    for (n = 1; n < SESSIONS; n++)
        HOLD(rg_set_user(backend, n << 40, NULL) == 0);
    HOLD(rg_set_user(backend, 0, kept) == -1 && rg_user(backend, 77) == NULL);
}

static void forget(void *context, uint64_t session, void *user) {
    struct player *player = (struct player *)user;
    HOLD(player->session == session);
    *(unsigned *)context += 1;
    free(player);
}

static void handle(rg_backend *backend, const struct rg_event *event) {
    struct player *player = (struct player *)event->user;
    unsigned forgotten = 0;
    switch (event->kind) {
    case RG_LINK_UP:
        printf("link %u of %u is up\n", event->worker, event->workers);
        break;
    case RG_OPENED:
        HOLD(player == NULL);
        player = (struct player *)calloc(1, sizeof *player);
        HOLD(player != NULL);
        player->session = event->session;
        HOLD(rg_set_user(backend, event->session, player) == 0);
        printf("player %llu is there\n", (unsigned long long)event->client_id);
        break;
    case RG_PAYLOAD:
        HOLD(player != NULL && player->session == event->session);
        player->payloads++;
        HOLD(rg_send(backend, event->session, event->bytes, event->bytes_len) == RG_SEND_OK);
        break;
    case RG_CLOSED:
        HOLD(player != NULL && player->session == event->session);
        printf("session is over after %u payloads: %s\n", player->payloads,
               rg_close_reason_text(event->reason));
        free(player);
        break;
    case RG_LINK_LOST:
        rg_each_user(backend, event->worker, forget, &forgotten);
        printf("link %u is down with %u: %s\n", event->worker, forgotten,
               rg_link_loss_text(event->reason));
        break;
    default:
        break;
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct rg_options options = {0};
    rg_backend *backend;
    struct rg_event event;
    HOLD(argc > 2);
    HOLD(rg_library_version() >> 16 == RG_LIBRARY_MAJOR);
    ask_with_nothing();
    options.run_dir = argv[1];
    options.name = argv[2];
    options.may_start_alone = 1;
    backend = rg_connect_with(&options);
    HOLD(backend != NULL);
    keep_many(backend);
    while (rg_wait(backend, -1) >= 0)
        while (rg_next(backend, &event) > 0)
            handle(backend, &event);
    return 1;
}
