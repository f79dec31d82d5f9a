"""What players have sent comes again, at gateways that their router may not send it to.

    replay.py INTERFACE OUT=MAC...

Of each 20 datagrams to 10.9.9.9 that come in by an interface one comes again by all others, 0.2 to 30 s later.
"""

import heapq
import random
import select
import signal
import socket
import sys
import time

EACH, MOST = 20, 100_000


def packets(interface):
    on = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    on.bind((interface, 0x0800))
    return on


def main():
    taken = packets(sys.argv[1])
    ways = []
    for way in sys.argv[2:]:
        interface, mac = way.split("=")
        ways.append((packets(interface), bytes.fromhex(mac.replace(":", ""))))
    waiting, count, said = [], 0, 0

    def end(*_):
        print(f"{said} datagrams came again at each of {len(ways)}", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    random.seed(1)
    while True:
        left = max(0, waiting[0][0] - time.monotonic()) if waiting else 1
        if select.select([taken], [], [], left)[0]:
            frame, (_, _, kind, *_) = taken.recvfrom(2048)
            is_players = kind != socket.PACKET_OUTGOING and frame[23] == 17 and frame[30:34] == bytes([10, 9, 9, 9])
            if is_players:
                count += 1
            if is_players and count % EACH == 0 and len(waiting) < MOST:
                heapq.heappush(waiting, (time.monotonic() + random.uniform(0.2, 30), count, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            frame = heapq.heappop(waiting)[2]
            for out, mac in ways:
                out.send(mac + frame[6:])
            said += 1


main()
