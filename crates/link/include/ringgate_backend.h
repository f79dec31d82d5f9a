/*
 * ringgate_backend.h: the game server's end of ringgate's bundle link, in one C99 header.
 *
 * Needs nothing but libc on Linux. In exactly one source file, before any other include:
 *
 *     #define RINGGATE_BACKEND_IMPLEMENTATION
 *     #include "ringgate_backend.h"
 *
 * A backend holds one link to every worker of the gateway and puts them together again when the
 * gateway restarts. The game's loop is a turn: take every event, answer, flush once. That makes one
 * datagram and at most one wake-up for each link and turn, however many players there are.
 *
 *     rg_backend *backend = rg_connect("/run/ringgate", "arena-1");
 *     struct rg_event event;
 *     for (;;) {
 *         rg_wait_forever(backend);
 *         while (rg_next(backend, &event) > 0)
 *             if (event.kind == RG_PAYLOAD)
 *                 rg_send(backend, event.session, event.bytes, event.bytes_len);
 *         rg_flush(backend);
 *     }
 *
 * The same functions are in a library, static and shared, for programs that are not built again with
 * every gateway and for other languages: include this header without the line above, and link with
 * `pkg-config --libs ringgate-backend`. A program goes on working with later libraries of the same
 * soname: fields are only ever appended to structs, and every struct is passed with the size that
 * it had when the program was built.
 *
 * Only waiting blocks. A game with a loop of its own watches rg_fd for input instead. One thread at
 * a time may use a backend; different backends are independent. The format itself is described in
 * docs/PROTOCOLS.md.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RINGGATE_BACKEND_H
#define RINGGATE_BACKEND_H

#if defined(RINGGATE_BACKEND_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* ppoll */
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stands before every function. A shared library shows them with it. */
#ifndef RG_API
#define RG_API
#endif

/* The version of this header and its library: the second number grows when something is added. The
   first never changes as long as the library has the same soname. */
#define RG_LIBRARY_MAJOR 1
#define RG_LIBRARY_MINOR 3

/* The version of the library that is linked: major << 16 | minor. */
RG_API uint32_t rg_library_version(void);

/* The versions of the format that this header speaks: all from the first to the sixth. */
#define RG_VERSION_MIN 1
#define RG_VERSION_MAX 6

/* Limits of the format. */
#define RG_BUNDLE_BYTES_MAX 16384
#define RG_PAYLOAD_BYTES_MAX 1200 /* of a player of netcode, and of a multicast */
#define RG_LONG_PAYLOAD_BYTES_MAX 1472 /* of one player, on links from version 3 on */
#define RG_MESSAGE_BYTES_MAX 65536 /* of a message on a reliable channel */
#define RG_SHORT_MESSAGE_BYTES_MAX 1159 /* of a message on another channel */
#define RG_NO_SLOT UINT32_MAX
#define RG_USER_DATA_BYTES 256
#define RG_NAME_BYTES_MAX 32
#define RG_MULTICAST_SESSIONS_MAX 1024
#define RG_WORKERS_MAX 128
#define RG_FAREWELL_BYTES_MAX 200 /* of the text that a player is told last */
#define RG_LINGER_MS_MAX 30000
#define RG_MOVE_BYTES_MAX 1024 /* for the process that a player is moved to */
#define RG_MOVE_MS_MAX 30000
#define RG_MOVE_MS 2000 /* where a move does not say how long */

/* Why a session ended. A game may give those from 128 on. */
enum rg_close_reason {
    RG_CLOSE_OTHER = 0, /* also any that a newer gateway has and this header does not */
    RG_CLOSE_PLAYER_LEFT = 1,
    RG_CLOSE_TIMED_OUT = 2,
    RG_CLOSE_SEQUENCE_GAP = 3,
    RG_CLOSE_SEQUENCE_EXHAUSTED = 4,
    RG_CLOSE_SHUTDOWN = 5,
    RG_CLOSE_OPERATOR = 6,
    RG_CLOSE_UNCONFIGURED = 7,
    RG_CLOSE_DELIVERY = 8, /* the player broke the delivery layer, or acknowledges nothing */
    RG_CLOSE_OVERFLOW = 9, /* more was sent on reliable channels than the gateway keeps */
    RG_CLOSE_NEWER_LOGIN = 10, /* the player has logged in again, here or at another gateway */
    RG_CLOSE_MOVED = 11, /* moved to another game process; programs that know RG_MOVED get that */
    RG_CLOSE_FINISHED = 128,
    RG_CLOSE_KICKED = 129,
    RG_CLOSE_REFUSED = 130,
    RG_CLOSE_GAME_SHUTDOWN = 131
};

/* Why a link is down. Below 256: the gateway's goodbye. */
enum rg_link_loss {
    RG_GOODBYE_OTHER = 0, /* as above */
    RG_GOODBYE_SHUTDOWN = 1,
    RG_GOODBYE_VERSION_UNSUPPORTED = 2,
    RG_GOODBYE_UNAUTHORISED = 3,
    RG_GOODBYE_NAME_UNKNOWN = 4,
    RG_GOODBYE_NAME_TAKEN = 5,
    RG_GOODBYE_HELLO_EXPECTED = 6,
    RG_GOODBYE_RECORD_INVALID = 7,
    RG_LOSS_HUNG_UP = 256,             /* without a word: it crashed or was stopped */
    RG_LOSS_RECORD_INVALID = 257,      /* the gateway broke the format; `error` says how */
    RG_LOSS_WELCOME_EXPECTED = 258,    /* once, first */
    RG_LOSS_VERSION_UNSUPPORTED = 259, /* the gateway has chosen one that was not offered */
    RG_LOSS_FAILED = 260               /* reading failed; `error` is the errno */
};

/* How a record breaks the format. */
enum rg_record_error {
    RG_ERROR_NONE = 0,
    RG_ERROR_HEADER_TRUNCATED = 1,
    RG_ERROR_RECORD_LENGTH = 2,
    RG_ERROR_KIND_UNKNOWN = 3,
    RG_ERROR_FLAGS_UNKNOWN = 4,
    RG_ERROR_BODY_LENGTH = 5,
    RG_ERROR_SESSION_ZERO = 6,
    RG_ERROR_PAYLOAD_LENGTH = 7,
    RG_ERROR_NAME_INVALID = 8,
    RG_ERROR_SESSION_COUNT = 9,
    RG_ERROR_WORKER_INVALID = 10,
    RG_ERROR_REASON_UNKNOWN = 11,
    RG_ERROR_DATAGRAM_TOO_LONG = 12,
    RG_ERROR_CHANNEL_UNKNOWN = 13,
    RG_ERROR_MESSAGE_LENGTH = 14,
    RG_ERROR_MESSAGE_MARKS = 15,
    RG_ERROR_FAREWELL_LENGTH = 16,
    RG_ERROR_MOVE_LENGTH = 17,
    RG_ERROR_ANSWER_UNKNOWN = 18
};

/* Why a player was not moved. */
enum rg_move_refusal {
    RG_MOVE_OTHER = 0, /* also any that a newer gateway has and this header does not */
    RG_MOVE_NO_SUCH_BACKEND = 1,
    RG_MOVE_ITSELF = 2,
    RG_MOVE_FULL = 3,
    RG_MOVE_NOT_LINKED = 4, /* no process is connected there */
    RG_MOVE_DENIED = 5,     /* by the process there */
    RG_MOVE_TIME = 6,       /* it has not answered in time */
    RG_MOVE_VERSION = 7,    /* it, or the gateway, is too old */
    RG_MOVE_FRONT = 8,      /* players of this protocol, or of servers on a udp link */
    RG_MOVE_NOT_ALLOWED = 9, /* by the listener's config */
    RG_MOVE_BUSY = 10,      /* the player is being moved already */
    RG_MOVE_OFFERS = 11,    /* 64 players are offered there already */
    RG_MOVE_CLOSED = 12,    /* nobody new is taken there, or the gateway is about to stop */
    RG_MOVE_SESSION_OVER = 13,
    RG_MOVE_PLAYER_FULL = 14, /* too much waits for the player for one message more */
    RG_MOVE_SOURCE_GONE = 15  /* the process that the player plays with has gone */
};

/* The kinds of a player's channels, of each of which there are 256. */
enum rg_channel_kind {
    RG_RELIABLE = 1,  /* messages of up to 64 KiB that arrive once and in order */
    RG_SEQUENCED = 2, /* of up to 1159 bytes: a newer one makes older ones worthless */
    RG_UNRELIABLE = 3 /* of up to 1159 bytes, without promises */
};

/* What rg_next reports, and which fields of rg_event it sets besides `kind` and `worker`. */
enum rg_event_kind {
    RG_LINK_UP = 1, /* workers, incarnation, version */
    RG_OPENED,      /* session, client_id, ip, scope, port, slot, slots_max, user_data, listener,
                       delivers */
    RG_PAYLOAD,     /* session, bytes, bytes_len */
    RG_CLOSED,      /* session, reason */
    RG_PONG,        /* round_trip_ns */
    RG_DRAINING,    /* left_ms: the gateway takes no new players and will shut down */
    RG_LINK_LOST,   /* reason, error, payloads_unsent: forget all sessions of the worker; players
                       who are still there are opened again when the link is up */
    RG_OPENED_PLAIN, /* session, ip, scope, port, slot, slots_max, listener: a player of a plain
                       listener. The slot is RG_NO_SLOT until its source has sent again after an
                       answer; then the event comes once more */
    RG_UNDRAINED,    /* the gateway takes players again: RG_DRAINING does not hold any more.
                       Gateways of the first releases did not say so */
    /* Of players of listeners with delivery = "gateway": */
    RG_MESSAGE, /* session, channel_kind, channel, bytes, bytes_len: a whole message */
    RG_REPORT,  /* session, token, is_delivered: what became of a message that was sent with a
                   token, also before the session was moved away and came back, so none is used
                   twice. One for each, before the session's RG_CLOSED, unless the link is lost, or
                   it was sent when the gateway had ended the session: that one was not delivered */
    RG_ROOM,    /* session, is_full, waiting_bytes: so much waits at the gateway that no more should
                   be sent on reliable channels, or it has become less again */
    RG_QUALITY, /* session, round_trip_ns, variation_ns, loss_per_mille, waiting_bytes */
    RG_LINGERED, /* session, waiting_bytes, is_delivered: what became of a session that was closed with
                   rg_close_session_after. So much is not known to have arrived of what was sent on
                   reliable channels, and is_delivered says whether the player's library has the
                   reason and the text. Right before its RG_CLOSED, whoever ended it */
    /* Of players who are moved from one game process to another. Programs that were built with a
       header before 1.3 get RG_CLOSED in place of RG_MOVED, and say no to every offer. */
    RG_OFFERED,     /* session, offer, ticket, client_id, ip, scope, port, slot, slots_max, left_ms,
                       user_data, listener, delivers, from, bytes, bytes_len (0 to
                       RG_MOVE_BYTES_MAX): a player of another process may come, as rg_answer says.
                       It is no player of this one before its RG_OPENED */
    RG_OFFER_OVER,  /* session, offer, reason (enum rg_move_refusal) */
    RG_MOVED,       /* session, ticket: the player is at another process. The last event about the
                       session, but for RG_REPORT of what was sent before */
    RG_MOVE_REFUSED /* session, ticket, reason (enum rg_move_refusal): the player plays on here */
};

/* What happened. Pointers are valid until the next call of rg_next. */
struct rg_event {
    enum rg_event_kind kind;
    unsigned worker;  /* whose link it came on */
    unsigned workers; /* how many there are */
    unsigned reason;  /* enum rg_close_reason or enum rg_link_loss */
    unsigned error;   /* enum rg_record_error, or an errno */
    uint64_t incarnation; /* differs from one start of the gateway to the next */
    uint64_t session; /* unique under one incarnation; 0 in an event that is about none */
    uint64_t client_id;
    const uint8_t *ip; /* 16 bytes, network order; IPv4 as ::ffff:a.b.c.d */
    uint32_t scope;    /* the interface of a link-local IPv6 address, else 0 */
    uint16_t port;
    uint32_t slot;
    uint32_t slots_max;
    const uint8_t *user_data; /* RG_USER_DATA_BYTES; the connect token's */
    char listener[RG_NAME_BYTES_MAX + 1]; /* where the player came in, NUL-terminated */
    const uint8_t *bytes;
    size_t bytes_len; /* 1 to RG_LONG_PAYLOAD_BYTES_MAX; of netcode 1 to RG_PAYLOAD_BYTES_MAX; of a
                         message 1 to RG_MESSAGE_BYTES_MAX */
    uint64_t round_trip_ns;
    uint32_t left_ms;
    uint64_t payloads_unsent; /* taken by rg_send, and gone down with the link */
    unsigned version;         /* of the format, as both sides speak it on this link */
    unsigned channel_kind;    /* enum rg_channel_kind */
    unsigned channel;         /* 0 to 255 */
    uint64_t token;
    int is_delivered;
    int is_full;
    uint32_t waiting_bytes;
    uint64_t variation_ns; /* how far round trips differ from round_trip_ns */
    unsigned loss_per_mille;
    void *user; /* what rg_set_user has given the session, or NULL */
    int delivers; /* the gateway delivers whole messages to the player, so a payload for it has 1 to
                     RG_SHORT_MESSAGE_BYTES_MAX bytes. Gateways before version 5 do not say so */
    int is_moved; /* of RG_OPENED: the player has come from another process, with this ticket */
    uint64_t ticket;
    uint64_t offer;
    char from[RG_NAME_BYTES_MAX + 1]; /* where an offered player plays, NUL-terminated */
};

/* What became of payloads, one for each player that a multicast names, and of messages, which count
   as one payload each. All only grow.
   payloads_taken = payloads_sent + payloads_lost + those that wait for a flush. */
struct rg_stats {
    uint64_t payloads_taken;
    uint64_t payloads_sent;
    uint64_t payloads_lost;
    uint64_t payloads_link_down; /* refused with RG_SEND_LINK_DOWN */
    uint64_t payloads_link_full; /* refused with RG_SEND_LINK_FULL */
    uint64_t bundles_sent;
};
typedef struct rg_stats rg_stats_t; /* for C++, where rg_stats alone is the function */

