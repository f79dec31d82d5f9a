/* Sends the first player who comes sixty messages, and closes it after delivery in the same turn. */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static void part_with(rg_backend *backend, uint64_t session) {
    static uint8_t message[60 * 50];
    int refused = 0;
    unsigned n;
    for (n = 1; n <= 60; n++)
        refused |= rg_send_message(backend, session, RG_RELIABLE, 0, message, 50 * n, 0);
    refused |= rg_close_session_after(backend, session, RG_CLOSE_KICKED, 25000, "ad\xc3\xa9", 4);
    printf("taken %d\n", refused);
}

int main(int argc, char **argv) {
    rg_backend *backend = argc == 3 ? rg_connect(argv[1], argv[2]) : NULL;
    struct rg_event event;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL)
        return 1;
    for (;;) {
        if (rg_wait_forever(backend) < 0)
            return 1;
        while (rg_next(backend, &event) == 1) {
            if (event.kind == RG_OPENED)
                part_with(backend, event.session);
            if (event.kind == RG_LINGERED)
                printf("lingered %u %d\n", (unsigned)event.waiting_bytes, event.is_delivered);
            if (event.kind == RG_CLOSED)
                printf("closed %u\n", event.reason);
        }
        rg_flush(backend);
    }
}
