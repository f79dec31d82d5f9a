/*
 * A bot: sends a reliable message ten times a second and asks what became of it, reads what the
 * game server sends, and says at the end what the connection was like.
 *
 *     cc bot.c -o bot $(pkg-config --cflags --libs ringgate-client)
 *     ./bot player.token 3
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "ringgate_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct bot {
    uint64_t sent, delivered, lost, messages, snapshots;
};

static void read_all(rgc_client *client, struct bot *bot) {
    struct rgc_event event = RGC_EVENT_INIT;
    while (rgc_next(client, &event) > 0) {
        switch (event.kind) {
        case RGC_CONNECTED:
            printf("in slot %u of %s\n", (unsigned)event.slot, event.server);
            break;
        case RGC_MESSAGE:
            bot->messages += 1;
            if (event.channel_kind == RGC_RELIABLE)
                printf("%.*s\n", (int)event.bytes_len, (const char *)event.bytes);
            else
                bot->snapshots += 1;
            break;
        case RGC_REPORT:
            if (event.is_delivered)
                bot->delivered += 1;
            else
                bot->lost += 1;
            break;
        case RGC_NEXT_SERVER:
            printf("on to %s\n", event.server);
            break;
        case RGC_CLOSED:
            printf("%s\n", rgc_reason_text(event.reason));
            break;
        default: /* a newer library has more */
            break;
        }
    }
}

static int say(rgc_client *client, struct bot *bot) {
    char line[32];
    int length = snprintf(line, sizeof line, "line %" PRIu64, bot->sent);
    /* A token of 0 asks for no report. */
    int result = rgc_send(client, RGC_RELIABLE, 0, line, (size_t)length, bot->sent + 1);
    if (result == RGC_OK)
        bot->sent += 1;
    return result == RGC_ERROR_FULL ? RGC_OK : result;
}

static int play(rgc_client *client, struct bot *bot, uint64_t turns) {
    for (uint64_t turn = 0; !rgc_is_finished(client);) {
        int result = rgc_turn(client, INT64_C(10000000));
        if (result < 0)
            return result;
        read_all(client, bot);
        if (!rgc_is_connected(client))
            continue;
        turn += 1;
        if (turn < turns && turn % 10 == 0)
            result = say(client, bot);
        else if (turn >= turns && rgc_has_delivered_all(client))
            result = rgc_disconnect(client);
        if (result < 0)
            return result;
    }
    return RGC_OK;
}

int main(int argc, char **argv) {
    static unsigned char token[RGC_TOKEN_BYTES];
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: bot TOKEN_FILE [SECONDS]\n");
        return 2;
    }
    size_t token_bytes = fread(token, 1, sizeof token, file);
    fclose(file);
    uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 3;

    int error;
    rgc_client *client = rgc_connect(token, token_bytes, NULL, &error);
    if (client == NULL) {
        fprintf(stderr, "%s\n", rgc_error_text(error));
        return 1;
    }
    struct bot bot = {0, 0, 0, 0, 0};
    int result = play(client, &bot, seconds * 100);
    if (result < 0)
        fprintf(stderr, "%s\n", rgc_error_text(result));
    printf("%" PRIu64 " sent, %" PRIu64 " delivered, %" PRIu64 " lost\n", bot.sent, bot.delivered,
           bot.lost);
    printf("%" PRIu64 " messages came, %" PRIu64 " of them snapshots\n", bot.messages,
           bot.snapshots);
    rgc_free(client);
    return result < 0;
}