/* What rg_send and rg_close_session return: 0, or why the record was not taken. */
enum rg_send_result {
    RG_SEND_OK = 0,
    RG_SEND_LINK_DOWN = -1,      /* the session's link is down, or it is no session */
    RG_SEND_LINK_FULL = -2,      /* the gateway does not read fast enough; the queue is full */
    RG_SEND_PAYLOAD_LENGTH = -3, /* a payload has 1 to RG_PAYLOAD_BYTES_MAX bytes, or for one player
                                    of a plain listener RG_LONG_PAYLOAD_BYTES_MAX */
    RG_SEND_NOT_A_CHOICE = -4,   /* only the gateway closes for this reason */
    RG_SEND_MESSAGE_LENGTH = -5, /* a message has 1 to RG_MESSAGE_BYTES_MAX bytes on a reliable
                                    channel, to RG_SHORT_MESSAGE_BYTES_MAX on another, as a payload
                                    for a player who gets messages */
    RG_SEND_NO_MESSAGES = -6,    /* the gateway is of an earlier version and takes no messages */
    RG_SEND_NO_CHANNEL = -7,     /* no such kind of channel, or a number above 255 */
    RG_SEND_FAREWELL_LENGTH = -8, /* a player is told at most RG_FAREWELL_BYTES_MAX bytes */
    RG_SEND_NO_DELIVERY = -9,     /* the player gets no messages: its listener does not deliver, or
                                     the session is over. Gateways before version 5 drop it */
    RG_SEND_NO_MOVES = -10,    /* the gateway is of an earlier version and moves nobody */
    RG_SEND_NAME = -11,        /* what cannot name a backend */
    RG_SEND_MOVE_LENGTH = -12  /* more than RG_MOVE_BYTES_MAX bytes for the other process */
};

/* What a game process is ready for. */
enum rg_state {
    RG_STATE_STARTING = 0, /* not yet for players */
    RG_STATE_READY = 1,    /* for anybody */
    RG_STATE_ALLOCATED = 2, /* for those whom a matchmaker has sent */
    RG_STATE_DRAINING = 3  /* for those who are there */
};

/* What has become of an announcement. */
enum rg_standing {
    RG_STANDING_WAITING = 0, /* the gateway is not there, or cannot reach the fleet now */
    RG_STANDING_REGISTERED = 1,
    RG_STANDING_NAME_TAKEN = 2, /* by another process, at this gateway or at another one */
    RG_STANDING_NAME_IN_CONFIG = 3, /* a [[backend]] in the gateway's config has it */
    RG_STANDING_TOO_MANY = 4, /* the gateway takes no more of the fleet */
    RG_STANDING_UNAUTHORISED = 5, /* this user may not */
    RG_STANDING_INVALID = 6, /* the gateway does not understand it */
    RG_STANDING_REFUSED = 255 /* also what a newer gateway says and this header does not know */
};

/* Something that a matchmaker can choose a game process by. */
struct rg_label {
    const char *name;  /* 1 to 64 letters, digits, '.', '_' and '-', each name once */
    const char *value; /* UTF-8 of at most 255 bytes, without control characters */
};

/* What a game process is. */
struct rg_announcement {
    const char *group; /* which listeners of the fleet lead to it: a name as of a label */
    uint32_t slots;    /* how many players it takes: 1 to 1,000,000 */
    enum rg_state state;
    int counts_players; /* 0: the gateway counts them, otherwise they are `players` */
    uint32_t players;
    const struct rg_label *labels; /* at most 32 */
    size_t labels_len;
};

/* How to connect. Zero means the default. */
struct rg_options {
    const char *run_dir; /* the gateway's run_dir */
    const char *name;    /* the backend's name in the gateway's configuration */
    int64_t spin_ns;     /* how long rg_wait looks before it sleeps; by default not at all */
    unsigned queue_bundles; /* how many may wait for each worker before payloads are refused: at
                               least 5, because the longest message takes as many */
    int may_start_alone;    /* a gateway that is not there yet is waited for, not an error */
    /* How long rg_wait may sleep with nobody to wake it while bundles follow each other closely, so
       that one look takes several; < 0: never. By default it follows the gateway, whose config says
       how long both may wait together: one worker has waited for both, several leave 50,000, or twelve
       times what a sleep costs this thread, within what they have not used; 50,000 where the gateway
       does not say. Where it does sleep so, it asks the kernel to end this thread's sleeps on time
       (PR_SET_TIMERSLACK). One that spins never does. */
    int64_t batch_delay_ns;
};

typedef struct rg_backend rg_backend;

/* Connects to a gateway that is running; NULL and errno where nobody listens on the first worker's
   socket, or where `name` cannot be one (EINVAL). The links are not up yet: each becomes an
   RG_LINK_UP, or an RG_LINK_LOST that says why the gateway refuses it. */
RG_API rg_backend *rg_connect(const char *run_dir, const char *name);
RG_API rg_backend *rg_connect_sized(const struct rg_options *options, size_t options_bytes);
static inline rg_backend *rg_connect_with(const struct rg_options *options) {
    return rg_connect_sized(options, sizeof *options);
}

/* Hangs up on every worker and frees everything. A child that was forked has the links too, and would
   keep them up when its parent has ended, and the name taken: one that does not execute another
   program calls this first, which leaves the parent's links as they are. */
RG_API void rg_free(rg_backend *backend);

/* Flushes, then waits until rg_next has something to do, or for so long: not at all below 0, which is
   a deadline that has passed. 1: there is something, 0: time is up or a signal came, -1: errno. */
RG_API int rg_wait_for(rg_backend *backend, int64_t timeout_ns);

/* The same for as long as it takes. */
RG_API int rg_wait_forever(rg_backend *backend);

/* Both, as the first version had them: exactly -1 is rg_wait_forever, everything else rg_wait_for. A
   game that subtracts one time from another calls rg_wait_for, because -1 may come of that. */
RG_API int rg_wait(rg_backend *backend, int64_t timeout_ns);

/* Readable whenever rg_next has something to do: reconnecting, and the rest of a turn that was left
   before rg_next returned 0, included. Ask once and keep it; it is the same for good. */
RG_API int rg_fd(const rg_backend *backend);

/* The next event of this turn. 1: `*event` is set, 0: the turn is over, so flush, -1: errno. */
RG_API int rg_next_sized(rg_backend *backend, struct rg_event *event, size_t event_bytes);
static inline int rg_next(rg_backend *backend, struct rg_event *event) {
    return rg_next_sized(backend, event, sizeof *event);
}

/* Take payloads; they leave with the next flush. rg_multicast returns for how many players: for none
   where the payload has more than RG_SHORT_MESSAGE_BYTES_MAX bytes and one of them gets messages. */
RG_API int rg_send(rg_backend *backend, uint64_t session, const void *bytes, size_t bytes_len);
RG_API size_t rg_multicast(rg_backend *backend, const uint64_t *sessions, size_t sessions_len,
                    const void *bytes, size_t bytes_len);

/* Sends a whole message to a player of a listener with delivery = "gateway". `kind` is an enum
   rg_channel_kind. With a token other than 0, an RG_REPORT says what became of it. What the player
   cannot be sent yet waits at the gateway; after an RG_ROOM with is_full no more should be sent on
   reliable channels until one without it comes. A game that goes on all the same loses the session
   (RG_CLOSE_OVERFLOW). */
RG_API int rg_send_message(rg_backend *backend, uint64_t session, unsigned kind, unsigned channel,
                    const void *bytes, size_t bytes_len, uint64_t token);

/* Asks how good the way to a player is, which RG_QUALITY answers. */
RG_API int rg_ask_quality(rg_backend *backend, uint64_t session);

/* Ends a session; `reason` is an enum rg_close_reason from 128 on. While the link lives this is not
   lost, however full it is. RG_CLOSED with the same reason answers. */
RG_API int rg_close_session(rg_backend *backend, uint64_t session, unsigned reason);

/* Ends a session of a player who gets messages when everything that was sent on reliable channels has
   arrived, or after `linger_ms`, of which more than RG_LINGER_MS_MAX count as that. The player's
   library has the reason and the text, if it is of this release or later. From then on nothing more
   is sent to the player; what it still sends comes. While the link lives this is not lost, and it
   needs the link no more once the gateway has read it. RG_LINGERED and RG_CLOSED answer. Other
   players, and those of an earlier gateway, are closed at once. */
RG_API int rg_close_session_after(rg_backend *backend, uint64_t session, unsigned reason,
                           uint32_t linger_ms, const void *text, size_t text_len);

/* Where a player is to play. Zero means none, or the default. */
struct rg_move {
    const char *backend; /* the name of the other process in the gateway's configuration */
    uint64_t ticket;     /* what both processes know the move by */
    uint32_t time_ms;    /* so long may the other one take to answer; 0: RG_MOVE_MS */
    int confirms; /* the other one is told that it has the player when this one has heard that it has
                     lost it */
    const void *data; /* for the other one: at most RG_MOVE_BYTES_MAX bytes */
    size_t data_len;
    /* What the player is sent in between, if it gets messages: 1 to RG_SHORT_MESSAGE_BYTES_MAX bytes,
       on a reliable channel behind all that this process has sent there, and before all from the
       other there. Channels do not wait for each other. */
    const void *message;
    size_t message_len;
    unsigned channel_kind; /* enum rg_channel_kind */
    unsigned channel;
};

/* Moves a player to another game process of the gateway, if that says yes and the listener's config
   allows it (moves). RG_MOVED or RG_MOVE_REFUSED answers, unless the session is closed before. Until
   then the player plays on here. While the link lives this is not lost. A gateway that is rolled
   back to an earlier release meanwhile answers nothing, and moves nobody. */
RG_API int rg_move_session_sized(rg_backend *backend, uint64_t session, const struct rg_move *move,
                          size_t move_bytes);
static inline int rg_move_session(rg_backend *backend, uint64_t session,
                                  const struct rg_move *move) {
    return rg_move_session_sized(backend, session, move, sizeof *move);
}

/* Says whether a player may come who was offered. While the link lives this is not lost. */
RG_API int rg_answer(rg_backend *backend, uint64_t session, uint64_t offer, int is_welcome);

/* Says whether new players may be sent to this process, which they may until it says otherwise (0):
   who is there stays. Leaves with the next flush, and is said again on links that come up later.
   Gateways before this word, and those that speak version 1, go on sending players. */
RG_API void rg_set_intake(rg_backend *backend, int is_open);

/* Asks every worker for an RG_PONG. Returns how many were asked. */
RG_API unsigned rg_ping(rg_backend *backend);

/* Sends what was taken: one datagram for each link, more only where one is too small. What a full
   link does not take waits for the next flush. */
RG_API void rg_flush(rg_backend *backend);

/* The same, and waits for at most so long until all of it has left, not at all for 0 and below.
   How many datagrams have not: a process that ends before there are none takes them along, closes
   included. */
RG_API size_t rg_flush_for(rg_backend *backend, int64_t wait_ns);

/* Whether the links to all workers are up. */
RG_API int rg_is_up(const rg_backend *backend);
RG_API void rg_stats_sized(const rg_backend *backend, struct rg_stats *stats, size_t stats_bytes);
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a struct and a function of one name */
#endif
static inline struct rg_stats rg_stats(const rg_backend *backend) {
    struct rg_stats stats;
    rg_stats_sized(backend, &stats, sizeof stats);
    return stats;
}
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* Registers this process with the fleet of its gateway, which leads players to it from then on, and
   says anew what it is whenever that has changed: its state, its players. It stays registered as
   long as it runs, and a gateway that restarts is told again. Costs a message to the gateway, so a
   few times a second at the most. A gateway knows nobody of this name before, so connect with
   `may_start_alone`; its refusals until then are of no concern. 0, or -1 and EINVAL for what cannot
   be said (also a name of 32 bytes, or one with other characters than a label's), or ENOMEM. */
RG_API int rg_announce_labelled(rg_backend *backend, const struct rg_announcement *announcement,
                         size_t announcement_bytes, size_t label_bytes);
static inline int rg_announce(rg_backend *backend, const struct rg_announcement *announcement) {
    return rg_announce_labelled(backend, announcement, sizeof *announcement,
                                sizeof(struct rg_label));
}
/* The same as version 1.1 had it, with labels of two pointers. */
RG_API int rg_announce_sized(rg_backend *backend, const struct rg_announcement *announcement,
                      size_t announcement_bytes);

/* How the registration stands, as the gateway has said last. */
RG_API enum rg_standing rg_standing(const rg_backend *backend);

/* A pointer of the game's for a session, which every later event about it has as `user`, RG_CLOSED
   the last time. NULL takes it away. 0, or -1 and errno. */
RG_API int rg_set_user(rg_backend *backend, uint64_t session, void *user);
RG_API void *rg_user(const rg_backend *backend, uint64_t session);

/* When a link is lost its sessions are forgotten, and their pointers with the next call of rg_next:
   to be called before that for each session of the worker that has one, in no order. It may take
   that session's pointer away, and set none. */
RG_API void rg_each_user(rg_backend *backend, unsigned worker,
                  void (*each)(void *context, uint64_t session, void *user), void *context);

/* What numbers mean, in words for a log; never NULL. The first is for what an RG_LINK_LOST has as
   `reason`, the others for an enum rg_close_reason, rg_record_error and rg_send_result. */
RG_API const char *rg_link_loss_text(unsigned reason);
RG_API const char *rg_close_reason_text(unsigned reason);
RG_API const char *rg_record_error_text(unsigned error);
RG_API const char *rg_send_result_text(int result);
RG_API const char *rg_standing_text(unsigned standing);
RG_API const char *rg_move_refusal_text(unsigned reason);

/* The worker that owns a session. */
static inline unsigned rg_worker(uint64_t session) { return (unsigned)(session >> 56); }

#ifdef __cplusplus
}
#endif

#endif /* RINGGATE_BACKEND_H */

#if defined(RINGGATE_BACKEND_IMPLEMENTATION) && !defined(RINGGATE_BACKEND_IMPLEMENTED)
#define RINGGATE_BACKEND_IMPLEMENTED

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__USE_GNU)
#error "include this implementation before other headers, or define _GNU_SOURCE"
#endif

/* Kinds of records. Payloads and messages go both ways. */
enum {
    RG__PAYLOAD = 1,
    RG__WELCOME = 2,
    RG__OPENED = 3,
    RG__CLOSED = 4,
    RG__PONG = 5,
    RG__DRAINING = 6,
    RG__GOODBYE = 7,
    RG__OPENED_PLAIN = 8,
    RG__MESSAGE = 9,
    RG__REPORT = 10,
    RG__ROOM = 11,
    RG__QUALITY = 12,
    RG__HELLO = 16,
    RG__MULTICAST = 17,
    RG__CLOSE = 18,
    RG__PING = 19,
    RG__ASK_QUALITY = 20,
    RG__FIRST_SKIPPABLE = 128, /* from here on, what is not known is passed over */
    RG__UNDRAINED = 128,
    RG__PLAYERS = 130,
    RG__LINGERED = 131,
    RG__OFFERED = 132,
    RG__OFFER_OVER = 133,
    RG__MOVED = 134,
    RG__MOVE_REFUSED = 135,
    RG__INTAKE = 144,
    RG__CLOSE_AFTER = 145,
    RG__MOVE = 146,
    RG__ANSWER = 147,
    RG__CONFIRM = 148
};

