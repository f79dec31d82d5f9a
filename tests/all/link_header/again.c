/*
 * Keeps a pointer for each player, takes all of them away when the link is lost, and says of each event
 * whose pointer it has. Its arguments are the run_dir and its name.
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
    rg_backend *backend = argc < 3 ? NULL : rg_connect(argv[1], argv[2]);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL)
        return 3;
    while (rg_wait(backend, -1) >= 0)
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
                break;
            default:
                break;
            }
        }
    return 1;
}
