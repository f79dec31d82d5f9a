/*
 * Keeps a pointer for each player, takes all of them away when the link is lost, and says of each event
 * whose pointer it has. It has a child that lives as long as its input, and says when nothing is left
 * to be taken of a lost link. Its arguments are the run_dir and its name.
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

struct visits {
    rg_backend *backend;
    unsigned count;
};

static void forget(void *context, uint64_t session, void *user) {
    struct visits *visits = (struct visits *)context;
    visits->count++;
    if (*(const uint64_t *)user != session || rg_set_user(visits->backend, session, NULL) != 0)
        exit(2);
}

int main(int argc, char **argv) {
    static uint64_t kept[3000];
    struct rg_event event;
    size_t next = 0;
    int found, is_lost = 0;
    char byte;
    rg_backend *backend = argc < 3 ? NULL : rg_connect(argv[1], argv[2]);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL)
        return 3;
    if (fork() == 0) {
        while (read(0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    while ((found = is_lost ? rg_wait_for(backend, 0) : rg_wait_forever(backend)) >= 0) {
        if (found == 0 && is_lost) {
            is_lost = 0;
            printf("nothing is left\n");
        }
        while (rg_next(backend, &event) > 0) {
            struct visits visits = {0};
            switch (event.kind) {
            case RG_OPENED_PLAIN:
                kept[next] = event.session;
                if (rg_set_user(backend, event.session, &kept[next++]) != 0)
                    return 4;
                break;
            case RG_PAYLOAD:
                printf("%s\n", event.user == NULL                               ? "nobody"
                               : *(const uint64_t *)event.user == event.session ? "its own"
                                                                                : "another's");
                break;
            case RG_LINK_LOST:
                visits.backend = backend;
                rg_each_user(backend, event.worker, forget, &visits);
                printf("lost %u\n", visits.count);
                is_lost = 1;
                break;
            default:
                break;
            }
        }
    }
    return 1;
}
