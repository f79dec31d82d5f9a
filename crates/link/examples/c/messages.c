/*
 * A game server that sends whole messages, in C, behind a listener with delivery = "gateway".
 *
 * Every player gets a level of 20 KiB when it comes, and another one for each message that it sends
 * on reliable channel 0 (an order for the next one, of any length). 30 times a second it is sent a
 * snapshot on sequenced channel 1, of which only the newest matters. Once a second a line says what
 * has become of all that: every level is delivered, unless its player leaves before (given up), and
 * every snapshot is delivered or lost; and how good the ways to the players were a second ago, as
 * the gateway has answered. `ringgate-loadgen run --delivery levels` plays the players.
 *
 *     cc -std=c99 -O2 -I crates/link/include crates/link/examples/c/messages.c -o messages
 *     ./messages /run/ringgate arena-1
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

#define TICK_NS (INT64_C(1000000000) / 30)
#define TICKS_PER_LINE 30
#define LEVEL_BYTES (20 * 1024)
#define SNAPSHOT_BYTES 200
#define LEVELS 0    /* a reliable channel */
#define SNAPSHOTS 1 /* a sequenced channel */

/* Tokens of snapshots have this bit, those of levels do not. */
#define SNAPSHOT_TOKEN (UINT64_C(1) << 63)

#define PLACES 8192 /* a power of two, and more than twice as many as there are players */

struct player {
    uint64_t session; /* 0: the place is free */
    unsigned owed;    /* levels to be sent when there is room */
    int is_full;      /* the gateway keeps enough for this player */
    uint32_t levels;  /* that were sent */
    /* Sent, and not reported yet. What a player is sent when the gateway has just ended its session
       finds nobody: there is no report, and the session is closed. */
    uint64_t levels_open, snapshots_open;
};

