/*
 * Of the first three players that come, in this order, the first gets messages, the second is
 * another one of netcode, and the third one of a plain listener. Says what is taken for them, until
 * the link is lost.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static uint8_t bytes[RG_LONG_PAYLOAD_BYTES_MAX];

enum { PLAYERS = 3 };

static void try_all(rg_backend *backend, const uint64_t *players) {
    size_t longest = RG_SHORT_MESSAGE_BYTES_MAX, longer = longest + 1;
    unsigned n;
    printf("send %d %d %d\n", rg_send(backend, players[0], bytes, longest),
           rg_send(backend, players[0], bytes, longer), rg_send(backend, players[1], bytes, longer));
    printf("multicast %u %u %u\n", (unsigned)rg_multicast(backend, players, 2, bytes, longest),
           (unsigned)rg_multicast(backend, players, 2, bytes, longer),
           (unsigned)rg_multicast(backend, players + 1, 1, bytes, longer));
    for (n = 0; n < PLAYERS; n++)
        printf("message %d %d\n", rg_send_message(backend, players[n], RG_RELIABLE, 0, "x", 1, 0),
               rg_ask_quality(backend, players[n]));
    for (n = 0; n < PLAYERS; n++)
        printf("long %d %d %d\n", rg_send(backend, players[n], bytes, RG_PAYLOAD_BYTES_MAX),
               rg_send(backend, players[n], bytes, RG_PAYLOAD_BYTES_MAX + 1),
               rg_send(backend, players[n], bytes, sizeof bytes));
}

static void count(void *context, uint64_t session, void *user) {
    (void)session;
    *(unsigned *)context += user != NULL;
}

int main(int argc, char **argv) {
    rg_backend *backend = argc == 3 ? rg_connect(argv[1], argv[2]) : NULL;
    uint64_t players[PLAYERS];
    unsigned players_len = 0, users = 0, n;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL)
        return 1;
    for (;;) {
        struct rg_event event;
        if (rg_wait_forever(backend) < 0)
            return 1;
        while (rg_next(backend, &event) == 1) {
            if ((event.kind == RG_OPENED || event.kind == RG_OPENED_PLAIN) &&
                players_len < PLAYERS) {
                players[players_len++] = event.session;
                printf("opened %d %d\n", event.delivers, event.user != NULL);
                if (players_len < PLAYERS)
                    continue;
                try_all(backend, players);
                /* Pointers of the game's beside it come and go. */
                for (n = 0; n < PLAYERS; n++)
                    rg_set_user(backend, players[n], &users);
                printf("%s\n", rg_user(backend, players[PLAYERS - 1]) == &users ? "set" : "not set");
                for (n = 0; n < PLAYERS; n++)
                    rg_set_user(backend, players[n], NULL);
                rg_each_user(backend, 0, count, &users);
                try_all(backend, players);
                printf("users %u\n", users);
            } else if (event.kind == RG_CLOSED) {
                printf("closed %d\n", rg_send(backend, event.session, bytes, RG_PAYLOAD_BYTES_MAX));
            } else if (event.kind == RG_PAYLOAD) {
                printf("after %d\n", rg_send(backend, event.session, bytes, RG_PAYLOAD_BYTES_MAX));
            } else if (event.kind == RG_LINK_LOST) {
                rg_free(backend);
                return 0;
            }
        }
    }
}
