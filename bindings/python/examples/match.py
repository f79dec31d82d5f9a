#!/usr/bin/env python3
"""A game server for one match, in Python, which registers itself with the fleet of its gateway.

It is starting while it loads, ready for anybody, allocated once somebody plays, and draining when all have left. Then it ends, and
with it what stands in the fleet. Every player gets back what it sends.

    PYTHONPATH=bindings/python python3 bindings/python/examples/match.py /run/ringgate arena-1
"""

import sys

from ringgate_backend import Backend, Kind, SendError, State, worker_of


class Match:
    def __init__(self, backend):
        self.backend = backend
        self.players = set()

    def becomes(self, state):
        """Says what it is from now on. The gateway counts its players."""
        self.state = state
        self.backend.announce("arena", 4, state, labels={"map": "dust", "mode": "café"})

    def handle(self, event):
        if event.kind == Kind.OPENED:
            self.players.add(event.session)
            print(len(self.players), "players")
            self.becomes(State.ALLOCATED)
        elif event.kind == Kind.PAYLOAD:
            try:
                self.backend.send(event.session, event.bytes)
            except SendError:
                pass  # A full link drops the answer, as the internet would; stats count it.
        elif event.kind in (Kind.CLOSED, Kind.MOVED):
            # One who was moved is another process's, and as gone as one who has left.
            self.players.discard(event.session)
            print(len(self.players), "players")
            if not self.players:
                self.becomes(State.DRAINING)
        elif event.kind == Kind.LINK_LOST:
            # Players who are still there are opened again when the link is back.
            self.players = {session for session in self.players if worker_of(session) != event.worker}


def main():
    run_dir, name = sys.argv[1:] if len(sys.argv) > 2 else ("/run/ringgate", "arena-1")
    # No [[backend]] of a config names it, so it may start before its gateway knows of it.
    with Backend(run_dir, name, may_start_alone=True) as backend:
        match, standing = Match(backend), backend.standing
        match.becomes(State.STARTING)
        # Here a real server loads its level.
        match.becomes(State.READY)
        is_over = False
        while not is_over:
            # Who was on the way when the last one left plays on: the end comes a turn later.
            is_empty = match.state == State.DRAINING
            backend.wait(1 if is_empty else None)
            for event in backend.events():
                match.handle(event)
            backend.flush()
            is_over = is_empty and match.state == State.DRAINING
            if backend.standing != standing:
                standing = backend.standing
                print(backend.standing_text)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
