/*
 * Sends the longest message and fills the link to worker 0, which nobody reads; closes as many sessions
 * as it reads from its input; moves a player with as much as a move may carry; closes 200 more; and ends
 * when the gateway says that it has read everything. Its arguments are the run_dir and its name.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static void run_until(rg_backend *backend, enum rg_event_kind last) {
    struct rg_event event;
    int seen = 0;
    while (!seen && rg_wait(backend, -1) >= 0)
        while (rg_next(backend, &event) > 0)
            seen |= event.kind == last;
}

int main(int argc, char **argv) {
    static uint8_t message[RG_SHORT_MESSAGE_BYTES_MAX], data[RG_MOVE_BYTES_MAX];
    static const uint8_t payload[RG_PAYLOAD_BYTES_MAX] = {1}, whole[RG_MESSAGE_BYTES_MAX] = {1};
    struct rg_options options = {0};
    struct rg_move move = {0};
    uint64_t serial, early = 0;
    size_t at;
    rg_backend *backend;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (argc < 3 || scanf("%llu", (unsigned long long *)&early) != 1)
        return 2;
    options.run_dir = argv[1];
    options.name = argv[2];
    options.queue_bundles = 1;
    backend = rg_connect_with(&options);
    if (backend == NULL)
        return 3;
    run_until(backend, RG_OPENED);
    /* The longest message takes five bundles, however few may wait. */
    if (rg_send_message(backend, 1, RG_RELIABLE, 0, whole, sizeof whole, 0) != RG_SEND_OK)
        return 7;
    while (rg_send(backend, 1, payload, sizeof payload) == RG_SEND_OK)
        ;
    for (at = 0; at < sizeof message; at++)
        message[at] = (uint8_t)(at % 251);
    for (at = 0; at < sizeof data; at++)
        data[at] = (uint8_t)(at % 241);
    for (serial = 1; serial <= early; serial++)
        if (rg_close_session(backend, 1000 + serial, RG_CLOSE_FINISHED) != RG_SEND_OK)
            return 4;
    move.backend = "another-one";
    move.ticket = 77;
    move.channel_kind = RG_RELIABLE;
    move.channel = 3;
    move.message = message;
    move.message_len = sizeof message;
    move.data = data;
    move.data_len = sizeof data;
    if (rg_move_session(backend, 1, &move) != RG_SEND_OK)
        return 5;
    for (serial = 1; serial <= 200; serial++)
        if (rg_close_session(backend, 2000 + serial, RG_CLOSE_FINISHED) != RG_SEND_OK)
            return 6;
    run_until(backend, RG_PONG);
    printf("all of it has left\n");
    rg_free(backend);
    return 0;
}
