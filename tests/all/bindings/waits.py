"""Waits for times that have passed, and then in each of the ways that end with what the gateway says. It has a child that lives as
long as its input."""

import math
import multiprocessing
import os
import sys

from ringgate_backend import Backend, Standing


def take(backend, *timeout):
    """What comes next, and that the turn is over with it."""
    events = []
    while not events:
        backend.wait(*timeout)
        events = [int(event.kind) for event in backend.events()]
    print("event", *events, flush=True)


with Backend(sys.argv[1], sys.argv[2]) as backend:
    multiprocessing.get_context("fork").Process(target=os.read, args=(os.dup(0), 1)).start()
    assert Standing(7) is Standing.REFUSED, "of a later library"
    take(backend)
    for passed in (0, -1, -1e-9, -1e300, -math.inf):
        assert backend.wait(passed) is False
    try:
        backend.wait(math.nan)
        sys.exit("NaN is no time")
    except ValueError:
        pass
    print("waited", flush=True)
    take(backend)
    take(backend, None)
    take(backend, 1e12)
    take(backend, math.inf)
