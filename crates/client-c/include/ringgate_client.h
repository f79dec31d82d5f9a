/*
 * ringgate_client.h: a player's end of a ringgate gateway, for games in C and C++.
 *
 * netcode 1.02, and on it whole messages that arrive once and in order, or are reported as lost. It
 * is the Rust client behind a C face, so a game links a library:
 *
 *     cc game.c $(pkg-config --cflags --libs ringgate-client)
 *
 * A game calls rgc_turn_for once a frame (or lets it wait), takes every event, and sends:
 *
 *     rgc_client *client = rgc_connect(token, token_bytes, NULL, NULL);
 *     struct rgc_event event = RGC_EVENT_INIT;
 *     while (!rgc_is_finished(client)) {
 *         rgc_turn_for(client, 10 * 1000 * 1000);
 *         while (rgc_next(client, &event) > 0)
 *             if (event.kind == RGC_MESSAGE)
 *                 show(event.bytes, event.bytes_len);
 *         if (rgc_is_connected(client))
 *             rgc_send(client, RGC_SEQUENCED, 0, &me, sizeof me, 0);
 *     }
 *     rgc_free(client);
 *
 * Only turns wait. One thread at a time may use a client; different clients are independent.
 * A NULL client is answered with RGC_ERROR_NULL, or as one that is finished.
 *
 * Structures begin with their size, as this header has it; RGC_..._INIT sets it. So a game that was
 * built with an older header goes on working with a newer library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RINGGATE_CLIENT_H
#define RINGGATE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

/* On Windows, define RGC_STATIC where the static library is linked. */
#if defined(_WIN32) && !defined(RGC_STATIC)
#define RGC_API __declspec(dllimport)
#elif defined(__GNUC__)
#define RGC_API __attribute__((visibility("default")))
#else
#define RGC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header and its library: the second number grows when something is added. The
   first never changes as long as the library has the same soname. */
#define RGC_LIBRARY_MAJOR 0
#define RGC_LIBRARY_MINOR 2

/* The version of the library that is linked: major << 16 | minor. */
RGC_API uint32_t rgc_library_version(void);

/* Limits of the format. */
#define RGC_TOKEN_BYTES 2048
#define RGC_MESSAGE_BYTES_MAX 65536 /* on reliable channels; rgc_message_bytes_max has the others */

/* What functions return below 0; rgc_error_text has words for them. */
enum rgc_error {
    RGC_OK = 0,
    RGC_ERROR_NULL = -1,     /* a pointer is NULL */
    RGC_ERROR_SIZE = -2,     /* a structure's size is not set */
    RGC_ERROR_TOKEN = -3,    /* not a connect token */
    RGC_ERROR_OPTION = -4,   /* an option is out of its bounds */
    RGC_ERROR_SYSTEM = -5,   /* the system refused a socket, or memory, or random bytes */
    RGC_ERROR_CLOSED = -6,   /* there is no connection */
    RGC_ERROR_EMPTY = -7,    /* a message has a byte at least */
    RGC_ERROR_FULL = -8,     /* the queue is full until messages have been acknowledged */
    RGC_ERROR_TOO_LONG = -9, /* the message is longer than its channel takes */
    RGC_ERROR_KIND = -10     /* no such kind of channel */
};

/* Kinds of channels: 256 of each, which have nothing to do with each other. */
enum rgc_channel_kind {
    RGC_RELIABLE = 1,  /* messages of up to 64 KiB arrive once, whole and in order */
    RGC_SEQUENCED = 2, /* of one packet at most; a newer one makes older ones worthless */
    RGC_UNRELIABLE = 3 /* of one packet at most, without promises */
};

/* What rgc_next reports, and which fields of rgc_event it sets besides `kind`. */
enum rgc_event_kind {
    RGC_CONNECTED = 1,   /* server, slot, slots: messages can be sent */
    RGC_MESSAGE = 2,     /* channel_kind, channel, bytes, bytes_len */
    RGC_REPORT = 3,      /* token, is_delivered: what became of a message that had a token */
    RGC_NEXT_SERVER = 4, /* server: the last one did not take or keep the player */
    RGC_CLOSED = 5       /* reason: it is over, and nothing comes after that */
};

