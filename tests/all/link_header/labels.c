/*
 * A game that announces itself with two labels: by the function of version 1.1, whose labels never
 * grow, and then by the one of its own header.
 */
#include "ringgate_backend.h"

#include <stdio.h>
#include <string.h>

struct first_label {
    const char *name;
    const char *value;
};

int main(int argc, char **argv) {
    struct first_label before[2] = {{"map", "dust"}, {"mode", "before"}};
    struct rg_label labels[2];
    struct rg_announcement what;
    struct rg_options options;
    rg_backend *backend;
    memset(labels, 0, sizeof labels);
    memset(&what, 0, sizeof what);
    memset(&options, 0, sizeof options);
    options.run_dir = argc > 2 ? argv[1] : NULL;
    options.name = argc > 2 ? argv[2] : NULL;
    options.may_start_alone = 1;
    backend = rg_connect_with(&options);
    what.group = "arena";
    what.slots = 4;
    what.state = RG_STATE_READY;
    what.labels = (const struct rg_label *)(const void *)before;
    what.labels_len = 2;
    if (backend == NULL || rg_announce_sized(backend, &what, sizeof what) != 0)
        return 1;
    labels[0].name = "map";
    labels[0].value = "dust";
    labels[1].name = "mode";
    labels[1].value = "now";
    what.labels = labels;
    if (rg_announce(backend, &what) != 0)
        return 1;
    while (getchar() != EOF)
        ;
    rg_free(backend);
    return 0;
}
