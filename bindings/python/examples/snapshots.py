#!/usr/bin/env python3
"""A game server with a world, in Python: 30 times a second, every player is told the state of all.

A player's state is the first four bytes of its last payload. A snapshot is the tick's number and eight bytes for each player
(slot, state), little-endian.

    PYTHONPATH=bindings/python python3 bindings/python/examples/snapshots.py /run/ringgate arena-1
"""

import struct
import sys
import time

from ringgate_backend import PAYLOAD_BYTES_MAX, Backend, CloseReason, Kind, worker_of

TICK = 1 / 30
PLAYERS_MAX = (PAYLOAD_BYTES_MAX - 4) // 8


class World:
    def __init__(self):
        self.tick = 0
        self.players = {}  # session: (slot, state)

    def handle(self, backend, event):
        if event.kind == Kind.OPENED:
            if len(self.players) < PLAYERS_MAX:
                self.players[event.session] = (event.slot, bytes(4))
            else:
                backend.close_session(event.session, CloseReason.REFUSED)
        elif event.kind == Kind.PAYLOAD and event.session in self.players and len(event.bytes) >= 4:
            self.players[event.session] = (self.players[event.session][0], event.bytes[:4])
        elif event.kind in (Kind.CLOSED, Kind.MOVED):
            # One who was moved is another process's, and as gone as one who has left.
            self.players.pop(event.session, None)
        elif event.kind == Kind.LINK_LOST:
            gone = [session for session in self.players if worker_of(session) == event.worker]
            for session in gone:
                del self.players[session]

    def tell(self, backend):
        self.tick += 1
        rows = (struct.pack("<I4s", slot, state) for slot, state in self.players.values())
        backend.multicast(list(self.players), struct.pack("<I", self.tick) + b"".join(rows))


def main():
    run_dir, name = sys.argv[1:] if len(sys.argv) > 2 else ("/run/ringgate", "arena-1")
    world, next_tick = World(), time.monotonic() + TICK
    with Backend(run_dir, name, may_start_alone=True) as backend:
        while True:
            backend.wait(next_tick - time.monotonic())
            for event in backend.events():
                world.handle(backend, event)
            now = time.monotonic()
            if now >= next_tick:
                # After a stall the missed ticks are left out instead of being sent all at once.
                next_tick = max(next_tick + TICK, now)
                world.tell(backend)
            backend.flush()


if __name__ == "__main__":
    main()
