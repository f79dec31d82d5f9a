"""Closes the first player that comes after delivery, and says what becomes of it."""

import sys

from ringgate_backend import Backend, Channel, CloseReason, Kind, SendError


def result(send, *arguments):
    """0, or the number of what refuses it."""
    try:
        send(*arguments)
    except SendError as error:
        return error.result
    return 0


def try_lengths(backend, session):
    """Each length that may be taken, and the next."""
    for kind, longest in ((Channel.RELIABLE, 65536), (Channel.UNRELIABLE, 1159)):
        for length in (longest, longest + 1):
            print("message", length, result(backend.send_message, session, (kind, 0), bytes(length)), flush=True)
    for length in (1159, 1160, 1200, 1201):
        taken = backend.multicast([session], bytes(length))
        print("payload", length, result(backend.send, session, bytes(length)), taken, flush=True)
    print("asked", result(backend.ask_quality, session), flush=True)


with Backend(sys.argv[1], sys.argv[2]) as backend:
    is_over = False
    while not is_over:
        backend.wait()
        for event in backend.events():
            if event.kind == Kind.OPENED:
                print("opened", event.delivers, flush=True)
                try_lengths(backend, event.session)
                if not event.delivers:
                    continue
                try:
                    backend.close_session_after(event.session, CloseReason.KICKED, 5, "x" * 201)
                except SendError as error:
                    print("refused", error.result, flush=True)
                backend.close_session_after(event.session, CloseReason.KICKED, 5, "adé")
            elif event.kind == Kind.LINGERED:
                print("lingered", event.waiting_bytes, event.is_told, flush=True)
            elif event.kind == Kind.CLOSED:
                print("closed", int(event.reason), flush=True)
                is_over = True