/* Why it is over; rgc_reason_text has words for them. A newer library may have more. */
enum rgc_reason {
    RGC_REASON_LEFT = 1,
    RGC_REASON_DISCONNECTED = 2, /* the server said goodbye */
    RGC_REASON_DENIED = 3,       /* every server was full */
    RGC_REASON_REQUEST_TIMED_OUT = 4,
    RGC_REASON_RESPONSE_TIMED_OUT = 5,
    RGC_REASON_TIMED_OUT = 6, /* nothing was heard for the token's timeout */
    RGC_REASON_TOKEN_INVALID = 7,
    RGC_REASON_TOKEN_EXPIRED = 8,
    /* The server broke a rule of the delivery layer; docs/PROTOCOLS.md has them. */
    RGC_REASON_DELIVERY_MALFORMED = 32,
    RGC_REASON_DELIVERY_SEQUENCE = 33,
    RGC_REASON_DELIVERY_ACKNOWLEDGEMENT = 34,
    RGC_REASON_DELIVERY_WINDOW = 35,
    RGC_REASON_DELIVERY_MARKS = 36,
    RGC_REASON_DELIVERY_MESSAGE_LENGTH = 37,
    RGC_REASON_DELIVERY_MEMORY = 38,
    RGC_REASON_DELIVERY_SILENCE = 39, /* nothing was acknowledged for 30 seconds */
    RGC_REASON_DELIVERY_OVERSIZE = 40 /* a message longer than a packet on a channel that is not reliable */
};

/* How to connect. What is 0 has its default. */
struct rgc_options {
    size_t size;
    void *user;             /* comes back from rgc_user */
    uint32_t packet_bytes;  /* the longest packet: 200 to 1200, 1200 by default */
    uint32_t keep_alive_ms; /* after so much silence of ours a packet leaves; 1000 by default */
    uint32_t ack_delay_us;  /* so long an acknowledgement may wait; 5000 by default */
    uint32_t reserved;      /* 0 */
    size_t reliable_bytes_max;   /* what may wait on reliable channels; 262144 by default */
    size_t unreliable_bytes_max; /* what may wait on the others; 32768 by default */
};
#define RGC_OPTIONS_INIT {sizeof(struct rgc_options), NULL, 0, 0, 0, 0, 0, 0}

/* What happened. `bytes` is valid until the next call of rgc_next, rgc_free, or a turn. */
struct rgc_event {
    size_t size;
    uint32_t kind;         /* enum rgc_event_kind; pass over what you do not know */
    uint32_t reason;       /* enum rgc_reason */
    uint32_t channel_kind; /* enum rgc_channel_kind */
    uint32_t channel;      /* 0 to 255 */
    const uint8_t *bytes;
    size_t bytes_len;
    uint64_t token;
    uint32_t is_delivered; /* 1: it arrived; 0: it is not known to have arrived, and never will be */
    uint32_t slot;         /* the player's index at the game server */
    uint32_t slots;        /* how many there are */
    uint32_t reserved;
    char server[72]; /* its address, as "203.0.113.9:40000" or "[2001:db8::1]:40000" */
};
#define RGC_EVENT_INIT {sizeof(struct rgc_event), 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, {0}}

/* How good the connection is. */
struct rgc_quality {
    size_t size;
    uint64_t round_trip_ns;  /* smoothed; 0 before the first one */
    uint64_t variation_ns;   /* how far round trips differ from it */
    uint32_t loss_per_mille; /* smoothed over some tens of packets */
    uint32_t window_bytes;   /* how much may be in flight */
    uint32_t in_flight_bytes;
    uint32_t reserved;
    uint64_t reliable_bytes; /* what waits on reliable channels, what is in flight included */
};
typedef struct rgc_quality rgc_quality_t; /* for C++, where rgc_quality alone is the function */
#define RGC_QUALITY_INIT {sizeof(struct rgc_quality), 0, 0, 0, 0, 0, 0, 0}

/* What was counted since rgc_connect, over all servers. */
struct rgc_statistics {
    size_t size;
    uint64_t datagrams_in;
    uint64_t bytes_in;
    uint64_t refused_in; /* of datagrams_in: from strangers, forged, late or repeated */
    uint64_t datagrams_out;
    uint64_t bytes_out;
    uint64_t unsent; /* of datagrams_out: what the system did not take */
    uint64_t messages_in;
    uint64_t messages_out;
};
typedef struct rgc_statistics rgc_statistics_t; /* likewise */
#define RGC_STATISTICS_INIT {sizeof(struct rgc_statistics), 0, 0, 0, 0, 0, 0, 0, 0}

