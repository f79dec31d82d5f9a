/*
 * Fills the link to worker 0, which nobody reads, closes 3000 sessions on it, and prints its account
 * when all of it has left. Its first argument is the run_dir.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

/* Runs the loop until both links are up, or until a pong says that the gateway has read everything. */
static void run_until(rg_backend *backend, enum rg_event_kind last) {
    struct rg_event event;
    int seen = 0;
    while (!seen && rg_wait(backend, -1) >= 0)
        while (rg_next(backend, &event) > 0)
            seen |= last == RG_LINK_UP ? rg_is_up(backend) : event.kind == last;
}

int main(int argc, char **argv) {
    static const uint8_t payload[RG_LONG_PAYLOAD_BYTES_MAX + 1] = {1};
    const uint64_t stuck = 1, other = (UINT64_C(1) << 56) | 1, elsewhere = (UINT64_C(2) << 56) | 1;
    const uint64_t everyone[] = {1, (UINT64_C(1) << 56) | 1, (UINT64_C(2) << 56) | 1, 0};
    uint64_t serial;
    struct rg_stats stats;
    rg_backend *backend = rg_connect(argc > 1 ? argv[1] : "", "full");
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL) {
        perror("rg_connect");
        return 1;
    }
    run_until(backend, RG_LINK_UP);
    printf("%d %d\n",
           rg_close_session_after(backend, stuck, RG_CLOSE_KICKED, 0, payload,
                                  RG_FAREWELL_BYTES_MAX + 1),
           rg_close_session_after(backend, stuck, RG_CLOSE_TIMED_OUT, 0, NULL, 0));
    printf("%d %d %d %d %d\n", rg_send(backend, stuck, payload, 0),
           rg_send(backend, stuck, payload, sizeof payload),
           rg_send(backend, elsewhere, payload, 1), rg_send(backend, 0, payload, 1),
           rg_close_session(backend, stuck, RG_CLOSE_TIMED_OUT));
    while (rg_send(backend, stuck, payload, RG_PAYLOAD_BYTES_MAX) == RG_SEND_OK)
        ;
    for (serial = 1; serial <= 3000; serial++)
        if (serial % 2 != 0 ? rg_close_session(backend, serial, RG_CLOSE_FINISHED)
                            : rg_close_session_after(backend, serial, RG_CLOSE_FINISHED, 40000,
                                                     payload, (size_t)serial % 201))
            return 2;
    printf("%u\n", (unsigned)rg_multicast(backend, everyone, 4, "still here", 10));
    rg_send(backend, other, "and well", 8);
    rg_flush(backend);
    run_until(backend, RG_PONG);
    stats = rg_stats(backend);
    printf("%llu %llu %llu %llu %llu\n", (unsigned long long)stats.payloads_taken,
           (unsigned long long)stats.payloads_sent, (unsigned long long)stats.payloads_lost,
           (unsigned long long)stats.payloads_link_down,
           (unsigned long long)stats.payloads_link_full);
    for (serial = 1; serial <= 3000; serial++)
        rg_close_session_after(backend, serial, RG_CLOSE_FINISHED, 0, payload, 200);
    printf("%d\n", rg_flush_for(backend, 0) > 0);
    printf("%u\n", (unsigned)rg_flush_for(backend, INT64_C(20000000000)));
    rg_free(backend);
    return 0;
}
