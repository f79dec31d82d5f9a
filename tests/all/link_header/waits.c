/*
 * A game that waits for times that have passed, which ends at once, and then in each of the ways
 * that take as long as the gateway does to say something. Prints what has come. Its child, which has
 * freed the backend, lives as long as its input.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

#define HOLD(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("wrong in line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int longest(rg_backend *backend) { return rg_wait(backend, INT64_MAX); }
static int longest_for(rg_backend *backend) { return rg_wait_for(backend, INT64_MAX); }
static int as_before(rg_backend *backend) { return rg_wait(backend, -1); }

/* What comes next, and that the turn is over with it. */
static void take(rg_backend *backend, int (*wait)(rg_backend *backend)) {
    struct rg_event event, more;
    while (rg_next(backend, &event) == 0)
        HOLD(wait(backend) >= 0);
    HOLD(rg_next(backend, &more) == 0);
    printf("event %u\n", (unsigned)event.kind);
}

int main(int argc, char **argv) {
    const int64_t passed[] = {0, -2, -1000000, INT64_MIN};
    rg_backend *backend = argc > 2 ? rg_connect(argv[1], argv[2]) : NULL;
    size_t n;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    HOLD(backend != NULL);
    if (fork() == 0) {
        char byte;
        rg_free(backend);
        while (read(0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    take(backend, as_before);
    for (n = 0; n < sizeof passed / sizeof *passed; n++) {
        HOLD(rg_wait(backend, passed[n]) == 0);
        HOLD(rg_wait_for(backend, passed[n]) == 0);
    }
    HOLD(rg_wait_for(backend, -1) == 0);
    printf("waited\n");
    take(backend, as_before);
    take(backend, rg_wait_forever);
    take(backend, longest);
    take(backend, longest_for);
    HOLD(rg_wait_for(NULL, 0) == -1 && rg_wait_forever(NULL) == -1);
    rg_free(backend);
    return 0;
}
