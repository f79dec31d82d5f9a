/* Where the fields of the first version of the library stand. Those that came later are missing. */
#include "ringgate_client.h"

#include <stdio.h>

#define PRINT(name, field) printf("%s.%s %zu\n", #name, #field, offsetof(struct name, field))

int main(void) {
    PRINT(rgc_options, size);
    PRINT(rgc_options, user);
    PRINT(rgc_options, packet_bytes);
    PRINT(rgc_options, keep_alive_ms);
    PRINT(rgc_options, ack_delay_us);
    PRINT(rgc_options, reserved);
    PRINT(rgc_options, reliable_bytes_max);
    PRINT(rgc_options, unreliable_bytes_max);
    PRINT(rgc_event, size);
    PRINT(rgc_event, kind);
    PRINT(rgc_event, reason);
    PRINT(rgc_event, channel_kind);
    PRINT(rgc_event, channel);
    PRINT(rgc_event, bytes);
    PRINT(rgc_event, bytes_len);
    PRINT(rgc_event, token);
    PRINT(rgc_event, is_delivered);
    PRINT(rgc_event, slot);
    PRINT(rgc_event, slots);
    PRINT(rgc_event, reserved);
    PRINT(rgc_event, server);
    PRINT(rgc_quality, size);
    PRINT(rgc_quality, round_trip_ns);
    PRINT(rgc_quality, variation_ns);
    PRINT(rgc_quality, loss_per_mille);
    PRINT(rgc_quality, window_bytes);
    PRINT(rgc_quality, in_flight_bytes);
    PRINT(rgc_quality, reserved);
    PRINT(rgc_quality, reliable_bytes);
    PRINT(rgc_statistics, size);
    PRINT(rgc_statistics, datagrams_in);
    PRINT(rgc_statistics, bytes_in);
    PRINT(rgc_statistics, refused_in);
    PRINT(rgc_statistics, datagrams_out);
    PRINT(rgc_statistics, bytes_out);
    PRINT(rgc_statistics, unsent);
    PRINT(rgc_statistics, messages_in);
    PRINT(rgc_statistics, messages_out);
    return 0;
}
