/* Where the fields of the first version of the library stand. Those that came later are missing. */
#include "ringgate_backend.h"

#include <stdio.h>

#define PRINT(name, field) printf("%s.%s %zu\n", #name, #field, offsetof(struct name, field))

int main(void) {
    PRINT(rg_event, kind);
    PRINT(rg_event, worker);
    PRINT(rg_event, workers);
    PRINT(rg_event, reason);
    PRINT(rg_event, error);
    PRINT(rg_event, incarnation);
    PRINT(rg_event, session);
    PRINT(rg_event, client_id);
    PRINT(rg_event, ip);
    PRINT(rg_event, scope);
    PRINT(rg_event, port);
    PRINT(rg_event, slot);
    PRINT(rg_event, slots_max);
    PRINT(rg_event, user_data);
    PRINT(rg_event, listener);
    PRINT(rg_event, bytes);
    PRINT(rg_event, bytes_len);
    PRINT(rg_event, round_trip_ns);
    PRINT(rg_event, left_ms);
    PRINT(rg_event, payloads_unsent);
    PRINT(rg_event, version);
    PRINT(rg_event, channel_kind);
    PRINT(rg_event, channel);
    PRINT(rg_event, token);
    PRINT(rg_event, is_delivered);
    PRINT(rg_event, is_full);
    PRINT(rg_event, waiting_bytes);
    PRINT(rg_event, variation_ns);
    PRINT(rg_event, loss_per_mille);
    PRINT(rg_event, user);
    PRINT(rg_stats, payloads_taken);
    PRINT(rg_stats, payloads_sent);
    PRINT(rg_stats, payloads_lost);
    PRINT(rg_stats, payloads_link_down);
    PRINT(rg_stats, payloads_link_full);
    PRINT(rg_stats, bundles_sent);
    PRINT(rg_options, run_dir);
    PRINT(rg_options, name);
    PRINT(rg_options, spin_ns);
    PRINT(rg_options, queue_bundles);
    PRINT(rg_options, may_start_alone);
    PRINT(rg_options, batch_delay_ns);
    return 0;
}
