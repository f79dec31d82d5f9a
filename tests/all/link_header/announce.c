/*
 * A game that registers itself, sends everything back, and says what becomes of it in lines. It is
 * starting until a line is read, then ready, allocated while it has a player, and ready again.
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

static void announce_nonsense(rg_backend *backend) {
    struct rg_label twice[2] = {{"map", "a"}, {"map", "b"}}, odd[1] = {{"m/p", "a"}};
    struct rg_label broken[1] = {{"map", "\xff"}}, long_way[1] = {{"map", "\xe0\x80\x80"}};
    struct rg_label control[1] = {{"map", "\xc2\x85"}}, good[1] = {{"map", "\xc3\xa9"}};
    struct rg_announcement what = {"arena", 4, RG_STATE_STARTING, 0, 0, NULL, 0};
    struct rg_announcement none;
    memset(&none, 0, sizeof none);
    HOLD(rg_announce(NULL, &what) == -1 && rg_announce(backend, NULL) == -1);
    HOLD(rg_announce(backend, &none) == -1 && errno == EINVAL);
    HOLD(rg_announce_sized(backend, &what, sizeof what.group) == -1);
    what.slots = 1000001;
    HOLD(rg_announce(backend, &what) == -1);
    what.slots = 4;
    what.labels_len = 1;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels = odd;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels = broken;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels = long_way;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels = control;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels = twice;
    what.labels_len = 2;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels_len = 33;
    HOLD(rg_announce(backend, &what) == -1);
    what.labels = good;
    what.labels_len = 1;
    what.group = "";
    HOLD(rg_announce(backend, &what) == -1);
    what.group = "arena";
    what.counts_players = 1;
    what.players = UINT32_MAX;
    HOLD(rg_announce(backend, &what) == -1);
    HOLD(rg_standing(NULL) == RG_STANDING_WAITING && rg_standing(backend) == RG_STANDING_WAITING);
}

static void say(rg_backend *backend, enum rg_state state, uint32_t players) {
    struct rg_label labels[2] = {{"map", "dust"}, {"mode", "caf\xc3\xa9"}};
    struct rg_announcement what = {"arena", 4, RG_STATE_STARTING, 1, 0, NULL, 2};
    what.state = state;
    what.players = players;
    what.labels = labels;
    HOLD(rg_announce(backend, &what) == 0);
}

int main(int count, char **arguments) {
    struct rg_options options = {0};
    enum rg_standing standing = RG_STANDING_WAITING;
    struct pollfd input = {0, POLLIN, 0};
    uint32_t players = 0;
    int is_ready = 0;
    rg_backend *backend;
    HOLD(count == 3);
    setvbuf(stdout, NULL, _IOLBF, 0);
    options.run_dir = arguments[1];
    options.name = arguments[2];
    options.may_start_alone = 1;
    backend = rg_connect_with(&options);
    HOLD(backend != NULL);
    announce_nonsense(backend);
    say(backend, RG_STATE_STARTING, 0);
    for (;;) {
        struct rg_event event;
        HOLD(rg_wait(backend, 20000000) >= 0);
        while (rg_next(backend, &event) > 0) {
            if (event.kind == RG_OPENED || event.kind == RG_CLOSED) {
                players += event.kind == RG_OPENED ? 1 : (uint32_t)-1;
                say(backend, players > 0 ? RG_STATE_ALLOCATED : RG_STATE_READY, players);
                printf("%u players\n", (unsigned)players);
            } else if (event.kind == RG_PAYLOAD)
                rg_send(backend, event.session, event.bytes, event.bytes_len);
        }
        rg_flush(backend);
        if (rg_standing(backend) != standing) {
            standing = rg_standing(backend);
            printf("%s\n", rg_standing_text((unsigned)standing));
        }
        if (!is_ready && poll(&input, 1, 0) > 0) {
            is_ready = 1;
            say(backend, RG_STATE_READY, 0);
        }
    }
}
