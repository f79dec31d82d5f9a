/*
 * Takes one event at a time and polls rg_fd in between, without end and without a flush. Prints each
 * payload's first byte, and "over" with what poll says of a turn that has ended. Its first argument
 * is the run_dir.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static int take_one(rg_backend *backend) {
    struct rg_event event;
    int taken = rg_next(backend, &event);
    if (taken > 0 && event.kind == RG_LINK_UP)
        printf("up\n");
    else if (taken > 0 && event.kind == RG_PAYLOAD)
        printf("payload %u\n", (unsigned)event.bytes[0]);
    else if (taken > 0)
        printf("event %u\n", (unsigned)event.kind);
    return taken;
}

int main(int argc, char **argv) {
    rg_backend *backend = rg_connect(argc > 1 ? argv[1] : "", "partly");
    struct pollfd set;
    int n;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL) {
        perror("rg_connect");
        return 1;
    }
    /* The link is up and the first payload taken before anybody asks for the descriptor. */
    for (n = 0; n < 2; n++) {
        while (rg_wait(backend, -1) <= 0 || take_one(backend) <= 0)
            ;
    }
    set.fd = rg_fd(backend);
    set.events = POLLIN;
    while (poll(&set, 1, -1) == 1)
        if (take_one(backend) == 0)
            printf("over %d\n", poll(&set, 1, 0));
    return 2;
}
