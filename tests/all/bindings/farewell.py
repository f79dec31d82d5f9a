"""Closes the first player that comes after delivery, and says what becomes of it."""

import sys

from ringgate_backend import Backend, CloseReason, Kind, SendError

with Backend(sys.argv[1], sys.argv[2]) as backend:
    is_over = False
    while not is_over:
        backend.wait()
        for event in backend.events():
            if event.kind == Kind.OPENED:
                print("opened", event.delivers, flush=True)
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
