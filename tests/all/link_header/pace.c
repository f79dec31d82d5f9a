/*
 * Prints how long rg_wait would sleep when bundles have come at these distances for a while, one
 * after the other; the same process all along. Then, of a process for each: for what the gateway has
 * said, what a sleep costs, the distance, and workers. The Rust library's tests have the same.
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

struct slept {
    int64_t told_us, cost_ns, gap_ns;
    unsigned workers;
};

/* The last sleep where bundles of so many workers come so far apart. */
static int64_t slept(const struct slept *it) {
    int64_t sleep_ns = 0, n;
    memset(&backend, 0, sizeof backend);
    backend.batch_delay_ns = RG__BATCH_DELAY_NS;
    backend.is_delay_told = it->told_us >= 0;
    backend.told_ns = 1000 * it->told_us;
    backend.sleep_cost_ns = it->cost_ns;
    backend.workers = it->workers;
    for (n = 0; n < 200; n++) {
        backend.bundles = 1;
        sleep_ns = rg__delay_ns(&backend, n * it->gap_ns);
    }
    return sleep_ns;
}

int main(void) {
    static const struct slept cases[] = {
        {190, 2500, 15000, 1}, {190, 20000, 15000, 1}, {190, 20000, 60000, 1}, {0, 20000, 15000, 4},
        {-1, 20000, 15000, 1}, {190, 2500, 15000, 4},  {190, 8000, 15000, 4},  {190, 20000, 15000, 4},
        {190, 20000, 20000, 4}, {190, 20000, 45000, 4},
    };
    static const int64_t gaps_ns[] = {60000, 15000, 30000, 4000, 200000};
    int64_t now_ns = 0;
    size_t n;
    backend.batch_delay_ns = RG__BATCH_DELAY_NS;
    for (n = 0; n < sizeof gaps_ns / sizeof *gaps_ns; n++)
        printf("%lld\n", (long long)play(&now_ns, gaps_ns[n]));
    for (n = 0; n < sizeof cases / sizeof *cases; n++)
        printf("%lld\n", (long long)slept(&cases[n]));
    return 0;
}