enum {
    RG__HEADER_BYTES = 4,
    RG__CLOSE_BYTES = RG__HEADER_BYTES + 8 + 1,
    RG__CLOSE_AFTER_BYTES_MIN = RG__HEADER_BYTES + 8 + 1 + 4,
    RG__LINGERED_BYTES = RG__HEADER_BYTES + 8 + 4 + 1,
    RG__PLAYERS_BYTES = RG__HEADER_BYTES + 4 + 4 + 4,
    RG__PART_OVERHEAD_BYTES = RG__HEADER_BYTES + 8 + 3 + 8,
    RG__PART_BYTES_MAX = 16000, /* a longer message takes several records */
    RG__FIRST_PART = 1,
    RG__LAST_PART = 2,
    RG__DELIVERS = 1, /* the flags of an opening */
    RG__MOVED_IN = 2,
    RG__CONFIRMS = 1, /* the marks of a move */
    RG__HAS_MESSAGE = 2,
    RG__OFFERED_BYTES_MIN = RG__HEADER_BYTES + 4 * 8 + 34 + RG_USER_DATA_BYTES,
    RG__QUEUE_BUNDLES = 16,
    RG__QUEUE_BUNDLES_MIN = (RG_MESSAGE_BYTES_MAX + RG__PART_BYTES_MAX - 1) / RG__PART_BYTES_MAX,
    /* More than a socket holds: only a gateway that sends faster than we read comes this far. */
    RG__TURN_BUNDLES_MAX = 64,
    /* A sleep has to gather so many halves of a bundle, to begin with and to go on. */
    RG__WORTH_BEGINNING = 4,
    RG__WORTH_GOING_ON = 3,
    RG__GATHERED = 8, /* bundles that are gathered where the delay may be as long as that takes */
    RG__FULL = 8,     /* after so many there may be more, so nobody waits */
    RG__SLEEP_SHARE = 12,     /* dear sleeps are to take less than a tenth of the core */
    RG__SLEEPS_AT_FIRST = 16, /* all of these are measured, then one in as many */
    RG__TIMER = RG_WORKERS_MAX,
    RG__UNREAD = RG_WORKERS_MAX + 1,
    RG__REGISTRATION = RG_WORKERS_MAX + 2,
    RG__TOKENS = RG_WORKERS_MAX + 3,
    /* The messages of the announce socket. */
    RG__ANNOUNCE = 112,
    RG__STANDING = 113,
    RG__ANNOUNCE_VERSION = 1,
    RG__ANNOUNCE_HEAD_BYTES = RG__HEADER_BYTES + 2 + 2 + 4 + 4 + 8,
    RG__ANNOUNCE_NAME_BYTES_MAX = 31,
    RG__LABEL_NAME_BYTES_MAX = 64,
    RG__LABEL_VALUE_BYTES_MAX = 255,
    RG__LABELS_MAX = 32,
    RG__SLOTS_MAX = 1000000
};

#define RG__BATCH_DELAY_NS INT64_C(50000)
#define RG__PASSED_NS_MAX INT64_C(10000000) /* a pause that is longer tells no more */
#ifndef RG__BACKOFF_NS_MIN /* tests lose a link many times a second */
#define RG__BACKOFF_NS_MIN INT64_C(50000000)
#endif
#define RG__BACKOFF_NS_MAX INT64_C(2000000000)

struct rg__bundle {
    size_t len;
    uint64_t payloads;
    uint8_t bytes[RG_BUNDLE_BYTES_MAX]; /* takes memory when first written to */
};

/* One link: a socket, whether it has been welcomed, and what waits to be sent on it. */
struct rg__link {
    int fd; /* -1: down */
    int is_welcomed;
    unsigned version; /* as the gateway has chosen */
    int is_send_broken; /* what the kernel still has for us is read before the link is lost */
    int is_watched_for_room;
    int is_told_closed; /* that it is to send nobody new */
    struct rg__bundle *bundles; /* a ring; `bundles_len` from `first` on are in use */
    unsigned first;
    unsigned bundles_len;
    uint8_t *late; /* closes that found no room, encoded; payloads wait until they are gone */
    size_t late_len;
    size_t late_room;
    uint8_t *message; /* one that comes in several parts; allocated when first needed */
    size_t message_len;
    uint64_t message_session; /* 0: none has begun */
    unsigned message_channel; /* kind and number, as they were read */
};

/* What is known of a session of which there is anything to know. */
struct rg__user {
    uint64_t session; /* 0: free */
    void *user;       /* the game's pointer, or NULL */
    unsigned payload_bytes_max; /* of a player of netcode; 0: that it is one is not known */
};

struct rg_backend {
    struct rg__link links[RG_WORKERS_MAX];
    unsigned links_len; /* those before it have a ring */
    unsigned workers;   /* as the latest welcome says */
    int is_closed;      /* nobody new is to be sent here */
    int epoll;
    int timer;
    int unread; /* readable for those who poll, while records wait in the inbox */
    int is_polled;       /* rg_fd was called; until then `unread` is not needed */
    int is_unread_shown; /* `unread` is readable */
    struct epoll_event ready[RG__TOKENS];
    int ready_seen;
    int ready_len;
    int is_in_turn;
    int reading; /* the link that is read until it has nothing more; -1: none */
    unsigned bundles_left;
    size_t inbox_at;
    size_t inbox_len;
    int is_retry_armed;
    int64_t backoff_ns;
    int64_t spin_ns;
    int64_t batch_delay_ns; /* 0: never */
    int is_delay_chosen;    /* by the game, whatever the gateway says */
    int is_delay_told;      /* the gateway has said how long both may wait together */
    int64_t told_ns;
    int64_t sleep_cost_ns;     /* what a sleep costs this thread, as it was of late; 0: not known */
    uint64_t sleeps_measured;
    unsigned sleeps_unmeasured; /* before the next one that is measured */
    int64_t noted_ns;       /* when bundles were last counted */
    int64_t passed_ns;      /* time, and bundles in it in thousandths; forgotten by eighths */
    int64_t passed_bundles;
    int64_t bundles; /* since noted_ns */
    int gathers;     /* bundles follow each other closely enough */
    int is_on_time;  /* the kernel was asked to end this thread's sleeps on time */
    unsigned queue_bundles;
    struct rg_stats stats;
    struct rg__user *users; /* open addressing; `users_room` is a power of two or 0 */
    size_t users_room;
    size_t users_len;
    size_t pointers_len;   /* users that the game has given a pointer */
    size_t delivering_len; /* users who get messages */
    int lost;            /* the worker whose users are forgotten with the next event; -1: none */
    uint64_t closed;     /* the session whose user is forgotten then; 0: none */
    int registration;    /* the connection to the announce socket; -1: none */
    uint8_t *announcement; /* the record that is said there; NULL: nothing was said */
    size_t announcement_len;
    int is_announcement_due; /* the latest was not said */
    enum rg_standing standing;
    uint64_t instance; /* which start of the process it is */
    char name[RG_NAME_BYTES_MAX + 1];
    char run_dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uint8_t inbox[RG_BUNDLE_BYTES_MAX + 1]; /* one byte more, so that a datagram too long shows */
};

/* Numbers in records: little-endian, unaligned. */

static void rg__put(uint8_t *at, uint64_t value, unsigned bytes) {
    unsigned n;
    for (n = 0; n < bytes; n++)
        at[n] = (uint8_t)(value >> (8 * n));
}

static uint64_t rg__get(const uint8_t *at, unsigned bytes) {
    uint64_t value = 0;
    unsigned n;
    for (n = 0; n < bytes; n++)
        value |= (uint64_t)at[n] << (8 * n);
    return value;
}

static void rg__put_header(uint8_t *record, size_t record_bytes, unsigned kind) {
    rg__put(record, record_bytes, 2);
    record[2] = (uint8_t)kind;
    record[3] = 0;
}

static int rg__is_name(const uint8_t *name, size_t len) {
    size_t n;
    for (n = 0; n < len; n++)
        if (name[n] < 0x21 || name[n] > 0x7e)
            return 0;
    return len >= 1 && len <= RG_NAME_BYTES_MAX;
}

/* A number that this version has no name for is `other`, 0. */
static unsigned rg__known(unsigned number, unsigned last) { return number <= last ? number : 0; }

static int64_t rg__clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t rg__now_ns(void) { return rg__clock_ns(CLOCK_MONOTONIC); }

/* A number that no other start of a process has. */
static uint64_t rg__instance(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec) *
               UINT64_C(0x9e3779b97f4a7c15) ^
           (uint64_t)getpid();
}

static struct timespec rg__timespec(int64_t ns) {
    struct timespec time;
    time.tv_sec = (time_t)(ns / INT64_C(1000000000));
    time.tv_nsec = (long)(ns % INT64_C(1000000000));
    return time;
}

/* The queue of a link. */

/* Room for a record at the end of the queue, with its header written; NULL: none. */
static uint8_t *rg__reserve(const rg_backend *backend, struct rg__link *link, size_t record_bytes,
                            unsigned kind, uint64_t payloads) {
    struct rg__bundle *bundle = NULL;
    uint8_t *record;
    if (link->bundles_len > 0) {
        bundle = &link->bundles[(link->first + link->bundles_len - 1) % backend->queue_bundles];
        if (record_bytes > RG_BUNDLE_BYTES_MAX - bundle->len)
            bundle = NULL;
    }
    if (bundle == NULL) {
        if (link->bundles_len == backend->queue_bundles)
            return NULL;
        bundle = &link->bundles[(link->first + link->bundles_len) % backend->queue_bundles];
        bundle->len = 0;
        bundle->payloads = 0;
        link->bundles_len++;
    }
    record = bundle->bytes + bundle->len;
    rg__put_header(record, record_bytes, kind);
    bundle->len += record_bytes;
    bundle->payloads += payloads;
    return record;
}

static void rg__put_close(uint8_t *record, uint64_t session, unsigned reason) {
    rg__put(record + 4, session, 8);
    record[12] = (uint8_t)reason;
}

/* Moves late closes to the room that a sent bundle has left. */
static void rg__take_late(const rg_backend *backend, struct rg__link *link) {
    size_t taken = 0;
    while (taken < link->late_len) {
        const uint8_t *late = link->late + taken;
        size_t len = (size_t)rg__get(late, 2);
        uint8_t *record = rg__reserve(backend, link, len, late[2], 0);
        if (record == NULL)
            break;
        memcpy(record, late, len);
        taken += len;
    }
    link->late_len -= taken;
    if (taken > 0 && link->late_len > 0)
        memmove(link->late, link->late + taken, link->late_len);
}

/* Room for a record among those that wait for it, with its header written. NULL: no memory. */
static uint8_t *rg__keep_late(struct rg__link *link, size_t record_bytes, unsigned kind) {
    uint8_t *record;
    if (link->late_room - link->late_len < record_bytes) {
        size_t room = link->late_room > 0 ? link->late_room : 64 * RG__CLOSE_BYTES;
        uint8_t *late;
        while (room - link->late_len < record_bytes)
            room *= 2;
        late = (uint8_t *)realloc(link->late, room);
        if (late == NULL)
            return NULL;
        link->late = late;
        link->late_room = room;
    }
    record = link->late + link->late_len;
    rg__put_header(record, record_bytes, kind);
    link->late_len += record_bytes;
    return record;
}

/* Room for a record that must arrive, with its header written. NULL: no memory. */
static uint8_t *rg__push_late(const rg_backend *backend, struct rg__link *link,
                              size_t record_bytes, unsigned kind) {
    uint8_t *record = NULL;
    if (link->late_len == 0)
        record = rg__reserve(backend, link, record_bytes, kind, 0);
    return record != NULL ? record : rg__keep_late(link, record_bytes, kind);
}

/* Sends what waits, as far as the kernel has room. */
static void rg__flush_link(rg_backend *backend, struct rg__link *link) {
    while (link->fd >= 0 && !link->is_send_broken && link->bundles_len > 0) {
        struct rg__bundle *bundle = &link->bundles[link->first];
        if (send(link->fd, bundle->bytes, bundle->len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR)
                return;
            /* Whatever it was, reading now comes to an end, and with it the link. */
            shutdown(link->fd, SHUT_RDWR);
            link->is_send_broken = 1;
            return;
        }
        backend->stats.payloads_sent += bundle->payloads;
        backend->stats.bundles_sent++;
        link->first = (link->first + 1) % backend->queue_bundles;
        link->bundles_len--;
        rg__take_late(backend, link);
    }
}

/* Has epoll wake us when there is room for what a flush has left. */
static void rg__watch_for_room(rg_backend *backend, struct rg__link *link) {
    int wanted = link->bundles_len > 0 && !link->is_send_broken;
    if (link->fd >= 0 && wanted != link->is_watched_for_room) {
        struct epoll_event event;
        memset(&event, 0, sizeof event);
        event.events = wanted ? (uint32_t)(EPOLLIN | EPOLLOUT) : (uint32_t)EPOLLIN;
        event.data.u64 = (uint64_t)(link - backend->links);
        epoll_ctl(backend->epoll, EPOLL_CTL_MOD, link->fd, &event);
        link->is_watched_for_room = wanted;
    }
}

/* Room for a record with payloads. When the queue is full, it makes room by sending. */
static uint8_t *rg__push(rg_backend *backend, struct rg__link *link, size_t record_bytes,
                         unsigned kind, uint64_t payloads) {
    uint8_t *record = NULL;
    if (link->late_len == 0)
        record = rg__reserve(backend, link, record_bytes, kind, payloads);
    if (record == NULL) {
        rg__flush_link(backend, link);
        if (link->late_len == 0)
            record = rg__reserve(backend, link, record_bytes, kind, payloads);
    }
    if (record != NULL)
        backend->stats.payloads_taken += payloads;
    else
        backend->stats.payloads_link_full += payloads;
    return record;
}

static int rg__is_link_up(const struct rg__link *link) {
    return link->fd >= 0 && link->is_welcomed && !link->is_send_broken;
}

static struct rg__link *rg__link_of(rg_backend *backend, uint64_t session) {
    unsigned worker = rg_worker(session);
    if (session == 0 || worker >= backend->links_len || !rg__is_link_up(&backend->links[worker]))
        return NULL;
    return &backend->links[worker];
}

/* Connecting. */