typedef struct rgc_client rgc_client;

/* Opens a socket and begins to ask the token's first server. NULL where that cannot be, with the
   reason in `*error`. That it connected, or failed to, is an event. `options` and `error` may be
   NULL. */
RGC_API rgc_client *rgc_connect(const void *token, size_t token_bytes,
                                const struct rgc_options *options, int *error);

/* Says goodbye, if nobody has, and frees everything. NULL is fine. */
RGC_API void rgc_free(rgc_client *client);

/* What the options had as `user`. */
RGC_API void *rgc_user(const rgc_client *client);

/* Takes in what has arrived, sends what is due, and waits for at most so long if nothing has: not at
   all for 0 and below, which is a deadline that has passed. Returns early when there is something to
   tell. New datagrams are read when all events were taken. */
RGC_API int rgc_turn_for(rgc_client *client, int64_t wait_ns);

/* The same for as long as it takes. */
RGC_API int rgc_turn_forever(rgc_client *client);

/* Both, as the first version had them: exactly -1 is rgc_turn_forever, everything else rgc_turn_for.
   A game that subtracts one time from another calls rgc_turn_for, because -1 may come of that. */
RGC_API int rgc_turn(rgc_client *client, int64_t wait_ns);

/* Sends what is due, without waiting and without receiving. Whether the server is silent is seen in
   turns only. */
RGC_API int rgc_flush(rgc_client *client);

/* The next event. 1: `*event` is set, 0: there is none. */
RGC_API int rgc_next(rgc_client *client, struct rgc_event *event);

/* Queues a message; it leaves with the next turn or flush. With a token that is not 0, an
   RGC_REPORT will say what became of it: exactly one, at the end of the connection at the latest. */
RGC_API int rgc_send(rgc_client *client, uint32_t kind, uint8_t channel, const void *bytes,
                     size_t bytes_len, uint64_t token);

/* The longest message that a channel of that kind takes; 0 without a connection. */
RGC_API size_t rgc_message_bytes_max(const rgc_client *client, uint32_t kind);

/* Leaves: says goodbye, and gives up what is under way. */
RGC_API int rgc_disconnect(rgc_client *client);

/* Leaves when everything that was sent on reliable channels has arrived, or after so long: from now
   on nothing more can be sent, and turns are taken until RGC_CLOSED comes. */
RGC_API int rgc_disconnect_after(rgc_client *client, int64_t linger_ns);

/* What the game server has said last on the connection that has just ended, from its RGC_CLOSED or
   RGC_NEXT_SERVER on. 1: `*reason` is why (128 the game is over, 129 kicked, 130 refused, 131 the
   game shuts down), and `text` has what it has for the player, cut to `text_bytes` and with a zero
   at its end. 0: it has said nothing. Both may be NULL. */
#define RGC_FAREWELL_BYTES 201
RGC_API int rgc_farewell(const rgc_client *client, uint32_t *reason, char *text, size_t text_bytes);

/* 1 or 0: whether messages can be sent; whether it is over, and all events were taken; whether no
   message on reliable channels waits to be acknowledged: all were, or their connection has ended,
   which an RGC_REPORT tells apart. */
RGC_API int rgc_is_connected(const rgc_client *client);
RGC_API int rgc_is_finished(const rgc_client *client);
RGC_API int rgc_has_delivered_all(const rgc_client *client);

/* RGC_OK, or RGC_ERROR_CLOSED without a connection. */
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a struct and a function of one name */
#endif
RGC_API int rgc_quality(const rgc_client *client, struct rgc_quality *quality);
RGC_API int rgc_statistics(const rgc_client *client, struct rgc_statistics *statistics);
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* A few words in English, never NULL, and never to be freed. */
RGC_API const char *rgc_error_text(int error);
RGC_API const char *rgc_reason_text(uint32_t reason);
RGC_API const char *rgc_version_text(void);

#ifdef __cplusplus
}
#endif

#endif /* RINGGATE_CLIENT_H */
