/*
 * The smallest game server in C: every player gets back what it sends.
 *
 *     cc -std=c99 -O2 -I crates/link/include crates/link/examples/c/echo.c -o echo
 *     ./echo /run/ringgate arena-1
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static void echo_turn(rg_backend *backend) {
    struct rg_event event;
    while (rg_next(backend, &event) > 0) {
        switch (event.kind) {
        case RG_PAYLOAD:
            /* A full link drops the answer, as the internet would; rg_stats counts it. */
            rg_send(backend, event.session, event.bytes, event.bytes_len);
            break;
        case RG_OPENED:
            printf("player %llu in slot %u of %u, by %s\n", (unsigned long long)event.client_id,
                   (unsigned)event.slot, (unsigned)event.slots_max, event.listener);
            break;
        case RG_CLOSED:
            printf("session %llx is over: reason %u\n", (unsigned long long)event.session,
                   event.reason);
            break;
        case RG_LINK_UP:
            printf("link %u of %u is up\n", event.worker, event.workers);
            break;
        case RG_LINK_LOST:
            printf("link %u is down: reason %u\n", event.worker, event.reason);
            break;
        default:
            break;
        }
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct rg_options options = {0};
    rg_backend *backend;
    options.run_dir = argc > 1 ? argv[1] : "/run/ringgate";
    options.name = argc > 2 ? argv[2] : "arena-1";
    options.may_start_alone = 1;
    backend = rg_connect_with(&options);
    if (backend == NULL) {
        perror("cannot start");
        return 1;
    }
    while (rg_wait_forever(backend) >= 0)
        echo_turn(backend);
    perror("cannot wait");
    rg_free(backend);
    return 1;
}
