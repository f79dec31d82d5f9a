/* A player who hears everything that a game has to say, and why it ends. Its only argument is a file
   with a token. */
#include "ringgate_client.h"

#include <stdio.h>

int main(int argc, char **argv) {
    static unsigned char token[RGC_TOKEN_BYTES];
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    struct rgc_event event = RGC_EVENT_INIT;
    char text[RGC_FAREWELL_BYTES] = "";
    uint32_t reason = 0;
    unsigned messages = 0;
    if (file == NULL || fread(token, 1, sizeof token, file) != sizeof token)
        return 1;
    fclose(file);
    rgc_client *client = rgc_connect(token, sizeof token, NULL, NULL);
    if (client == NULL || rgc_farewell(client, NULL, NULL, 0) != 0)
        return 1;
    while (!rgc_is_finished(client)) {
        if (rgc_turn_forever(client) < 0)
            return 1;
        while (rgc_next(client, &event) > 0)
            messages += event.kind == RGC_MESSAGE && event.channel_kind == RGC_RELIABLE;
    }
    int has_said = rgc_farewell(client, &reason, text, sizeof text);
    printf("%u messages, then %d: %u %s\n", messages, has_said, (unsigned)reason, text);
    rgc_free(client);
    return 0;
}
