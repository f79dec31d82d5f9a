/*
 * A game that takes nobody new until a payload tells it to, and sends payloads back.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

int main(int argc, char **argv) {
    rg_backend *backend = argc == 3 ? rg_connect(argv[1], argv[2]) : NULL;
    if (backend == NULL)
        return 1;
    rg_set_intake(backend, 0);
    for (;;) {
        struct rg_event event;
        if (rg_wait(backend, -1) < 0)
            return 1;
        while (rg_next(backend, &event) == 1) {
            if (event.kind != RG_PAYLOAD)
                continue;
            rg_send(backend, event.session, event.bytes, event.bytes_len);
            rg_set_intake(backend, event.bytes_len == 4);
        }
    }
}