static int rg__watch(rg_backend *backend, int fd, unsigned token) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.u64 = token;
    return epoll_ctl(backend->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Closes what epoll watches, if it is open. Where a child that was forked has it too, it would stay
   open and in the set, ready for ever. */
static void rg__close(const rg_backend *backend, int *fd) {
    if (*fd >= 0) {
        shutdown(*fd, SHUT_RDWR);
        epoll_ctl(backend->epoll, EPOLL_CTL_DEL, *fd, NULL);
        close(*fd);
    }
    *fd = -1;
}

/* Connects and says hello. A local socket connects at once or not at all. */
static int rg__open_link(rg_backend *backend, unsigned worker) {
    uint8_t hello[RG__HEADER_BYTES + 6 + RG_NAME_BYTES_MAX];
    size_t name_len = strlen(backend->name);
    size_t hello_len = RG__HEADER_BYTES + 6 + name_len;
    struct sockaddr_un address;
    int fd, len;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    len = snprintf(address.sun_path, sizeof address.sun_path, "%s/worker-%u.sock", backend->run_dir,
                   worker);
    if (len < 0 || (size_t)len >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    rg__put_header(hello, hello_len, RG__HELLO);
    rg__put(hello + 4, RG_VERSION_MIN, 2);
    rg__put(hello + 6, (uint64_t)getpid(), 3);
    hello[9] = RG_VERSION_MAX;
    memcpy(hello + 10, backend->name, name_len);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    /* A gateway that does not let us in may have said so and hung up by now: that is read. */
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        (send(fd, hello, hello_len, MSG_NOSIGNAL) < 0 && errno != EPIPE) ||
        rg__watch(backend, fd, worker) < 0) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    backend->links[worker].fd = fd;
    return 0;
}

/* Has the timer open what is down. Each time without a welcome in between takes twice as long. */
static void rg__retry_later(rg_backend *backend) {
    struct itimerspec once;
    if (backend->is_retry_armed)
        return;
    memset(&once, 0, sizeof once);
    once.it_value = rg__timespec(backend->backoff_ns);
    timerfd_settime(backend->timer, 0, &once, NULL);
    backend->is_retry_armed = 1;
    backend->backoff_ns *= 2;
    if (backend->backoff_ns > RG__BACKOFF_NS_MAX)
        backend->backoff_ns = RG__BACKOFF_NS_MAX;
}

/* Registering: a connection of its own, because the workers know nobody of this name before. */

static void rg__close_registration(rg_backend *backend) {
    rg__close(backend, &backend->registration);
    /* Whoever refuses hangs up, and what it has said last still holds. */
    if (backend->standing == RG_STANDING_REGISTERED)
        backend->standing = RG_STANDING_WAITING;
}

static int rg__connect_registration(rg_backend *backend) {
    struct sockaddr_un address;
    int fd, len;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    len = snprintf(address.sun_path, sizeof address.sun_path, "%s/announce.sock", backend->run_dir);
    if (len < 0 || (size_t)len >= sizeof address.sun_path)
        return -1;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        rg__watch(backend, fd, RG__REGISTRATION) < 0) {
        close(fd);
        return -1;
    }
    backend->registration = fd;
    backend->is_announcement_due = 1;
    return 0;
}

static void rg__hear_registration(rg_backend *backend);

