/*
 * Of the first two players that come, in this order, the first gets messages and the second does
 * not. Says what is taken for them, until the link is lost.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static uint8_t bytes[RG_SHORT_MESSAGE_BYTES_MAX + 1];

static void try_all(rg_backend *backend, const uint64_t *players) {
    size_t longest = RG_SHORT_MESSAGE_BYTES_MAX, longer = longest + 1;
    printf("send %d %d %d\n", rg_send(backend, players[0], bytes, longest),
           rg_send(backend, players[0], bytes, longer), rg_send(backend, players[1], bytes, longer));
    printf("multicast %u %u %u\n", (unsigned)rg_multicast(backend, players, 2, bytes, longest),
           (unsigned)rg_multicast(backend, players, 2, bytes, longer),
           (unsigned)rg_multicast(backend, players + 1, 1, bytes, longer));
}

static void count(void *context, uint64_t session, void *user) {
    (void)session;
    *(unsigned *)context += user != NULL;
}

int main(int argc, char **argv) {
    rg_backend *backend = argc == 3 ? rg_connect(argv[1], argv[2]) : NULL;
    uint64_t players[2];
    unsigned players_len = 0, users = 0;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL)
        return 1;
    for (;;) {
        struct rg_event event;
        if (rg_wait_forever(backend) < 0)
            return 1;
        while (rg_next(backend, &event) == 1) {
            if (event.kind == RG_OPENED && players_len < 2) {
                players[players_len++] = event.session;
                printf("opened %d %d\n", event.delivers, event.user != NULL);
                if (players_len < 2)
                    continue;
                try_all(backend, players);
                /* A pointer of the game's beside it comes and goes. */
                rg_set_user(backend, players[0], &users);
                rg_set_user(backend, players[0], NULL);
                rg_each_user(backend, 0, count, &users);
                try_all(backend, players);
                printf("users %u\n", users);
            } else if (event.kind == RG_CLOSED) {
                printf("closed %d\n", rg_send(backend, event.session, bytes, sizeof bytes));
            } else if (event.kind == RG_PAYLOAD) {
                printf("after %d\n", rg_send(backend, event.session, bytes, sizeof bytes));
            } else if (event.kind == RG_LINK_LOST) {
                rg_free(backend);
                return 0;
            }
        }
    }
}
