"""Has a player moved away and takes another one in, and says what it hears."""

import sys

from ringgate_backend import Backend, Channel, Kind, SendError


def move(backend, *arguments, **more):
    """0, or the number of what refuses it."""
    try:
        backend.move_session(*arguments, **more)
    except SendError as error:
        return error.result
    return 0


def try_to_move(backend, session):
    """What cannot be moved, and then what can: in its longest form, and its shortest."""
    print(
        "moves",
        move(backend, session, "zone 2"),
        move(backend, session, "zone-2", data=bytes(1025)),
        move(backend, session, "zone-2", message=b"door"),
        move(backend, session, "zone-2", channel=(Channel.RELIABLE, 0), message=b""),
        move(backend, session, "zone-2", 12, b"le\0vel", time=7, confirms=True, channel=(Channel.SEQUENCED, 3), message=b"do\0or"),
        move(backend, session, "zone-2"),
        flush=True,
    )


with Backend(sys.argv[1], sys.argv[2]) as backend:
    is_over = False
    while not is_over:
        backend.wait()
        for event in backend.events():
            if event.kind == Kind.OPENED:
                print("opened", event.delivers, event.is_moved, event.ticket, event.listener, flush=True)
                if not event.is_moved:
                    try_to_move(backend, event.session)
            elif event.kind == Kind.MOVE_REFUSED:
                print("refused", event.ticket, int(event.reason), event.text, flush=True)
            elif event.kind == Kind.OFFERED:
                print(
                    "offered", event.offer, event.ticket, int(event.left * 1000), event.client_id, f"{event.address}:{event.port}", event.slot,
                    event.slots_max, event.user_data[0], len(event.user_data), event.listener, event.source, event.delivers,
                    event.bytes.decode(), flush=True,
                )
                backend.answer(event.session, event.offer, len(event.bytes) > 0)
            elif event.kind == Kind.OFFER_OVER:
                print("over", event.offer, int(event.reason), event.text, flush=True)
            elif event.kind == Kind.MOVED:
                print("moved", event.ticket, flush=True)
                is_over = True
    backend.flush()