/* Says what is due, over a new connection where there is none. */
static void rg__register(rg_backend *backend) {
    if (backend->announcement == NULL)
        return;
    if (backend->registration < 0 && rg__connect_registration(backend) < 0) {
        rg__retry_later(backend);
        return;
    }
    if (!backend->is_announcement_due)
        return;
    if (send(backend->registration, backend->announcement, backend->announcement_len,
             MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
        backend->is_announcement_due = 0;
        return;
    }
    /* One that does not read fast enough is told the latest, later. What one that has hung up has
       said before still holds. */
    if (errno != EAGAIN && errno != EINTR) {
        rg__hear_registration(backend);
        rg__close_registration(backend);
    }
    rg__retry_later(backend);
}

/* Reads what the gateway has answered. */
static void rg__hear_registration(rg_backend *backend) {
    uint8_t answer[64];
    ssize_t len;
    while (backend->registration >= 0) {
        len = recv(backend->registration, answer, sizeof answer, MSG_DONTWAIT);
        /* As on a link: what a gateway has said that did not read us comes after the error. */
        if (len < 0 && (errno == ECONNRESET || errno == EINTR))
            continue;
        if (len < 0 && errno == EAGAIN)
            return;
        if (len <= 0) {
            rg__close_registration(backend);
            rg__retry_later(backend);
            return;
        }
        if (len < RG__HEADER_BYTES + 3 || rg__get(answer, 2) != (uint64_t)len ||
            answer[2] != RG__STANDING || answer[3] != 0 || rg__get(answer + 4, 2) == 0)
            continue;
        if (answer[6] == RG_STANDING_REGISTERED && backend->standing != RG_STANDING_REGISTERED)
            backend->backoff_ns = RG__BACKOFF_NS_MIN; /* its workers hear of us now */
        backend->standing = answer[6] <= RG_STANDING_INVALID ? (enum rg_standing)answer[6]
                                                             : RG_STANDING_REFUSED;
    }
}

/* Letters, digits, '.', '_' and '-', beginning with a letter or a digit. 0: not, else its length. */
static size_t rg__label_len(const char *text, size_t len_max) {
    size_t len;
    if (text == NULL)
        return 0;
    for (len = 0; text[len] != '\0'; len++) {
        char byte = text[len];
        int is_inner = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9');
        if (len == len_max || (!is_inner && (len == 0 || strchr("._-", byte) == NULL)))
            return 0;
    }
    return len;
}

/* Whether bytes are UTF-8 without control characters, as far as the gateway looks. */
static int rg__is_value(const uint8_t *text, size_t len) {
    size_t at = 0, more, n;
    while (at < len) {
        uint32_t point = text[at++], least;
        if (point < 0x80) {
            if (point < 0x20 || point == 0x7f)
                return 0;
            continue;
        }
        more = point >= 0xf0 ? 3 : point >= 0xe0 ? 2 : 1;
        least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
        if (point < 0xc2 || point > 0xf4 || len - at < more)
            return 0;
        point &= 0x3fU >> more;
        for (n = 0; n < more; n++, at++) {
            if ((text[at] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (uint32_t)(text[at] & 0x3f);
        }
        if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff) ||
            point < 0xa0)
            return 0;
    }
    return 1;
}

static uint8_t *rg__put_text(uint8_t *at, const char *text, size_t len) {
    *at++ = (uint8_t)len;
    memcpy(at, text, len);
    return at + len;
}

/* A label, of those that are so many bytes apart. */
static struct rg_label rg__label(const struct rg_announcement *what, size_t label_bytes, size_t n) {
    struct rg_label label;
    memset(&label, 0, sizeof label);
    memcpy(&label, (const uint8_t *)(const void *)what->labels + n * label_bytes,
           label_bytes < sizeof label ? label_bytes : sizeof label);
    return label;
}

/* How long the record of an announcement is; 0 for one that cannot be said. */
static size_t rg__announcement_len(const rg_backend *backend, const struct rg_announcement *what,
                                   size_t label_bytes) {
    size_t name_len = rg__label_len(backend->name, RG__ANNOUNCE_NAME_BYTES_MAX);
    size_t group_len = rg__label_len(what->group, RG__LABEL_NAME_BYTES_MAX);
    size_t len = RG__ANNOUNCE_HEAD_BYTES + 1 + name_len + 1 + group_len, n, other;
    if (name_len == 0 || group_len == 0 || what->slots < 1 || what->slots > RG__SLOTS_MAX ||
        (unsigned)what->state > RG_STATE_DRAINING || what->labels_len > RG__LABELS_MAX ||
        (what->labels == NULL && what->labels_len > 0) ||
        (what->counts_players && what->players == UINT32_MAX))
        return 0;
    for (n = 0; n < what->labels_len; n++) {
        struct rg_label label = rg__label(what, label_bytes, n);
        size_t label_len = rg__label_len(label.name, RG__LABEL_NAME_BYTES_MAX), value_len;
        if (label_len == 0 || label.value == NULL)
            return 0;
        value_len = strlen(label.value);
        if (value_len > RG__LABEL_VALUE_BYTES_MAX ||
            !rg__is_value((const uint8_t *)label.value, value_len))
            return 0;
        for (other = 0; other < n; other++)
            if (strcmp(rg__label(what, label_bytes, other).name, label.name) == 0)
                return 0;
        len += 1 + label_len + 1 + value_len;
    }
    return len;
}

int rg_announce_sized(rg_backend *backend, const struct rg_announcement *given,
                      size_t announcement_bytes) {
    return rg_announce_labelled(backend, given, announcement_bytes, 2 * sizeof(const char *));
}

int rg_announce_labelled(rg_backend *backend, const struct rg_announcement *given,
                         size_t announcement_bytes, size_t label_bytes) {
    struct rg_announcement what;
    uint8_t *record, *at;
    size_t len, n;
    memset(&what, 0, sizeof what);
    if (given != NULL)
        memcpy(&what, given, announcement_bytes < sizeof what ? announcement_bytes : sizeof what);
    len = backend == NULL ? 0 : rg__announcement_len(backend, &what, label_bytes);
    if (len == 0) {
        errno = EINVAL;
        return -1;
    }
    record = (uint8_t *)malloc(len);
    if (record == NULL)
        return -1;
    rg__put_header(record, len, RG__ANNOUNCE);
    rg__put(record + 4, RG__ANNOUNCE_VERSION, 2);
    record[6] = (uint8_t)what.state;
    record[7] = (uint8_t)what.labels_len;
    rg__put(record + 8, what.slots, 4);
    rg__put(record + 12, what.counts_players ? what.players : UINT32_MAX, 4);
    rg__put(record + 16, backend->instance, 8);
    at = rg__put_text(record + RG__ANNOUNCE_HEAD_BYTES, backend->name, strlen(backend->name));
    at = rg__put_text(at, what.group, strlen(what.group));
    for (n = 0; n < what.labels_len; n++) {
        struct rg_label label = rg__label(&what, label_bytes, n);
        at = rg__put_text(at, label.name, strlen(label.name));
        at = rg__put_text(at, label.value, strlen(label.value));
    }
    if (len == backend->announcement_len && memcmp(record, backend->announcement, len) == 0) {
        free(record);
    } else {
        free(backend->announcement);
        backend->announcement = record;
        backend->announcement_len = len;
        backend->is_announcement_due = 1;
    }
    rg__register(backend);
    return 0;
}

enum rg_standing rg_standing(const rg_backend *backend) {
    return backend == NULL ? RG_STANDING_WAITING : backend->standing;
}

static int rg__add_link(rg_backend *backend) {
    struct rg__link *link = &backend->links[backend->links_len];
    memset(link, 0, sizeof *link);
    link->fd = -1;
    link->bundles =
        (struct rg__bundle *)calloc(backend->queue_bundles, sizeof *link->bundles);
    if (link->bundles == NULL)
        return -1;
    backend->links_len++;
    return 0;
}

/* Opens every link that should be there and is not. */
static void rg__open_links(rg_backend *backend) {
    unsigned worker;
    for (worker = 0; worker < backend->workers; worker++) {
        if (worker == backend->links_len && rg__add_link(backend) < 0) {
            rg__retry_later(backend);
            return;
        }
        if (backend->links[worker].fd < 0 && rg__open_link(backend, worker) < 0)
            rg__retry_later(backend);
    }
}

rg_backend *rg_connect(const char *run_dir, const char *name) {
    struct rg_options options;
    memset(&options, 0, sizeof options);
    options.run_dir = run_dir;
    options.name = name;
    return rg_connect_with(&options);
}

static int rg__start(rg_backend *backend, int may_start_alone) {
    backend->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (backend->epoll < 0)
        return -1;
    backend->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (backend->timer < 0 || rg__watch(backend, backend->timer, RG__TIMER) < 0)
        return -1;
    backend->unread = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (backend->unread < 0 || rg__watch(backend, backend->unread, RG__UNREAD) < 0)
        return -1;
    if (rg__add_link(backend) < 0)
        return -1;
    if (may_start_alone)
        rg__open_links(backend);
    else if (rg__open_link(backend, 0) < 0) {
        if (errno != EAGAIN)
            return -1;
        rg__retry_later(backend); /* it listens, and many others connect as well */
    }
    return 0;
}

rg_backend *rg_connect_sized(const struct rg_options *given, size_t options_bytes) {
    struct rg_options all, *options = &all;
    size_t run_dir_len, name_len;
    rg_backend *backend;
    memset(options, 0, sizeof *options);
    if (given != NULL)
        memcpy(options, given, options_bytes < sizeof *options ? options_bytes : sizeof *options);
    if (options->run_dir == NULL || options->name == NULL) {
        errno = EINVAL;
        return NULL;
    }
    run_dir_len = strlen(options->run_dir);
    name_len = strlen(options->name);
    if (!rg__is_name((const uint8_t *)options->name, name_len) ||
        run_dir_len >= sizeof backend->run_dir) {
        errno = EINVAL;
        return NULL;
    }
    backend = (rg_backend *)calloc(1, sizeof *backend);
    if (backend == NULL)
        return NULL;
    memcpy(backend->run_dir, options->run_dir, run_dir_len);
    memcpy(backend->name, options->name, name_len);
    backend->spin_ns = options->spin_ns;
    if (options->batch_delay_ns >= 0 && options->spin_ns <= 0)
        backend->batch_delay_ns =
            options->batch_delay_ns == 0 ? RG__BATCH_DELAY_NS : options->batch_delay_ns;
    backend->is_delay_chosen = options->batch_delay_ns != 0 || options->spin_ns > 0;
    backend->queue_bundles =
        options->queue_bundles == 0 ? (unsigned)RG__QUEUE_BUNDLES : options->queue_bundles;
    if (backend->queue_bundles < RG__QUEUE_BUNDLES_MIN)
        backend->queue_bundles = RG__QUEUE_BUNDLES_MIN;
    backend->registration = -1;
    backend->instance = rg__instance();
    backend->epoll = -1;
    backend->timer = -1;
    backend->unread = -1;
    backend->reading = -1;
    backend->lost = -1;
    backend->workers = 1;
    backend->backoff_ns = RG__BACKOFF_NS_MIN;
    if (rg__start(backend, options->may_start_alone) < 0) {
        int why = errno;
        rg_free(backend);
        errno = why;
        return NULL;
    }
    return backend;
}

void rg_free(rg_backend *backend) {
    unsigned worker;
    if (backend == NULL)
        return;
    for (worker = 0; worker < backend->links_len; worker++) {
        struct rg__link *link = &backend->links[worker];
        if (link->fd >= 0)
            close(link->fd);
        free(link->bundles);
        free(link->late);
        free(link->message);
        link->bundles = NULL; /* for analysers, which take one link for another */
        link->late = NULL;
        link->message = NULL;
    }
    free(backend->announcement);
    if (backend->registration >= 0)
        close(backend->registration);
    if (backend->timer >= 0)
        close(backend->timer);
    if (backend->unread >= 0)
        close(backend->unread);
    if (backend->epoll >= 0)
        close(backend->epoll);
    free(backend->users);
    free(backend);
}

/* Waiting. */

/* Looks what is ready, unless something from the last look is still left. */
static int rg__look(rg_backend *backend) {
    int found;
    if (backend->ready_seen < backend->ready_len || backend->reading >= 0)
        return 1;
    backend->ready_seen = 0;
    backend->ready_len = 0;
    found = epoll_wait(backend->epoll, backend->ready, RG__TOKENS, 0);
    if (found < 0)
        return errno == EINTR ? 0 : -1;
    backend->ready_len = found;
    return found > 0;
}

/* Before a sleep, and after it: what it costs in processor time is measured of the first 16, then
   of one in 16. */
static int64_t rg__before_sleep(rg_backend *backend) {
    if (backend->sleeps_unmeasured > 0) {
        backend->sleeps_unmeasured--;
        return -1;
    }
    return rg__clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void rg__after_sleep(rg_backend *backend, int64_t before_ns) {
    int64_t known_ns = backend->sleep_cost_ns, cost_ns;
    if (before_ns < 0)
        return;
    cost_ns = rg__clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    if (known_ns > 0 && cost_ns > 4 * known_ns)
        cost_ns = 4 * known_ns; /* the kernel did other work on our bill */
    backend->sleep_cost_ns = known_ns > 0 ? known_ns - known_ns / 8 + cost_ns / 8 : cost_ns;
    if (++backend->sleeps_measured >= RG__SLEEPS_AT_FIRST)
        backend->sleeps_unmeasured = RG__SLEEPS_AT_FIRST - 1;
}

/* How long it may wait where the workers together send a bundle in so many nanoseconds: as long as
   that takes each of them, payloads may have waited there. */
static int64_t rg__longest_ns(const rg_backend *backend, int64_t gap_ns) {
    int64_t worth_ns = RG__SLEEP_SHARE * backend->sleep_cost_ns, left_ns;
    if (backend->is_delay_chosen || !backend->is_delay_told)
        return backend->batch_delay_ns;
    if (backend->workers == 1)
        return 0;
    if (worth_ns < RG__BATCH_DELAY_NS)
        worth_ns = RG__BATCH_DELAY_NS;
    left_ns = backend->told_ns - gap_ns * (int64_t)backend->workers;
    if (left_ns > worth_ns)
        return worth_ns;
    return left_ns > 0 ? left_ns : 0;
}

/* How long to sleep before the next look, after the bundles that came since the last call. */
static int64_t rg__delay_ns(rg_backend *backend, int64_t now_ns) {
    int64_t passed_ns = now_ns - backend->noted_ns, bundles = backend->bundles, gap_ns, worth;
    int64_t longest_ns;
    if (bundles == 0)
        return 0;
    if (passed_ns > RG__PASSED_NS_MAX)
        passed_ns = RG__PASSED_NS_MAX;
    backend->passed_ns = backend->passed_ns / 8 * 7 + passed_ns;
    backend->passed_bundles = backend->passed_bundles / 8 * 7 + 1000 * bundles;
    backend->noted_ns = now_ns;
    backend->bundles = 0;
    gap_ns = 1000 * backend->passed_ns / backend->passed_bundles;
    worth = backend->gathers ? RG__WORTH_GOING_ON : RG__WORTH_BEGINNING;
    longest_ns = rg__longest_ns(backend, gap_ns);
    backend->gathers = 2 * longest_ns > worth * gap_ns;
    if (!backend->gathers || bundles >= RG__FULL)
        return 0;
    gap_ns *= RG__GATHERED;
    return gap_ns < longest_ns ? gap_ns : longest_ns;
}

/* Sleeps with nobody to wake us, so that one look takes more. */
static void rg__gather(rg_backend *backend, int64_t delay_ns) {
    struct timespec delay = rg__timespec(delay_ns);
    int64_t before_ns;
    if (delay_ns <= 0)
        return;
    if (!backend->is_on_time) {
        backend->is_on_time = 1;
        (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    }
    before_ns = rg__before_sleep(backend);
    (void)nanosleep(&delay, NULL);
    rg__after_sleep(backend, before_ns);
}

/* Below 0: as long as it takes. */
static int rg__wait(rg_backend *backend, int64_t timeout_ns) {
    int64_t start_ns, waited_ns, delay_ns, spin_ns, before_ns;
    int slept;
    struct timespec left;
    struct pollfd set;
    if (backend == NULL) {
        errno = EINVAL;
        return -1;
    }
    spin_ns = backend->spin_ns;
    rg_flush(backend);
    if (timeout_ns >= 0 && timeout_ns < spin_ns)
        spin_ns = timeout_ns;
    start_ns = rg__now_ns();
    delay_ns = rg__delay_ns(backend, start_ns);
    rg__gather(backend, timeout_ns >= 0 && timeout_ns < delay_ns ? timeout_ns : delay_ns);
    do {
        int found = rg__look(backend);
        if (found != 0)
            return found;
        waited_ns = rg__now_ns() - start_ns;
    } while (waited_ns < spin_ns);
    left = rg__timespec(timeout_ns > waited_ns ? timeout_ns - waited_ns : 0);
    set.fd = backend->epoll;
    set.events = POLLIN;
    set.revents = 0;
    before_ns = rg__before_sleep(backend);
    slept = ppoll(&set, 1, timeout_ns < 0 ? NULL : &left, NULL);
    if (slept < 0 && errno != EINTR)
        return -1;
    rg__after_sleep(backend, before_ns);
    return rg__look(backend);
}

int rg_wait_for(rg_backend *backend, int64_t timeout_ns) {
    return rg__wait(backend, timeout_ns < 0 ? 0 : timeout_ns);
}

int rg_wait_forever(rg_backend *backend) { return rg__wait(backend, -1); }

int rg_wait(rg_backend *backend, int64_t timeout_ns) {
    return timeout_ns == -1 ? rg_wait_forever(backend) : rg_wait_for(backend, timeout_ns);
}

/* Has the descriptor of rg_fd be readable, or not, because of records in the inbox: the kernel has
   handed those over, so it does not know of them. Costs nothing where the game does not poll. */
static void rg__show_unread(rg_backend *backend, int is_shown) {
    uint64_t count = 1;
    ssize_t ignored;
    if (!backend->is_polled || backend->is_unread_shown == is_shown)
        return;
    backend->is_unread_shown = is_shown;
    ignored = is_shown ? write(backend->unread, &count, sizeof count)
                       : read(backend->unread, &count, sizeof count);
    (void)ignored;
}

int rg_fd(const rg_backend *backend) {
    /* Every backend was made by rg_connect_with, and none of those is const. */
    rg_backend *own = (rg_backend *)backend;
    if (backend == NULL) {
        errno = EINVAL;
        return -1;
    }
    own->is_polled = 1;
    if (own->inbox_at < own->inbox_len)
        rg__show_unread(own, 1);
    return own->epoll;
}

/* Receiving. */

static int rg__lose(rg_backend *backend, unsigned worker, unsigned reason, unsigned error,
                    struct rg_event *event) {
    struct rg__link *link = &backend->links[worker];
    uint64_t unsent = 0;
    unsigned n;
    for (n = 0; n < link->bundles_len; n++)
        unsent += link->bundles[(link->first + n) % backend->queue_bundles].payloads;
    link->bundles_len = 0;
    link->late_len = 0;
    link->message_session = 0;
    rg__close(backend, &link->fd);
    link->is_welcomed = 0;
    link->is_send_broken = 0;
    link->is_watched_for_room = 0;
    link->is_told_closed = 0;
    backend->stats.payloads_lost += unsent;
    backend->inbox_at = backend->inbox_len = 0;
    backend->reading = -1;
    rg__retry_later(backend);
    event->kind = RG_LINK_LOST;
    event->reason = reason;
    event->error = error;
    event->payloads_unsent = unsent;
    return 1;
}

static unsigned rg__read_welcome(rg_backend *backend, unsigned worker, const uint8_t *body,
                                 struct rg_event *event) {
    unsigned version = (unsigned)rg__get(body, 2);
    unsigned named = (unsigned)rg__get(body + 2, 2);
    unsigned workers = (unsigned)rg__get(body + 4, 2);
    if (named >= workers || workers > RG_WORKERS_MAX)
        return RG_ERROR_WORKER_INVALID;
    if (version < RG_VERSION_MIN || version > RG_VERSION_MAX) {
        rg__lose(backend, worker, RG_LOSS_VERSION_UNSUPPORTED, version, event);
        return RG_ERROR_NONE;
    }
    if (named != worker)
        return RG_ERROR_WORKER_INVALID;
    if (backend->links[worker].is_welcomed) {
        rg__lose(backend, worker, RG_LOSS_WELCOME_EXPECTED, 0, event);
        return RG_ERROR_NONE;
    }
    backend->links[worker].is_welcomed = 1;
    backend->links[worker].version = version;
    backend->workers = workers;
    backend->backoff_ns = RG__BACKOFF_NS_MIN;
    rg__open_links(backend);
    event->kind = RG_LINK_UP;
    event->workers = workers;
    event->version = version;
    event->incarnation = rg__get(body + 6, 8);
    return RG_ERROR_NONE;
}

static void rg__note_opened(rg_backend *backend, uint64_t session, int delivers);

static unsigned rg__read_opened(rg_backend *backend, unsigned flags, const uint8_t *body,
                                size_t len, struct rg_event *event) {
    size_t fixed_len = 46 + RG_USER_DATA_BYTES + (flags & RG__MOVED_IN ? 8 : 0), name_len;
    if (len < 8)
        return RG_ERROR_BODY_LENGTH;
    event->session = rg__get(body, 8);
    if (event->session == 0)
        return RG_ERROR_SESSION_ZERO;
    if (len < fixed_len)
        return RG_ERROR_BODY_LENGTH;
    name_len = len - fixed_len;
    if (!rg__is_name(body + fixed_len, name_len))
        return RG_ERROR_NAME_INVALID;
    event->kind = RG_OPENED;
    event->client_id = rg__get(body + 8, 8);
    event->slot = (uint32_t)rg__get(body + 16, 4);
    event->slots_max = (uint32_t)rg__get(body + 20, 4);
    event->ip = body + 24;
    event->scope = (uint32_t)rg__get(body + 40, 4);
    event->port = (uint16_t)rg__get(body + 44, 2);
    event->user_data = body + 46;
    memcpy(event->listener, body + fixed_len, name_len);
    event->listener[name_len] = '\0';
    event->delivers = flags & RG__DELIVERS;
    event->is_moved = (flags & RG__MOVED_IN) != 0;
    event->ticket = event->is_moved ? rg__get(body + 46 + RG_USER_DATA_BYTES, 8) : 0;
    rg__note_opened(backend, event->session, event->delivers);
    return RG_ERROR_NONE;
}

static unsigned rg__read_opened_plain(const uint8_t *body, size_t len, struct rg_event *event) {
    if (len < 8)
        return RG_ERROR_BODY_LENGTH;
    event->session = rg__get(body, 8);
    if (event->session == 0)
        return RG_ERROR_SESSION_ZERO;
    if (len < 38)
        return RG_ERROR_BODY_LENGTH;
    if (!rg__is_name(body + 38, len - 38))
        return RG_ERROR_NAME_INVALID;
    event->kind = RG_OPENED_PLAIN;
    event->slot = (uint32_t)rg__get(body + 8, 4);
    event->slots_max = (uint32_t)rg__get(body + 12, 4);
    event->ip = body + 16;
    event->scope = (uint32_t)rg__get(body + 32, 4);
    event->port = (uint16_t)rg__get(body + 36, 2);
    memcpy(event->listener, body + 38, len - 38);
    event->listener[len - 38] = '\0';
    return RG_ERROR_NONE;
}

/* A payload or a closed: both begin with the session. */
static unsigned rg__read_session(unsigned kind, const uint8_t *body, size_t len,
                                 struct rg_event *event) {
    if (len < 8)
        return RG_ERROR_BODY_LENGTH;
    event->session = rg__get(body, 8);
    if (event->session == 0)
        return RG_ERROR_SESSION_ZERO;
    if (kind == RG__PAYLOAD) {
        if (len - 8 < 1 || len - 8 > RG_LONG_PAYLOAD_BYTES_MAX)
            return RG_ERROR_PAYLOAD_LENGTH;
        event->kind = RG_PAYLOAD;
        event->bytes = body + 8;
        event->bytes_len = len - 8;
        return RG_ERROR_NONE;
    }
    if (len != 9)
        return RG_ERROR_BODY_LENGTH;
    event->kind = RG_CLOSED;
    event->reason = rg__known(body[8], RG_CLOSE_MOVED);
    if (body[8] >= RG_CLOSE_FINISHED)
        event->reason = rg__known(body[8], RG_CLOSE_GAME_SHUTDOWN);
    return RG_ERROR_NONE;
}

/* Adds a part to the message of its link. 1: it is complete. */
static int rg__take_part(struct rg__link *link, const uint8_t *body, size_t len, uint64_t session,
                         unsigned *error) {
    unsigned marks = body[10], channel = (unsigned)rg__get(body + 8, 2);
    *error = RG_ERROR_MESSAGE_MARKS;
    if (marks & RG__FIRST_PART) {
        if (link->message_session != 0)
            return 0;
        link->message_session = session;
        link->message_channel = channel;
        link->message_len = 0;
    }
    if (link->message_session != session || link->message_channel != channel)
        return 0;
    *error = RG_ERROR_MESSAGE_LENGTH;
    if (link->message == NULL)
        link->message = (uint8_t *)malloc(RG_MESSAGE_BYTES_MAX);
    if (link->message == NULL || len > RG_MESSAGE_BYTES_MAX - link->message_len)
        return 0;
    *error = RG_ERROR_NONE;
    memcpy(link->message + link->message_len, body + 19, len);
    link->message_len += len;
    if (!(marks & RG__LAST_PART))
        return 0;
    link->message_session = 0;
    return 1;
}

/* A message, or a part of one: that is no event before the last, and `kind` stays 0. */
static unsigned rg__read_message(struct rg__link *link, const uint8_t *body, size_t len,
                                 struct rg_event *event) {
    unsigned error;
    size_t bytes_len;
    if (len < 8)
        return RG_ERROR_BODY_LENGTH;
    event->session = rg__get(body, 8);
    if (event->session == 0)
        return RG_ERROR_SESSION_ZERO;
    if (len < 19)
        return RG_ERROR_BODY_LENGTH;
    if (body[8] < RG_RELIABLE || body[8] > RG_UNRELIABLE)
        return RG_ERROR_CHANNEL_UNKNOWN;
    if (body[10] > (RG__FIRST_PART | RG__LAST_PART))
        return RG_ERROR_MESSAGE_MARKS;
    bytes_len = len - 19;
    if (bytes_len < 1 || bytes_len > (body[8] == RG_RELIABLE ? (size_t)RG__PART_BYTES_MAX
                                                              : (size_t)RG_SHORT_MESSAGE_BYTES_MAX))
        return RG_ERROR_MESSAGE_LENGTH;
    event->channel_kind = body[8];
    event->channel = body[9];
    /* One that is not reliable comes beside a trunk's stream, and so between the parts of one. */
    if (body[10] == (RG__FIRST_PART | RG__LAST_PART) &&
        (link->message_session == 0 || body[8] != RG_RELIABLE)) {
        event->kind = RG_MESSAGE;
        event->bytes = body + 19;
        event->bytes_len = bytes_len;
        return RG_ERROR_NONE;
    }
    if (body[8] != RG_RELIABLE)
        return RG_ERROR_MESSAGE_MARKS;
    if (rg__take_part(link, body, bytes_len, event->session, &error)) {
        event->kind = RG_MESSAGE;
        event->bytes = link->message;
        event->bytes_len = link->message_len;
    }
    return error;
}

/* What the gateway says about a session and its messages. */
static unsigned rg__read_about(unsigned kind, const uint8_t *body, size_t len,
                               struct rg_event *event) {
    size_t expected = kind == RG__REPORT ? 17 : kind == RG__ROOM ? 13 : 22;
    if (len < 8)
        return RG_ERROR_BODY_LENGTH;
    event->session = rg__get(body, 8);
    if (event->session == 0)
        return RG_ERROR_SESSION_ZERO;
    if (len != expected)
        return RG_ERROR_BODY_LENGTH;
    if (kind == RG__REPORT) {
        event->kind = RG_REPORT;
        event->token = rg__get(body + 8, 8);
        event->is_delivered = body[16] != 0;
    } else if (kind == RG__ROOM) {
        event->kind = RG_ROOM;
        event->is_full = body[8] != 0;
        event->waiting_bytes = (uint32_t)rg__get(body + 9, 4);
    } else {
        event->kind = RG_QUALITY;
        event->round_trip_ns = 1000 * rg__get(body + 8, 4);
        event->variation_ns = 1000 * rg__get(body + 12, 4);
        event->loss_per_mille = (unsigned)rg__get(body + 16, 2);
        event->waiting_bytes = (uint32_t)rg__get(body + 18, 4);
    }
    return RG_ERROR_NONE;
}

/* Bodies of records without a session have one length each; 0: no such kind. */
static size_t rg__body_bytes(unsigned kind) {
    switch (kind) {
    case RG__WELCOME: return 14;
    case RG__PONG: return 8;
    case RG__DRAINING: return 4;
    case RG__GOODBYE: return 2;
    default: return 0;
    }
}

static unsigned rg__read_body(rg_backend *backend, unsigned worker, unsigned kind, unsigned flags,
                              const uint8_t *body, size_t len, struct rg_event *event) {
    if (kind == RG__PAYLOAD || kind == RG__CLOSED || kind == RG__OPENED ||
        (kind >= RG__OPENED_PLAIN && kind <= RG__QUALITY)) {
        if (!backend->links[worker].is_welcomed) {
            rg__lose(backend, worker, RG_LOSS_WELCOME_EXPECTED, 0, event);
            return RG_ERROR_NONE;
        }
        if (kind == RG__OPENED)
            return rg__read_opened(backend, flags, body, len, event);
        if (kind == RG__OPENED_PLAIN)
            return rg__read_opened_plain(body, len, event);
        if (kind == RG__MESSAGE)
            return rg__read_message(&backend->links[worker], body, len, event);
        if (kind > RG__MESSAGE)
            return rg__read_about(kind, body, len, event);
        return rg__read_session(kind, body, len, event);
    }
    if (rg__body_bytes(kind) == 0)
        return RG_ERROR_KIND_UNKNOWN;
    if (rg__body_bytes(kind) != len)
        return RG_ERROR_BODY_LENGTH;
    if (kind == RG__WELCOME)
        return rg__read_welcome(backend, worker, body, event);
    if (kind == RG__GOODBYE) {
        rg__lose(backend, worker, rg__known(body[0], RG_GOODBYE_RECORD_INVALID),
                 rg__known(body[1], RG_ERROR_ANSWER_UNKNOWN), event);
        return RG_ERROR_NONE;
    }
    if (!backend->links[worker].is_welcomed) {
        rg__lose(backend, worker, RG_LOSS_WELCOME_EXPECTED, 0, event);
        return RG_ERROR_NONE;
    }
    if (kind == RG__PONG) {
        event->kind = RG_PONG;
        event->round_trip_ns = (uint64_t)rg__now_ns() - rg__get(body, 8);
    } else {
        event->kind = RG_DRAINING;
        event->left_ms = (uint32_t)rg__get(body, 4);
    }
    return RG_ERROR_NONE;
}

/* What is not exactly this is of a later version, and means something else: no event. */
static int rg__read_lingered(const uint8_t *record, size_t record_bytes, struct rg_event *event) {
    if (record[3] != 0 || record_bytes != RG__LINGERED_BYTES || record[16] > 1 ||
        rg__get(record + 4, 8) == 0)
        return 0;
    event->kind = RG_LINGERED;
    event->session = rg__get(record + 4, 8);
    event->waiting_bytes = (uint32_t)rg__get(record + 12, 4);
    event->is_delivered = record[16];
    return 1;
}

/* Takes a name with its length before it off a record; 0: it is none. */
static size_t rg__take_name(const uint8_t *record, size_t record_bytes, size_t at, char *name) {
    size_t len = at < record_bytes ? record[at] : 0;
    if (len == 0 || at + 1 + len > record_bytes || !rg__is_name(record + at + 1, len))
        return 0;
    memcpy(name, record + at + 1, len);
    name[len] = '\0';
    return at + 1 + len;
}

static int rg__read_offered(const uint8_t *record, size_t record_bytes, struct rg_event *event) {
    const uint8_t *body = record + RG__HEADER_BYTES;
    size_t at = RG__OFFERED_BYTES_MIN;
    if ((record[3] & ~RG__DELIVERS) != 0 || record_bytes < at || rg__get(body, 8) == 0)
        return 0;
    at = rg__take_name(record, record_bytes, at, event->listener);
    at = at == 0 ? 0 : rg__take_name(record, record_bytes, at, event->from);
    if (at == 0 || record_bytes - at > RG_MOVE_BYTES_MAX)
        return 0;
    event->kind = RG_OFFERED;
    event->session = rg__get(body, 8);
    event->offer = rg__get(body + 8, 8);
    event->ticket = rg__get(body + 16, 8);
    event->client_id = rg__get(body + 24, 8);
    event->slot = (uint32_t)rg__get(body + 32, 4);
    event->slots_max = (uint32_t)rg__get(body + 36, 4);
    event->ip = body + 40;
    event->scope = (uint32_t)rg__get(body + 56, 4);
    event->port = (uint16_t)rg__get(body + 60, 2);
    event->left_ms = (uint32_t)rg__get(body + 62, 4);
    event->user_data = body + 66;
    event->delivers = record[3] & RG__DELIVERS;
    event->bytes = record + at;
    event->bytes_len = record_bytes - at;
    return 1;
}

/* What has become of a move. That a player is moved is confirmed with the next flush. */
static int rg__read_move_news(rg_backend *backend, const uint8_t *record, size_t record_bytes,
                              struct rg_event *event) {
    size_t expected = RG__HEADER_BYTES + 16 + (record[2] == RG__MOVED ? 0 : 1);
    if (record[3] != 0 || record_bytes != expected || rg__get(record + 4, 8) == 0)
        return 0;
    event->session = rg__get(record + 4, 8);
    if (record[2] == RG__OFFER_OVER) {
        event->kind = RG_OFFER_OVER;
        event->offer = rg__get(record + 12, 8);
    } else {
        event->kind = record[2] == RG__MOVED ? RG_MOVED : RG_MOVE_REFUSED;
        event->ticket = rg__get(record + 12, 8);
    }
    if (record[2] != RG__MOVED) {
        event->reason = rg__known(record[20], RG_MOVE_SOURCE_GONE);
    } else {
        struct rg__link *link = &backend->links[event->worker];
        uint8_t *confirm = rg__push_late(backend, link, RG__HEADER_BYTES + 8, RG__CONFIRM);
        if (confirm != NULL)
            rg__put(confirm + 4, event->session, 8);
    }
    return 1;
}

/* Takes one record off the datagram. 0: it is no event, being of a later version or a part of a
   message that others follow. */
static int rg__take_record(rg_backend *backend, unsigned worker, struct rg_event *event) {
    const uint8_t *record = backend->inbox + backend->inbox_at;
    size_t left = backend->inbox_len - backend->inbox_at;
    size_t record_bytes = left >= RG__HEADER_BYTES ? (size_t)rg__get(record, 2) : 0;
    unsigned error;
    if (left < RG__HEADER_BYTES)
        error = RG_ERROR_HEADER_TRUNCATED;
    else if (record_bytes < RG__HEADER_BYTES || record_bytes > left)
        error = RG_ERROR_RECORD_LENGTH;
    else if (record[2] >= RG__FIRST_SKIPPABLE && backend->links[worker].is_welcomed) {
        backend->inbox_at += record_bytes;
        if (record[2] == RG__LINGERED)
            return rg__read_lingered(record, record_bytes, event);
        if (record[2] == RG__OFFERED)
            return rg__read_offered(record, record_bytes, event);
        if (record[2] >= RG__OFFER_OVER && record[2] <= RG__MOVE_REFUSED)
            return rg__read_move_news(backend, record, record_bytes, event);
        if (record[2] == RG__PLAYERS) {
            backend->is_delay_told = record_bytes >= RG__PLAYERS_BYTES;
            if (backend->is_delay_told)
                backend->told_ns = 1000 * (int64_t)rg__get(record + 12, 4);
        }
        if (record[2] != RG__UNDRAINED)
            return 0;
        event->kind = RG_UNDRAINED;
        return 1;
    } else if (record[2] >= RG__FIRST_SKIPPABLE)
        return rg__lose(backend, worker, RG_LOSS_WELCOME_EXPECTED, 0, event);
    else if (record[3] != 0 &&
             (record[2] != RG__OPENED || (record[3] & ~(RG__DELIVERS | RG__MOVED_IN)) != 0))
        error = RG_ERROR_FLAGS_UNKNOWN;
    else {
        backend->inbox_at += record_bytes;
        event->kind = (enum rg_event_kind)0;
        error = rg__read_body(backend, worker, record[2], record[3], record + RG__HEADER_BYTES,
                              record_bytes - RG__HEADER_BYTES, event);
    }
    if (error != RG_ERROR_NONE)
        return rg__lose(backend, worker, RG_LOSS_RECORD_INVALID, error, event);
    return event->kind != (enum rg_event_kind)0;
}

/* Reads one datagram. 1: `*event` is set because the link is lost. */
static int rg__receive(rg_backend *backend, unsigned worker, struct rg_event *event) {
    ssize_t len;
    if (backend->bundles_left == 0) {
        backend->reading = -1;
        return 0;
    }
    /* The kernel reports once that the peer closed with our data unread, before it hands out what
       the peer had sent until then: its goodbye, for example. */
    do {
        len = recv(backend->links[worker].fd, backend->inbox, sizeof backend->inbox, MSG_DONTWAIT);
    } while (len < 0 && (errno == ECONNRESET || errno == EINTR));
    if (len > RG_BUNDLE_BYTES_MAX)
        return rg__lose(backend, worker, RG_LOSS_RECORD_INVALID, RG_ERROR_DATAGRAM_TOO_LONG, event);
    if (len > 0) {
        backend->bundles_left--;
        backend->inbox_at = 0;
        backend->inbox_len = (size_t)len;
        backend->bundles++;
        return 0;
    }
    if (len == 0)
        return rg__lose(backend, worker, RG_LOSS_HUNG_UP, 0, event);
    if (errno != EAGAIN)
        return rg__lose(backend, worker, RG_LOSS_FAILED, (unsigned)errno, event);
    backend->reading = -1;
    return 0;
}

static void rg__handle_ready(rg_backend *backend, unsigned token) {
    struct rg__link *link;
    if (token == RG__TIMER) {
        uint64_t expirations;
        ssize_t ignored = read(backend->timer, &expirations, sizeof expirations);
        (void)ignored;
        backend->is_retry_armed = 0;
        rg__open_links(backend);
        rg__register(backend);
        return;
    }
    if (token == RG__REGISTRATION) {
        rg__hear_registration(backend);
        return;
    }
    if (token == RG__UNREAD)
        return;
    link = &backend->links[token];
    if (link->fd < 0)
        return;
    /* Not otherwise: the answers to this turn leave together. */
    if (link->is_watched_for_room) {
        rg__flush_link(backend, link);
        rg__watch_for_room(backend, link);
    }
    backend->reading = (int)token;
    backend->bundles_left = RG__TURN_BUNDLES_MAX;
}

/* 1: `*event` is set, 0: the turn is over. */
static int rg__step(rg_backend *backend, struct rg_event *event) {
    int is_set;
    for (;;) {
        if (backend->reading >= 0) {
            event->worker = (unsigned)backend->reading;
            is_set = backend->inbox_at < backend->inbox_len
                         ? rg__take_record(backend, event->worker, event)
                         : rg__receive(backend, event->worker, event);
            if (is_set)
                return 1;
        } else if (backend->ready_seen < backend->ready_len) {
            rg__handle_ready(backend, (unsigned)backend->ready[backend->ready_seen++].data.u64);
        } else {
            backend->is_in_turn = 0;
            return 0;
        }
    }
}

/* What is known of sessions: a table that is at most half full, with linear probing. */

static size_t rg__user_home(const rg_backend *backend, uint64_t session) {
    return (size_t)((session * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (backend->users_room - 1);
}

/* Where a session stands, or the free place where it would. */
static size_t rg__user_at(const rg_backend *backend, uint64_t session) {
    size_t at = rg__user_home(backend, session);
    while (backend->users[at].session != 0 && backend->users[at].session != session)
        at = (at + 1) & (backend->users_room - 1);
    return at;
}

/* 1 or 0, to be counted: the player gets messages. */
static size_t rg__delivers(const struct rg__user *user) {
    return user->payload_bytes_max == RG_SHORT_MESSAGE_BYTES_MAX;
}

static void rg__remove_user(rg_backend *backend, uint64_t session) {
    size_t mask = backend->users_room - 1, hole, at;
    if (backend->users_len == 0)
        return;
    hole = rg__user_at(backend, session);
    if (backend->users[hole].session == 0)
        return;
    backend->users_len--;
    backend->pointers_len -= backend->users[hole].user != NULL;
    backend->delivering_len -= rg__delivers(&backend->users[hole]);
    /* Those behind it move up, as far as each may. */
    for (at = (hole + 1) & mask; backend->users[at].session != 0; at = (at + 1) & mask) {
        size_t home = rg__user_home(backend, backend->users[at].session);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            backend->users[hole] = backend->users[at];
            hole = at;
        }
    }
    memset(&backend->users[hole], 0, sizeof backend->users[hole]);
}

static int rg__grow_users(rg_backend *backend) {
    struct rg__user *before = backend->users;
    size_t room_before = backend->users_room, n;
    size_t room = room_before == 0 ? 64 : 2 * room_before;
    struct rg__user *users = (struct rg__user *)calloc(room, sizeof *users);
    if (users == NULL)
        return -1;
    backend->users = users;
    backend->users_room = room;
    for (n = 0; n < room_before; n++)
        if (before[n].session != 0)
            users[rg__user_at(backend, before[n].session)] = before[n];
    free(before);
    return 0;
}

/* The place of a session, which is made. NULL: no memory. */
static struct rg__user *rg__make_user(rg_backend *backend, uint64_t session) {
    struct rg__user *place;
    if (2 * (backend->users_len + 1) > backend->users_room && rg__grow_users(backend) < 0)
        return NULL;
    place = &backend->users[rg__user_at(backend, session)];
    backend->users_len += place->session == 0;
    place->session = session;
    return place;
}

/* Without memory for it, the gateway drops what is too long, and counts it; messages are refused. */
static void rg__note_opened(rg_backend *backend, uint64_t session, int delivers) {
    struct rg__user *place = rg__make_user(backend, session);
    if (place == NULL)
        return;
    backend->delivering_len -= rg__delivers(place);
    place->payload_bytes_max = delivers ? RG_SHORT_MESSAGE_BYTES_MAX : RG_PAYLOAD_BYTES_MAX;
    backend->delivering_len += rg__delivers(place);
}

/* The longest payload of a player of netcode; 0 of anybody else. A session of which nothing is known
   is over, or about to be opened again: the gateway says what becomes of a payload for it. */
static unsigned rg__netcode_bytes_max(const rg_backend *backend, uint64_t session) {
    return session == 0 || backend->users_len == 0
               ? 0
               : backend->users[rg__user_at(backend, session)].payload_bytes_max;
}

/* Why a payload that is longer than every player takes cannot go to one player, if it cannot. */
static int rg__check_long_payload(const rg_backend *backend, const struct rg__link *link,
                                  uint64_t session, size_t bytes_len) {
    unsigned bytes_max;
    if (bytes_len <= RG_PAYLOAD_BYTES_MAX && backend->delivering_len == 0)
        return RG_SEND_OK;
    bytes_max = rg__netcode_bytes_max(backend, session);
    if (bytes_max == RG_SHORT_MESSAGE_BYTES_MAX)
        return RG_SEND_MESSAGE_LENGTH;
    if (bytes_len > RG_PAYLOAD_BYTES_MAX && (bytes_max != 0 || link->version < 3))
        return RG_SEND_PAYLOAD_LENGTH;
    return RG_SEND_OK;
}

/* Why a player cannot be sent messages, if it cannot. */
static int rg__check_message(const rg_backend *backend, const struct rg__link *link,
                             uint64_t session) {
    if (link->version < 4)
        return RG_SEND_NO_MESSAGES;
    if (link->version >= 5 &&
        rg__netcode_bytes_max(backend, session) != RG_SHORT_MESSAGE_BYTES_MAX)
        return RG_SEND_NO_DELIVERY;
    return RG_SEND_OK;
}

int rg_set_user(rg_backend *backend, uint64_t session, void *user) {
    struct rg__user *place;
    if (backend == NULL || session == 0) {
        errno = EINVAL;
        return -1;
    }
    if (user == NULL && rg__netcode_bytes_max(backend, session) == 0) {
        rg__remove_user(backend, session);
        return 0;
    }
    place = rg__make_user(backend, session);
    if (place == NULL)
        return -1;
    backend->pointers_len -= place->user != NULL;
    backend->pointers_len += user != NULL;
    place->user = user;
    return 0;
}

void *rg_user(const rg_backend *backend, uint64_t session) {
    if (backend == NULL || session == 0 || backend->pointers_len == 0)
        return NULL;
    return backend->users[rg__user_at(backend, session)].user;
}

void rg_each_user(rg_backend *backend, unsigned worker,
                  void (*each)(void *context, uint64_t session, void *user), void *context) {
    size_t n, seen, first = 0;
    if (backend == NULL || each == NULL)
        return;
    /* A pointer that is taken away lets another one move to its place, from behind it and up to the
       next empty place: beginning at one, each is met once. */
    while (first < backend->users_room && backend->users[first].session != 0)
        first++;
    for (seen = 0; seen < backend->users_room;) {
        uint64_t session;
        n = (first + seen) % backend->users_room;
        session = backend->users[n].session;
        if (session != 0 && rg_worker(session) == worker && backend->users[n].user != NULL)
            each(context, session, backend->users[n].user);
        seen += backend->users[n].session == session;
    }
}

/* What the event before has ended. */
static void rg__forget_users(rg_backend *backend) {
    size_t n;
    if (backend->closed != 0)
        rg__remove_user(backend, backend->closed);
    backend->closed = 0;
    if (backend->lost < 0)
        return;
    for (n = 0; n < backend->users_room; n++)
        /* Another one may move to this place. */
        while (backend->users[n].session != 0 &&
               rg_worker(backend->users[n].session) == (unsigned)backend->lost)
            rg__remove_user(backend, backend->users[n].session);
    backend->lost = -1;
}

static void rg__note_users(rg_backend *backend, struct rg_event *event) {
    event->user = rg_user(backend, event->session);
    if (event->kind == RG_CLOSED || event->kind == RG_MOVED)
        backend->closed = event->session;
    else if (event->kind == RG_LINK_LOST)
        backend->lost = (int)event->worker;
}

static int rg__next(rg_backend *backend, struct rg_event *event) {
    int is_set;
    if (backend->closed != 0 || backend->lost >= 0)
        rg__forget_users(backend);
    if (!backend->is_in_turn) {
        if (rg__look(backend) < 0)
            return -1;
        backend->is_in_turn = 1;
    }
    event->session = 0;
    event->user = NULL;
    is_set = rg__step(backend, event);
    /* Nothing follows of what has begun for it. */
    if (is_set && (event->kind == RG_CLOSED || event->kind == RG_MOVED) &&
        backend->links[event->worker].message_session == event->session)
        backend->links[event->worker].message_session = 0;
    if (!is_set || backend->inbox_at < backend->inbox_len)
        rg__show_unread(backend, is_set);
    if (is_set && backend->users_len > 0)
        rg__note_users(backend, event);
    return is_set;
}

/* A program that knows nothing of moves: whom it has lost has left, and it takes nobody. 0: there is
   nothing to be told. */
static int rg__tell_unmoved(rg_backend *backend, struct rg_event *event) {
    if (event->kind == RG_MOVED) {
        event->kind = RG_CLOSED;
        event->reason = RG_CLOSE_MOVED;
    }
    if (event->kind == RG_OFFERED)
        rg_answer(backend, event->session, event->offer, 0);
    return event->kind < RG_OFFERED;
}

int rg_next_sized(rg_backend *backend, struct rg_event *event, size_t event_bytes) {
    struct rg_event all;
    int is_set;
    if (backend == NULL || event == NULL) {
        errno = EINVAL;
        return -1;
    }
    if (event_bytes == sizeof *event)
        return rg__next(backend, event);
    /* A program that was built with an earlier header, or with a later one. */
    memset(&all, 0, sizeof all);
    do
        is_set = rg__next(backend, &all);
    while (is_set > 0 && event_bytes <= offsetof(struct rg_event, ticket) &&
           !rg__tell_unmoved(backend, &all));
    if (is_set <= 0)
        return is_set;
    if (event_bytes > sizeof all) {
        memset((uint8_t *)event + sizeof all, 0, event_bytes - sizeof all);
        event_bytes = sizeof all;
    }
    memcpy(event, &all, event_bytes);
    return is_set;
}

/* Sending. */

int rg_send(rg_backend *backend, uint64_t session, const void *bytes, size_t bytes_len) {
    struct rg__link *link;
    uint8_t *record;
    int refused;
    if (bytes == NULL || bytes_len < 1 || bytes_len > RG_LONG_PAYLOAD_BYTES_MAX)
        return RG_SEND_PAYLOAD_LENGTH;
    if (backend == NULL)
        return RG_SEND_LINK_DOWN;
    link = rg__link_of(backend, session);
    if (link == NULL) {
        backend->stats.payloads_link_down++;
        return RG_SEND_LINK_DOWN;
    }
    if (bytes_len > RG_SHORT_MESSAGE_BYTES_MAX) {
        refused = rg__check_long_payload(backend, link, session, bytes_len);
        if (refused != RG_SEND_OK)
            return refused;
    }
    record = rg__push(backend, link, RG__HEADER_BYTES + 8 + bytes_len, RG__PAYLOAD, 1);
    if (record == NULL)
        return RG_SEND_LINK_FULL;
    rg__put(record + 4, session, 8);
    memcpy(record + 12, bytes, bytes_len);
    return RG_SEND_OK;
}

/* One record for those sessions of a worker that a multicast has gathered. Returns how many. */
static size_t rg__multicast_part(rg_backend *backend, struct rg__link *link, const uint64_t *part,
                                 size_t part_len, const void *bytes, size_t bytes_len) {
    size_t record_bytes = RG__HEADER_BYTES + 2 + 8 * part_len + bytes_len, n;
    uint8_t *record = rg__push(backend, link, record_bytes, RG__MULTICAST, part_len);
    if (record == NULL)
        return 0;
    rg__put(record + 4, part_len, 2);
    for (n = 0; n < part_len; n++)
        rg__put(record + 6 + 8 * n, part[n], 8);
    memcpy(record + 6 + 8 * part_len, bytes, bytes_len);
    return part_len;
}

size_t rg_multicast(rg_backend *backend, const uint64_t *sessions, size_t sessions_len,
                    const void *bytes, size_t bytes_len) {
    uint64_t part[RG_MULTICAST_SESSIONS_MAX];
    size_t taken = 0, reachable = 0, n;
    unsigned worker;
    if (backend == NULL || sessions == NULL || bytes == NULL || bytes_len < 1 ||
        bytes_len > RG_PAYLOAD_BYTES_MAX)
        return 0;
    for (n = 0; bytes_len > RG_SHORT_MESSAGE_BYTES_MAX && backend->delivering_len > 0 &&
                n < sessions_len;
         n++)
        if (rg__netcode_bytes_max(backend, sessions[n]) == RG_SHORT_MESSAGE_BYTES_MAX)
            return 0;
    /* One pass for each worker needs no memory, and a gateway has few. */
    for (worker = 0; worker < backend->links_len; worker++) {
        struct rg__link *link = &backend->links[worker];
        size_t part_len = 0;
        if (!rg__is_link_up(link))
            continue;
        for (n = 0; n < sessions_len; n++) {
            if (sessions[n] == 0 || rg_worker(sessions[n]) != worker)
                continue;
            reachable++;
            part[part_len++] = sessions[n];
            if (part_len == RG_MULTICAST_SESSIONS_MAX) {
                taken += rg__multicast_part(backend, link, part, part_len, bytes, bytes_len);
                part_len = 0;
            }
        }
        if (part_len > 0)
            taken += rg__multicast_part(backend, link, part, part_len, bytes, bytes_len);
    }
    backend->stats.payloads_link_down += sessions_len - reachable;
    return taken;
}

/* Whether so many records of any length can be appended, after sending what can be sent. */
static int rg__has_room_for(rg_backend *backend, struct rg__link *link, size_t records) {
    unsigned attempt;
    for (attempt = 0; attempt < 2; attempt++) {
        if (link->late_len == 0 && link->bundles_len + records <= backend->queue_bundles)
            return 1;
        if (attempt == 0)
            rg__flush_link(backend, link);
    }
    return 0;
}

int rg_send_message(rg_backend *backend, uint64_t session, unsigned kind, unsigned channel,
                    const void *bytes, size_t bytes_len, uint64_t token) {
    struct rg__link *link;
    size_t at = 0;
    int refused;
    if (kind < RG_RELIABLE || kind > RG_UNRELIABLE || channel > 255)
        return RG_SEND_NO_CHANNEL;
    if (bytes == NULL || bytes_len < 1 ||
        bytes_len > (kind == RG_RELIABLE ? (size_t)RG_MESSAGE_BYTES_MAX
                                         : (size_t)RG_SHORT_MESSAGE_BYTES_MAX))
        return RG_SEND_MESSAGE_LENGTH;
    if (backend == NULL)
        return RG_SEND_LINK_DOWN;
    link = rg__link_of(backend, session);
    if (link == NULL) {
        backend->stats.payloads_link_down++;
        return RG_SEND_LINK_DOWN;
    }
    refused = rg__check_message(backend, link, session);
    if (refused != RG_SEND_OK)
        return refused;
    /* All parts, or none of them. */
    if (bytes_len > RG__PART_BYTES_MAX &&
        !rg__has_room_for(backend, link, (bytes_len - 1) / RG__PART_BYTES_MAX + 1)) {
        backend->stats.payloads_link_full++;
        return RG_SEND_LINK_FULL;
    }
    while (at < bytes_len) {
        size_t left = bytes_len - at;
        size_t len = left < RG__PART_BYTES_MAX ? left : (size_t)RG__PART_BYTES_MAX;
        unsigned marks = (at == 0 ? (unsigned)RG__FIRST_PART : 0u) |
                         (len == left ? (unsigned)RG__LAST_PART : 0u);
        uint8_t *record = rg__push(backend, link, RG__PART_OVERHEAD_BYTES + len, RG__MESSAGE,
                                   len == left ? 1 : 0);
        if (record == NULL)
            return RG_SEND_LINK_FULL;
        rg__put(record + 4, session, 8);
        record[12] = (uint8_t)kind;
        record[13] = (uint8_t)channel;
        record[14] = (uint8_t)marks;
        rg__put(record + 15, at == 0 ? token : 0, 8);
        memcpy(record + RG__PART_OVERHEAD_BYTES, (const uint8_t *)bytes + at, len);
        at += len;
    }
    return RG_SEND_OK;
}

int rg_ask_quality(rg_backend *backend, uint64_t session) {
    struct rg__link *link = backend == NULL ? NULL : rg__link_of(backend, session);
    uint8_t *record = NULL;
    int refused;
    if (link == NULL)
        return RG_SEND_LINK_DOWN;
    refused = rg__check_message(backend, link, session);
    if (refused != RG_SEND_OK)
        return refused;
    if (link->late_len == 0)
        record = rg__reserve(backend, link, RG__HEADER_BYTES + 8, RG__ASK_QUALITY, 0);
    if (record == NULL)
        return RG_SEND_LINK_FULL;
    rg__put(record + 4, session, 8);
    return RG_SEND_OK;
}

int rg_close_session(rg_backend *backend, uint64_t session, unsigned reason) {
    struct rg__link *link = backend == NULL ? NULL : rg__link_of(backend, session);
    uint8_t *record;
    if (reason < RG_CLOSE_FINISHED || reason > RG_CLOSE_GAME_SHUTDOWN)
        return RG_SEND_NOT_A_CHOICE;
    if (link == NULL)
        return RG_SEND_LINK_DOWN;
    record = rg__push_late(backend, link, RG__CLOSE_BYTES, RG__CLOSE);
    if (record == NULL)
        return RG_SEND_LINK_FULL;
    rg__put_close(record, session, reason);
    return RG_SEND_OK;
}

int rg_close_session_after(rg_backend *backend, uint64_t session, unsigned reason,
                           uint32_t linger_ms, const void *text, size_t text_len) {
    struct rg__link *link = backend == NULL ? NULL : rg__link_of(backend, session);
    uint8_t *record;
    if (text_len > RG_FAREWELL_BYTES_MAX || (text == NULL && text_len > 0))
        return RG_SEND_FAREWELL_LENGTH;
    if (link == NULL || link->version < 5)
        return rg_close_session(backend, session, reason);
    if (reason < RG_CLOSE_FINISHED || reason > RG_CLOSE_GAME_SHUTDOWN)
        return RG_SEND_NOT_A_CHOICE;
    record =
        rg__push_late(backend, link, RG__CLOSE_AFTER_BYTES_MIN + text_len, RG__CLOSE_AFTER);
    if (record == NULL)
        return RG_SEND_LINK_FULL;
    rg__put_close(record, session, reason);
    rg__put(record + RG__CLOSE_BYTES, linger_ms < RG_LINGER_MS_MAX ? linger_ms : RG_LINGER_MS_MAX,
            4);
    if (text_len > 0)
        memcpy(record + RG__CLOSE_AFTER_BYTES_MIN, text, text_len);
    return RG_SEND_OK;
}

/* What a game process has asked for; 0 where the program does not know it. */
static int rg__check_move(const rg_backend *backend, const struct rg__link *link, uint64_t session,
                          const struct rg_move *move) {
    if (move->backend == NULL ||
        !rg__is_name((const uint8_t *)move->backend, strlen(move->backend)))
        return RG_SEND_NAME;
    if (move->data_len > RG_MOVE_BYTES_MAX || (move->data == NULL && move->data_len > 0))
        return RG_SEND_MOVE_LENGTH;
    if (link == NULL)
        return RG_SEND_LINK_DOWN;
    if (link->version < 6)
        return RG_SEND_NO_MOVES;
    if (move->message == NULL)
        return RG_SEND_OK;
    if (move->channel_kind < RG_RELIABLE || move->channel_kind > RG_UNRELIABLE ||
        move->channel > 255)
        return RG_SEND_NO_CHANNEL;
    if (move->message_len < 1 || move->message_len > RG_SHORT_MESSAGE_BYTES_MAX)
        return RG_SEND_MESSAGE_LENGTH;
    return rg__check_message(backend, link, session);
}

int rg_move_session_sized(rg_backend *backend, uint64_t session, const struct rg_move *move,
                          size_t move_bytes) {
    struct rg__link *link = backend == NULL ? NULL : rg__link_of(backend, session);
    struct rg_move all;
    size_t name_len, message_len, at = RG__HEADER_BYTES + 8 + 8 + 4 + 1 + 1;
    uint8_t *record;
    int refused;
    memset(&all, 0, sizeof all);
    if (move != NULL)
        memcpy(&all, move, move_bytes < sizeof all ? move_bytes : sizeof all);
    refused = rg__check_move(backend, link, session, &all);
    if (refused != RG_SEND_OK)
        return refused;
    name_len = strlen(all.backend);
    message_len = all.message == NULL ? 0 : 4 + all.message_len;
    record = rg__push_late(backend, link, at + name_len + message_len + all.data_len, RG__MOVE);
    if (record == NULL)
        return RG_SEND_LINK_FULL;
    rg__put(record + 4, session, 8);
    rg__put(record + 12, all.ticket, 8);
    rg__put(record + 20, all.time_ms == 0 ? RG_MOVE_MS : all.time_ms, 4);
    record[24] = (uint8_t)((all.confirms ? RG__CONFIRMS : 0) |
                           (all.message == NULL ? 0 : RG__HAS_MESSAGE));
    record[25] = (uint8_t)name_len;
    memcpy(record + at, all.backend, name_len);
    at += name_len;
    if (all.message != NULL) {
        record[at] = (uint8_t)all.channel_kind;
        record[at + 1] = (uint8_t)all.channel;
        rg__put(record + at + 2, all.message_len, 2);
        memcpy(record + at + 4, all.message, all.message_len);
        at += message_len;
    }
    if (all.data_len > 0)
        memcpy(record + at, all.data, all.data_len);
    return RG_SEND_OK;
}

int rg_answer(rg_backend *backend, uint64_t session, uint64_t offer, int is_welcome) {
    struct rg__link *link = backend == NULL ? NULL : rg__link_of(backend, session);
    uint8_t *record;
    if (link == NULL)
        return RG_SEND_LINK_DOWN;
    record = rg__push_late(backend, link, RG__HEADER_BYTES + 8 + 8 + 1, RG__ANSWER);
    if (record == NULL)
        return RG_SEND_LINK_FULL;
    rg__put(record + 4, session, 8);
    rg__put(record + 12, offer, 8);
    record[20] = is_welcome != 0;
    return RG_SEND_OK;
}

unsigned rg_ping(rg_backend *backend) {
    unsigned worker, asked = 0;
    if (backend == NULL)
        return 0;
    for (worker = 0; worker < backend->links_len; worker++) {
        struct rg__link *link = &backend->links[worker];
        uint8_t *record;
        if (!rg__is_link_up(link) || link->late_len > 0)
            continue;
        record = rg__reserve(backend, link, RG__HEADER_BYTES + 8, RG__PING, 0);
        if (record != NULL) {
            rg__put(record + 4, (uint64_t)rg__now_ns(), 8);
            asked++;
        }
    }
    return asked;
}

void rg_set_intake(rg_backend *backend, int is_open) {
    if (backend != NULL)
        backend->is_closed = !is_open;
}

/* Says so, where the gateway does not know it and knows the word. Where there is no room, the next
   flush does. */
static void rg__tell_intake(rg_backend *backend, struct rg__link *link) {
    uint8_t *record;
    if (!rg__is_link_up(link) || link->version < 2 || link->is_told_closed == backend->is_closed)
        return;
    record = rg__push(backend, link, RG__HEADER_BYTES + 1, RG__INTAKE, 0);
    if (record == NULL)
        return;
    record[4] = (uint8_t)!backend->is_closed;
    link->is_told_closed = backend->is_closed;
}

void rg_flush(rg_backend *backend) {
    unsigned worker;
    if (backend == NULL)
        return;
    for (worker = 0; worker < backend->links_len; worker++) {
        rg__tell_intake(backend, &backend->links[worker]);
        rg__flush_link(backend, &backend->links[worker]);
        rg__watch_for_room(backend, &backend->links[worker]);
    }
}

size_t rg_flush_for(rg_backend *backend, int64_t wait_ns) {
    const int64_t start_ns = rg__now_ns();
    const struct timespec pause = {0, 1000000};
    for (;;) {
        size_t waiting = 0;
        unsigned worker;
        int is_awaited = 0;
        rg_flush(backend);
        for (worker = 0; backend != NULL && worker < backend->links_len; worker++) {
            waiting += backend->links[worker].bundles_len;
            is_awaited |= backend->links[worker].is_watched_for_room;
        }
        if (!is_awaited || rg__now_ns() - start_ns >= wait_ns)
            return waiting;
        (void)nanosleep(&pause, NULL);
    }
}

int rg_is_up(const rg_backend *backend) {
    unsigned worker;
    if (backend == NULL)
        return 0;
    for (worker = 0; worker < backend->workers; worker++)
        if (worker >= backend->links_len || !rg__is_link_up(&backend->links[worker]))
            return 0;
    return 1;
}

void rg_stats_sized(const rg_backend *backend, struct rg_stats *stats, size_t stats_bytes) {
    size_t known = stats_bytes < sizeof *stats ? stats_bytes : sizeof *stats;
    if (stats == NULL)
        return;
    memset(stats, 0, stats_bytes);
    if (backend != NULL)
        memcpy(stats, &backend->stats, known);
}

/* Words. */

uint32_t rg_library_version(void) { return RG_LIBRARY_MAJOR << 16 | RG_LIBRARY_MINOR; }

const char *rg_link_loss_text(unsigned reason) {
    switch (reason) {
    case RG_GOODBYE_SHUTDOWN:
        return "the gateway shuts down";
    case RG_GOODBYE_VERSION_UNSUPPORTED:
        return "the gateway refuses this link: no version in common, update the older side";
    case RG_GOODBYE_UNAUTHORISED:
        return "the gateway refuses this link: run as its user, or list this user in the backend's "
               "allow_uids or allow_gids";
    case RG_GOODBYE_NAME_UNKNOWN:
        return "the gateway refuses this link: its config has no [[backend]] of this name with "
               "link = \"bundle\"";
    case RG_GOODBYE_NAME_TAKEN:
        return "the gateway refuses this link: another process is connected as this backend";
    case RG_GOODBYE_HELLO_EXPECTED:
        return "the gateway closed this link: it wants one hello, first and soon";
    case RG_GOODBYE_RECORD_INVALID:
        return "the gateway closed this link: a record broke the format";
    case RG_LOSS_HUNG_UP:
        return "the gateway hung up without a word: it was stopped, or crashed";
    case RG_LOSS_RECORD_INVALID:
        return "the gateway broke the format";
    case RG_LOSS_WELCOME_EXPECTED:
        return "the gateway did not begin with one welcome";
    case RG_LOSS_VERSION_UNSUPPORTED:
        return "the gateway has chosen a version that was not offered";
    case RG_LOSS_FAILED:
        return "the link cannot be read";
    default:
        return "the gateway closed this link for another reason";
    }
}

const char *rg_close_reason_text(unsigned reason) {
    switch (reason) {
    case RG_CLOSE_PLAYER_LEFT:
        return "the player left";
    case RG_CLOSE_TIMED_OUT:
        return "the player timed out";
    case RG_CLOSE_SEQUENCE_GAP:
        return "the sequence jumped too far";
    case RG_CLOSE_SEQUENCE_EXHAUSTED:
        return "sequence numbers are used up";
    case RG_CLOSE_SHUTDOWN:
        return "the gateway shuts down";
    case RG_CLOSE_OPERATOR:
        return "closed by an operator";
    case RG_CLOSE_UNCONFIGURED:
        return "no longer configured";
    case RG_CLOSE_DELIVERY:
        return "the player broke the delivery layer";
    case RG_CLOSE_OVERFLOW:
        return "more was sent than the player takes";
    case RG_CLOSE_NEWER_LOGIN:
        return "the player has logged in again";
    case RG_CLOSE_MOVED:
        return "moved to another game process";
    case RG_CLOSE_FINISHED:
        return "the game is over";
    case RG_CLOSE_KICKED:
        return "kicked";
    case RG_CLOSE_REFUSED:
        return "refused by the game";
    case RG_CLOSE_GAME_SHUTDOWN:
        return "the game shuts down";
    default:
        return "another reason";
    }
}

const char *rg_record_error_text(unsigned error) {
    switch (error) {
    case RG_ERROR_NONE:
        return "no error";
    case RG_ERROR_HEADER_TRUNCATED:
        return "header truncated";
    case RG_ERROR_RECORD_LENGTH:
        return "record length out of range";
    case RG_ERROR_KIND_UNKNOWN:
        return "unknown kind";
    case RG_ERROR_FLAGS_UNKNOWN:
        return "unknown flags";
    case RG_ERROR_BODY_LENGTH:
        return "body length does not match the kind";
    case RG_ERROR_SESSION_ZERO:
        return "session 0";
    case RG_ERROR_PAYLOAD_LENGTH:
        return "payload length out of range";
    case RG_ERROR_NAME_INVALID:
        return "invalid name";
    case RG_ERROR_SESSION_COUNT:
        return "session count out of range";
    case RG_ERROR_WORKER_INVALID:
        return "worker index out of range";
    case RG_ERROR_REASON_UNKNOWN:
        return "unknown reason";
    case RG_ERROR_DATAGRAM_TOO_LONG:
        return "datagram too long";
    case RG_ERROR_CHANNEL_UNKNOWN:
        return "unknown kind of channel";
    case RG_ERROR_MESSAGE_LENGTH:
        return "message length out of range";
    case RG_ERROR_MESSAGE_MARKS:
        return "message begins or ends where it cannot";
    case RG_ERROR_FAREWELL_LENGTH:
        return "farewell too long";
    case RG_ERROR_MOVE_LENGTH:
        return "too much data for a move";
    case RG_ERROR_ANSWER_UNKNOWN:
        return "unknown answer";
    default:
        return "an unknown error";
    }
}

const char *rg_send_result_text(int result) {
    switch (result) {
    case RG_SEND_OK:
        return "taken";
    case RG_SEND_LINK_DOWN:
        return "the link to the session's worker is down";
    case RG_SEND_LINK_FULL:
        return "the link to the session's worker is full";
    case RG_SEND_PAYLOAD_LENGTH:
        return "a payload has 1 to 1200 bytes, or 1472 for a plain listener's player";
    case RG_SEND_NOT_A_CHOICE:
        return "only the gateway closes for this reason";
    case RG_SEND_MESSAGE_LENGTH:
        return "a message has 1 to 65536 bytes on a reliable channel, to 1159 on another, as a "
               "payload for a player who gets messages";
    case RG_SEND_NO_MESSAGES:
        return "the gateway is of an earlier version and takes no messages";
    case RG_SEND_NO_CHANNEL:
        return "there is no such channel";
    case RG_SEND_FAREWELL_LENGTH:
        return "a player is told at most 200 bytes";
    case RG_SEND_NO_DELIVERY:
        return "the player gets no messages, or has left";
    case RG_SEND_NO_MOVES:
        return "the gateway is too old to move players: update it";
    case RG_SEND_NAME:
        return "a backend's name has 1 to 32 printable ASCII characters";
    case RG_SEND_MOVE_LENGTH:
        return "a move has at most 1024 bytes for the other process";
    default:
        return "an unknown result";
    }
}

const char *rg_standing_text(unsigned standing) {
    switch (standing) {
    case RG_STANDING_WAITING:
        return "waits for the gateway and its fleet";
    case RG_STANDING_REGISTERED:
        return "registered";
    case RG_STANDING_NAME_TAKEN:
        return "another process has the name";
    case RG_STANDING_NAME_IN_CONFIG:
        return "the gateway's config has a [[backend]] of the name";
    case RG_STANDING_TOO_MANY:
        return "the gateway takes no more game processes (fleet.max_backends)";
    case RG_STANDING_UNAUTHORISED:
        return "the user may not: run as the gateway's, or list this one in fleet.allow_uids";
    case RG_STANDING_INVALID:
        return "the gateway does not understand the announcement";
    default:
        return "refused for another reason";
    }
}

const char *rg_move_refusal_text(unsigned reason) {
    switch (reason) {
    case RG_MOVE_NO_SUCH_BACKEND:
        return "no such backend";
    case RG_MOVE_ITSELF:
        return "the player plays there";
    case RG_MOVE_FULL:
        return "no slot is free there";
    case RG_MOVE_NOT_LINKED:
        return "the game process is not connected";
    case RG_MOVE_DENIED:
        return "denied by the game process";
    case RG_MOVE_TIME:
        return "no answer in time";
    case RG_MOVE_VERSION:
        return "the game process is too old";
    case RG_MOVE_FRONT:
        return "such players cannot be moved";
    case RG_MOVE_NOT_ALLOWED:
        return "not allowed by the config";
    case RG_MOVE_BUSY:
        return "the player is being moved already";
    case RG_MOVE_OFFERS:
        return "too many players are offered there";
    case RG_MOVE_CLOSED:
        return "nobody new is taken there";
    case RG_MOVE_SESSION_OVER:
        return "no such player";
    case RG_MOVE_PLAYER_FULL:
        return "too much waits for the player";
    case RG_MOVE_SOURCE_GONE:
        return "the player's game process has gone";
    default:
        return "another reason";
    }
}

#endif /* RINGGATE_BACKEND_IMPLEMENTATION */