struct world {
    struct player players[PLACES];
    size_t count;
    uint64_t tick;
    uint64_t levels_sent, levels_delivered, levels_given_up;
    uint64_t snapshots_sent, snapshots_delivered, snapshots_lost;
    uint64_t orders, order_bytes, refused;
    /* How many answers have come about the quality of ways since the last line, and their sums. */
    uint64_t answers, round_trips_ns, losses_per_mille;
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static size_t home_of(uint64_t session) {
    return (size_t)((session * UINT64_C(0x9e3779b97f4a7c15)) >> 51) % PLACES;
}

/* The place of a session, or the free one where it would be. */
static size_t place_of(const struct world *world, uint64_t session) {
    size_t at = home_of(session);
    while (world->players[at].session != 0 && world->players[at].session != session)
        at = (at + 1) % PLACES;
    return at;
}

static struct player *find(struct world *world, uint64_t session) {
    struct player *player = &world->players[place_of(world, session)];
    return player->session == 0 ? NULL : player;
}

/* Closes the gap that a player leaves, so that those behind it are found. */
static void remove_player(struct world *world, uint64_t session) {
    size_t gap = place_of(world, session), at = gap;
    if (world->players[gap].session == 0)
        return;
    world->levels_given_up += world->players[gap].levels_open;
    world->snapshots_lost += world->players[gap].snapshots_open;
    world->count--;
    for (;;) {
        size_t home;
        at = (at + 1) % PLACES;
        if (world->players[at].session == 0)
            break;
        home = home_of(world->players[at].session);
        if ((at - home) % PLACES >= (at - gap) % PLACES) {
            world->players[gap] = world->players[at];
            gap = at;
        }
    }
    world->players[gap].session = 0;
}

static void remove_worker(struct world *world, unsigned worker) {
    size_t at = 0;
    while (at < PLACES) {
        uint64_t session = world->players[at].session;
        if (session != 0 && rg_worker(session) == worker)
            remove_player(world, session); /* another one may be here now */
        else
            at++;
    }
}

static void put_u32(uint8_t *at, uint32_t value) {
    int n;
    for (n = 0; n < 4; n++)
        at[n] = (uint8_t)(value >> (8 * n));
}

/* Every byte follows from the number, so that the player sees whether a level is whole. */
static void send_levels(struct world *world, rg_backend *backend, struct player *player) {
    static uint8_t level[LEVEL_BYTES];
    while (player->owed > 0 && !player->is_full) {
        size_t n;
        put_u32(level, player->levels);
        for (n = 4; n < LEVEL_BYTES; n++)
            level[n] = (uint8_t)(n * 31 + player->levels);
        if (rg_send_message(backend, player->session, RG_RELIABLE, LEVELS, level, sizeof level,
                            player->levels + 1) != RG_SEND_OK) {
            world->refused++;
            return; /* the link is full: again with the next tick */
        }
        player->owed--;
        player->levels++;
        player->levels_open++;
        world->levels_sent++;
    }
}

static void send_snapshot(struct world *world, rg_backend *backend, struct player *player) {
    uint8_t snapshot[SNAPSHOT_BYTES] = {0};
    uint64_t token = SNAPSHOT_TOKEN | (world->tick + 1);
    put_u32(snapshot, (uint32_t)world->tick);
    if (rg_send_message(backend, player->session, RG_SEQUENCED, SNAPSHOTS, snapshot,
                        sizeof snapshot, token) != RG_SEND_OK) {
        world->refused++;
        return;
    }
    player->snapshots_open++;
    world->snapshots_sent++;
}

static void handle_report(struct world *world, struct player *player,
                          const struct rg_event *event) {
    int is_snapshot = (event->token & SNAPSHOT_TOKEN) != 0;
    if (is_snapshot)
        player->snapshots_open--;
    else
        player->levels_open--;
    if (is_snapshot && event->is_delivered)
        world->snapshots_delivered++;
    else if (is_snapshot)
        world->snapshots_lost++;
    else if (event->is_delivered)
        world->levels_delivered++;
    else /* a reliable one is not, if its player leaves before */
        world->levels_given_up++;
}

static void handle(struct world *world, rg_backend *backend, const struct rg_event *event) {
    struct player *player = event->session == 0 ? NULL : find(world, event->session);
    switch (event->kind) {
    case RG_OPENED:
        if (world->count >= PLACES / 2) {
            rg_close_session(backend, event->session, RG_CLOSE_REFUSED);
            break;
        }
        player = &world->players[place_of(world, event->session)];
        memset(player, 0, sizeof *player);
        player->session = event->session;
        player->owed = 1;
        world->count++;
        send_levels(world, backend, player);
        break;
    case RG_MESSAGE:
        if (player == NULL || event->channel_kind != RG_RELIABLE || event->channel != LEVELS)
            break;
        world->orders++;
        world->order_bytes += event->bytes_len;
        player->owed++;
        send_levels(world, backend, player);
        break;
    case RG_ROOM:
        if (player == NULL)
            break;
        player->is_full = event->is_full;
        send_levels(world, backend, player);
        break;
    case RG_REPORT:
        if (player != NULL)
            handle_report(world, player, event);
        break;
    case RG_QUALITY:
        if (event->round_trip_ns == 0)
            break; /* nothing is known yet */
        world->answers++;
        world->round_trips_ns += event->round_trip_ns;
        world->losses_per_mille += event->loss_per_mille;
        break;
    case RG_CLOSED:
    case RG_MOVED:
        remove_player(world, event->session);
        break;
    case RG_LINK_LOST:
        remove_worker(world, event->worker);
        break;
    default:
        break;
    }
}

static void print_books(const struct world *world) {
    uint64_t answers = world->answers > 0 ? world->answers : 1;
    printf("players=%zu levels=%llu delivered=%llu snapshots=%llu delivered=%llu lost=%llu "
           "orders=%llu bytes=%llu refused=%llu given_up=%llu round_trip_ms=%llu "
           "loss_per_mille=%llu\n",
           world->count, (unsigned long long)world->levels_sent,
           (unsigned long long)world->levels_delivered, (unsigned long long)world->snapshots_sent,
           (unsigned long long)world->snapshots_delivered,
           (unsigned long long)world->snapshots_lost, (unsigned long long)world->orders,
           (unsigned long long)world->order_bytes, (unsigned long long)world->refused,
           (unsigned long long)world->levels_given_up,
           (unsigned long long)(world->round_trips_ns / answers / 1000000),
           (unsigned long long)(world->losses_per_mille / answers));
    fflush(stdout);
}

static void tick(struct world *world, rg_backend *backend) {
    int is_new_line = world->tick % TICKS_PER_LINE == 0;
    size_t at;
    if (is_new_line) {
        print_books(world);
        world->answers = world->round_trips_ns = world->losses_per_mille = 0;
    }
    for (at = 0; at < PLACES; at++) {
        struct player *player = &world->players[at];
        if (player->session == 0)
            continue;
        send_levels(world, backend, player);
        send_snapshot(world, backend, player);
        if (is_new_line)
            rg_ask_quality(backend, player->session); /* a full link: with the next line */
    }
    world->tick++;
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
            tick(&world, backend);
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
    options.queue_bundles = 256; /* levels for many players at once */
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
