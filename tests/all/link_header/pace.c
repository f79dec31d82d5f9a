/*
 * Prints how long rg_wait would sleep when bundles have come at these distances for a while, one
 * after the other; the same process all along. The Rust library's test has the same distances.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static rg_backend backend;

/* For 10 ms, to a process that does nothing else. */
static int64_t play(int64_t *now_ns, int64_t gap_ns) {
    int64_t end_ns = *now_ns + 10000000, taken_ns = *now_ns, sleep_ns = 0;
    while (*now_ns < end_ns) {
        backend.bundles = (*now_ns - taken_ns) / gap_ns;
        taken_ns += backend.bundles * gap_ns;
        sleep_ns = rg__delay_ns(&backend, *now_ns);
        *now_ns += sleep_ns;
        if (*now_ns < taken_ns + gap_ns)
            *now_ns = taken_ns + gap_ns + 5000;
    }
    return sleep_ns;
}

int main(void) {
    static const int64_t gaps_ns[] = {60000, 15000, 30000, 4000, 200000};
    int64_t now_ns = 0;
    size_t n;
    backend.batch_delay_ns = RG__BATCH_DELAY_NS;
    for (n = 0; n < sizeof gaps_ns / sizeof *gaps_ns; n++)
        printf("%lld\n", (long long)play(&now_ns, gaps_ns[n]));
    return 0;
}
