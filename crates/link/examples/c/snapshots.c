/*
 * A game server with a world, in C: 30 times a second, every player is told the state of all.
 *
 * A player's state is the first four bytes of its last payload. A snapshot is the tick's number and
 * eight bytes for each player (slot, state), little-endian, so one payload has room for 149
 * players; a real game sends each player what it can see.
 *
 *     cc -std=c99 -O2 -I crates/link/include crates/link/examples/c/snapshots.c -o snapshots
 *     ./snapshots /run/ringgate arena-1
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

#define TICK_NS (INT64_C(1000000000) / 30)
#define PLAYERS_MAX ((RG_PAYLOAD_BYTES_MAX - 4) / 8)

/* Players without gaps; `sessions` apart, because rg_multicast takes them as they are. */
struct world {
    uint32_t tick;
    size_t players;
    uint64_t sessions[PLAYERS_MAX];
    uint32_t slots[PLAYERS_MAX];
    uint8_t states[PLAYERS_MAX][4];
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void add(struct world *world, uint64_t session, uint32_t slot) {
    size_t at = world->players++;
    world->sessions[at] = session;
    world->slots[at] = slot;
    memset(world->states[at], 0, 4);
}

static void remove_at(struct world *world, size_t at) {
    size_t last = --world->players;
    world->sessions[at] = world->sessions[last];
    world->slots[at] = world->slots[last];
    memcpy(world->states[at], world->states[last], 4);
}

static size_t find(const struct world *world, uint64_t session) {
    size_t at = 0;
    while (at < world->players && world->sessions[at] != session)
        at++;
    return at;
}

static void remove_worker(struct world *world, unsigned worker) {
    size_t at = 0;
    while (at < world->players) {
        if (rg_worker(world->sessions[at]) == worker)
            remove_at(world, at);
        else
            at++;
    }
}

static void handle(struct world *world, rg_backend *backend, const struct rg_event *event) {
    size_t at = find(world, event->session);
    switch (event->kind) {
    case RG_OPENED:
        if (world->players < PLAYERS_MAX)
            add(world, event->session, event->slot);
        else
            rg_close_session(backend, event->session, RG_CLOSE_REFUSED);
        break;
    case RG_PAYLOAD:
        if (at < world->players && event->bytes_len >= 4)
            memcpy(world->states[at], event->bytes, 4);
        break;
    case RG_CLOSED:
    case RG_MOVED: /* to another process: as gone from here as one who has left */
        if (at < world->players)
            remove_at(world, at);
        break;
    case RG_LINK_LOST:
        remove_worker(world, event->worker);
        break;
    default:
        break;
    }
}

static uint8_t *put_u32(uint8_t *at, uint32_t value) {
    int n;
    for (n = 0; n < 4; n++)
        *at++ = (uint8_t)(value >> (8 * n));
    return at;
}

static void send_snapshot(struct world *world, rg_backend *backend) {
    uint8_t snapshot[RG_PAYLOAD_BYTES_MAX];
    uint8_t *end = put_u32(snapshot, ++world->tick);
    size_t at;
    for (at = 0; at < world->players; at++) {
        end = put_u32(end, world->slots[at]);
        memcpy(end, world->states[at], 4);
        end += 4;
    }
    rg_multicast(backend, world->sessions, world->players, snapshot, (size_t)(end - snapshot));
}

static void run(rg_backend *backend) {
    static struct world world;
    struct rg_event event;
    int64_t next_tick_ns = now_ns() + TICK_NS;
    for (;;) {
        int64_t now;
        int found;
        while ((found = rg_next(backend, &event)) > 0)
            handle(&world, backend, &event);
        now = now_ns();
        if (now >= next_tick_ns) {
            /* After a stall the missed ticks are left out instead of being sent all at once. */
            next_tick_ns = next_tick_ns + TICK_NS > now ? next_tick_ns + TICK_NS : now;
            send_snapshot(&world, backend);
        }
        if (found < 0 || rg_wait_for(backend, next_tick_ns - now) < 0)
            return;
    }
}

int main(int argc, char **argv) {
    struct rg_options options = {0};
    rg_backend *backend;
    options.run_dir = argc > 1 ? argv[1] : "/run/ringgate";
    options.name = argc > 2 ? argv[2] : "arena-1";
    options.may_start_alone = 1;
    backend = rg_connect_with(&options);
    if (backend == NULL) {
        perror("cannot start");
        return 1;
    }
    run(backend);
    perror("cannot wait");
    rg_free(backend);
    return 1;
}
