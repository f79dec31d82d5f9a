#!/usr/bin/env python3
"""The smallest game server in Python: every player gets back what it sends.

    PYTHONPATH=bindings/python python3 bindings/python/examples/echo.py /run/ringgate arena-1
"""

import sys

from ringgate_backend import Backend, Kind, SendError


def handle(backend, event):
    if event.kind == Kind.PAYLOAD:
        try:
            backend.send(event.session, event.bytes)
        except SendError:
            pass  # A full link drops the answer, as the internet would; stats count it.
    elif event.kind == Kind.OPENED:
        print(f"player {event.client_id} in slot {event.slot} of {event.slots_max}, by {event.listener}")
    elif event.kind == Kind.CLOSED:
        print(f"session {event.session:x} is over: {event.reason.name}")
    elif event.kind == Kind.LINK_UP:
        print(f"link {event.worker} of {event.workers} is up")
    elif event.kind == Kind.LINK_LOST:
        print(f"link {event.worker} is down: {event.text}")


def main():
    run_dir, name = sys.argv[1:] if len(sys.argv) > 2 else ("/run/ringgate", "arena-1")
    with Backend(run_dir, name, may_start_alone=True) as backend:
        while True:
            backend.wait()
            for event in backend.events():
                handle(backend, event)
            backend.flush()
            sys.stdout.flush()


if __name__ == "__main__":
    main()
