/*
 * One of two zones, each a process of its own, in C. A player who walks over the border goes on in
 * the other zone, without a reconnect.
 *
 * A zone is 100 paces long, and each end of it is the border to the other. A payload of a player
 * is a step, one signed byte; the answer is where the player stands then: a byte, and the zone's
 * name. The listener's config has moves = ["zone-1", "zone-2"].
 *
 *     cc -std=c99 -O2 -I crates/link/include crates/link/examples/c/zones.c -o zones
 *     ./zones /run/ringgate zone-1 & ./zones /run/ringgate zone-2
 */
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

#define PACES 100
#define PLAYERS_MAX 1024

struct player {
    uint64_t session;
    int at;
    int is_leaving; /* it stands at the border until the gateway says whether it goes on */
    int is_guest;   /* it was offered, and is not here yet */
};

struct zone {
    const char *name, *other;
    uint64_t moves;
    size_t count;
    struct player players[PLAYERS_MAX]; /* without gaps */
};

static struct player *find(struct zone *zone, uint64_t session) {
    size_t n;
    for (n = 0; n < zone->count; n++)
        if (zone->players[n].session == session)
            return &zone->players[n];
    return NULL;
}

static struct player *add(struct zone *zone, uint64_t session, int at) {
    struct player *player = find(zone, session);
    if (player == NULL && zone->count < PLAYERS_MAX)
        player = &zone->players[zone->count++];
    if (player != NULL) {
        memset(player, 0, sizeof *player);
        player->session = session;
        player->at = at;
    }
    return player;
}

static void forget(struct zone *zone, struct player *player) {
    if (player != NULL)
        *player = zone->players[--zone->count];
}

static void forget_worker(struct zone *zone, unsigned worker) {
    size_t n = 0;
    while (n < zone->count) {
        if (rg_worker(zone->players[n].session) == worker)
            forget(zone, &zone->players[n]); /* another one is here now */
        else
            n++;
    }
}

/* Asks for the player to go on in the other zone, and says where it will stand there. */
static void leave(struct zone *zone, rg_backend *backend, struct player *player, int to) {
    uint8_t there = (uint8_t)((to + PACES * 2) % PACES);
    struct rg_move move;
    memset(&move, 0, sizeof move);
    move.backend = zone->other;
    move.ticket = ++zone->moves;
    move.data = &there;
    move.data_len = 1;
    /* Where it is not taken, the player is stopped by the border, and may try again. */
    player->is_leaving = rg_move_session(backend, player->session, &move) == RG_SEND_OK;
}

static void step(struct zone *zone, rg_backend *backend, struct player *player, int paces) {
    uint8_t answer[1 + RG_NAME_BYTES_MAX];
    size_t name_len = strlen(zone->name);
    if (!player->is_leaving) {
        int to = player->at + paces;
        player->at = to < 0 ? 0 : to >= PACES ? PACES - 1 : to;
        if (to != player->at)
            leave(zone, backend, player, to);
    }
    answer[0] = (uint8_t)player->at;
    memcpy(answer + 1, zone->name, name_len);
    rg_send(backend, player->session, answer, 1 + name_len);
}

static void offered(struct zone *zone, rg_backend *backend, const struct rg_event *event) {
    struct player *guest = NULL;
    if (event->bytes_len == 0) /* an operator moves the player */
        guest = add(zone, event->session, PACES / 2);
    /* The process of the other zone has sent where the player will stand. */
    if (event->bytes_len == 1 && event->bytes[0] < PACES)
        guest = add(zone, event->session, event->bytes[0]);
    if (guest != NULL)
        guest->is_guest = 1;
    rg_answer(backend, event->session, event->offer, guest != NULL);
}

static void handle(struct zone *zone, rg_backend *backend, const struct rg_event *event) {
    struct player *player = find(zone, event->session);
    switch (event->kind) {
    case RG_OPENED:
        /* Nothing is known of one who is new, or is told again after a link was lost. */
        if (player != NULL && player->is_guest)
            player->is_guest = 0;
        else if (add(zone, event->session, PACES / 2) == NULL)
            rg_close_session(backend, event->session, RG_CLOSE_REFUSED);
        break;
    case RG_PAYLOAD:
        if (player != NULL && event->bytes_len == 1)
            step(zone, backend, player, (int8_t)event->bytes[0]);
        break;
    case RG_OFFERED:
        offered(zone, backend, event);
        break;
    case RG_MOVE_REFUSED:
        if (player != NULL)
            player->is_leaving = 0;
        printf("%llx stays in %s: %s\n", (unsigned long long)event->session, zone->name,
               rg_move_refusal_text(event->reason));
        break;
    case RG_MOVED:
        printf("%llx is in %s by move %llu\n", (unsigned long long)event->session, zone->other,
               (unsigned long long)event->ticket);
        forget(zone, player);
        break;
    case RG_OFFER_OVER:
    case RG_CLOSED:
        forget(zone, player);
        break;
    case RG_LINK_LOST:
        forget_worker(zone, event->worker);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv) {
    static struct zone zone;
    struct rg_options options = {0};
    struct rg_event event;
    rg_backend *backend;
    options.run_dir = argc > 1 ? argv[1] : "/run/ringgate";
    options.name = zone.name = argc > 2 ? argv[2] : "zone-1";
    zone.other = strcmp(zone.name, "zone-2") == 0 ? "zone-1" : "zone-2";
    options.may_start_alone = 1;
    backend = rg_connect_with(&options);
    if (backend == NULL) {
        perror("cannot start");
        return 1;
    }
    while (rg_wait_forever(backend) >= 0) {
        while (rg_next(backend, &event) > 0)
            handle(&zone, backend, &event);
        rg_flush(backend);
        fflush(stdout);
    }
    perror("cannot wait");
    rg_free(backend);
    return 1;
}
