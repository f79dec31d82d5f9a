/*
 * Connects to the run_dir of its first argument and prints every event as one line, with every field
 * that the event sets, until the link is lost. Then the next line of standard input lets it go on.
 */
#define RG__BACKOFF_NS_MIN INT64_C(500000)
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"

static void print_hex(const char *name, const uint8_t *bytes, size_t len) {
    size_t n;
    printf(" %s=", name);
    for (n = 0; n < len; n++)
        printf("%02x", bytes[n]);
}

/* An IPv4 address has no scope, whatever the record says. */
static unsigned scope_of(const struct rg_event *event) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(event->ip, mapped, sizeof mapped) == 0 ? 0 : (unsigned)event->scope;
}

static void print_event(const struct rg_event *event) {
    unsigned long long session = event->session;
    switch (event->kind) {
    case RG_LINK_UP:
        printf("up workers=%u incarnation=%llu version=%u", event->workers,
               (unsigned long long)event->incarnation, event->version);
        break;
    case RG_OPENED:
        printf("opened session=%llu client=%llu scope=%u port=%u slot=%u of=%u delivers=%d moved=%d "
               "ticket=%llu listener=%s",
               session, (unsigned long long)event->client_id, scope_of(event),
               (unsigned)event->port, (unsigned)event->slot, (unsigned)event->slots_max,
               event->delivers, event->is_moved, (unsigned long long)event->ticket,
               event->listener);
        print_hex("ip", event->ip, 16);
        print_hex("user", event->user_data, RG_USER_DATA_BYTES);
        break;
    case RG_OPENED_PLAIN:
        printf("opened_plain session=%llu scope=%u port=%u slot=%u of=%u listener=%s", session,
               scope_of(event), (unsigned)event->port, (unsigned)event->slot,
               (unsigned)event->slots_max, event->listener);
        print_hex("ip", event->ip, 16);
        break;
    case RG_PAYLOAD:
        printf("payload session=%llu", session);
        print_hex("bytes", event->bytes, event->bytes_len);
        break;
    case RG_MESSAGE:
        printf("message session=%llu kind=%u channel=%u", session, event->channel_kind,
               event->channel);
        print_hex("bytes", event->bytes, event->bytes_len);
        break;
    case RG_REPORT:
        printf("report session=%llu token=%llu is_delivered=%d", session,
               (unsigned long long)event->token, event->is_delivered);
        break;
    case RG_ROOM:
        printf("room session=%llu is_full=%d waiting=%u", session, event->is_full,
               (unsigned)event->waiting_bytes);
        break;
    case RG_QUALITY:
        printf("quality session=%llu round_trip=%llu variation=%llu loss=%u waiting=%u", session,
               (unsigned long long)event->round_trip_ns,
               (unsigned long long)event->variation_ns, event->loss_per_mille,
               (unsigned)event->waiting_bytes);
        break;
    case RG_LINGERED:
        printf("lingered session=%llu waiting=%u is_told=%d", session,
               (unsigned)event->waiting_bytes, event->is_delivered);
        break;
    case RG_OFFERED:
        printf("offered session=%llu offer=%llu ticket=%llu client=%llu scope=%u port=%u slot=%u "
               "of=%u left=%u delivers=%d listener=%s from=%s",
               session, (unsigned long long)event->offer, (unsigned long long)event->ticket,
               (unsigned long long)event->client_id, scope_of(event), (unsigned)event->port,
               (unsigned)event->slot, (unsigned)event->slots_max, (unsigned)event->left_ms,
               event->delivers, event->listener, event->from);
        print_hex("ip", event->ip, 16);
        print_hex("user", event->user_data, RG_USER_DATA_BYTES);
        print_hex("bytes", event->bytes, event->bytes_len);
        break;
    case RG_OFFER_OVER:
        printf("offer_over session=%llu offer=%llu reason=%u", session,
               (unsigned long long)event->offer, event->reason);
        break;
    case RG_MOVED:
        printf("moved session=%llu ticket=%llu", session, (unsigned long long)event->ticket);
        break;
    case RG_MOVE_REFUSED:
        printf("move_refused session=%llu ticket=%llu reason=%u", session,
               (unsigned long long)event->ticket, event->reason);
        break;
    case RG_CLOSED:
        printf("closed session=%llu reason=%u", session, event->reason);
        break;
    case RG_PONG:
        printf("pong");
        break;
    case RG_DRAINING:
        printf("draining left=%u", (unsigned)event->left_ms);
        break;
    case RG_UNDRAINED:
        printf("undrained");
        break;
    case RG_LINK_LOST:
        printf("lost reason=%u error=%u", event->reason, event->error);
        break;
    }
    printf("\n");
}

int main(int argc, char **argv) {
    rg_backend *backend = rg_connect(argc > 1 ? argv[1] : "", "reader");
    struct rg_event event;
    char line[8];
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (backend == NULL) {
        perror("rg_connect");
        return 1;
    }
    while (rg_wait(backend, -1) >= 0) {
        while (rg_next(backend, &event) > 0) {
            print_event(&event);
            if (event.kind == RG_LINK_LOST) {
                if (fgets(line, sizeof line, stdin) == NULL) {
                    rg_free(backend);
                    return 0;
                }
            }
        }
    }
    return 1;
}
