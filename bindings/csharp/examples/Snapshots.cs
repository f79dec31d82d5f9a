// A game server with a world, in C#: 30 times a second, every player is told the state of all.
//
// A player's state is the first four bytes of its last payload. A snapshot is the tick's number and
// eight bytes for each player (slot, state), little-endian.
//
//     mcs -unsafe bindings/csharp/Ringgate.Backend.cs bindings/csharp/examples/Snapshots.cs -out:Snapshots.exe
//     mono Snapshots.exe /run/ringgate arena-1

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using Ringgate;

sealed class Snapshots {
    const int PayloadBytesMax = 1200, PlayersMax = (PayloadBytesMax - 4) / 8;
    static readonly TimeSpan Tick = TimeSpan.FromSeconds(1.0 / 30);

    sealed class Player {
        internal uint Slot;
        internal readonly byte[] State = new byte[4];
    }

    readonly Dictionary<ulong, Player> players = new Dictionary<ulong, Player>();
    readonly ulong[] sessions = new ulong[PlayersMax];
    readonly byte[] snapshot = new byte[PayloadBytesMax];
    uint ticks;

    static void Main(string[] arguments) {
        bool isTold = arguments.Length > 1;
        var world = new Snapshots();
        var clock = Stopwatch.StartNew();
        TimeSpan next = Tick;
        using (var backend = new Backend(isTold ? arguments[0] : "/run/ringgate", isTold ? arguments[1] : "arena-1",
                                         mayStartAlone: true)) {
            for (var e = new Event(); ; backend.Flush()) {
                backend.Wait(next - clock.Elapsed);
                while (backend.Next(e))
                    world.Handle(backend, e);
                if (clock.Elapsed < next)
                    continue;
                // After a stall the missed ticks are left out instead of being sent all at once.
                next = next + Tick > clock.Elapsed ? next + Tick : clock.Elapsed;
                world.Tell(backend);
            }
        }
    }

    void Handle(Backend backend, Event e) {
        switch (e.Kind) {
        case Kind.Opened:
            if (players.Count < PlayersMax)
                players[e.Session] = new Player { Slot = e.Slot };
            else
                backend.CloseSession(e.Session, CloseReason.Refused);
            break;
        case Kind.Payload:
            Player player;
            if (e.Bytes.Count >= 4 && players.TryGetValue(e.Session, out player))
                Array.Copy(e.Bytes.Array, e.Bytes.Offset, player.State, 0, 4);
            break;
        case Kind.Closed:
        case Kind.Moved: // to another process: as gone from here as one who has left
            players.Remove(e.Session);
            break;
        case Kind.LinkLost:
            foreach (ulong session in players.Keys.Where(it => Backend.WorkerOf(it) == e.Worker).ToList())
                players.Remove(session);
            break;
        }
    }

    void Tell(Backend backend) {
        int count = 0;
        Put(0, ++ticks);
        foreach (KeyValuePair<ulong, Player> it in players) {
            Put(4 + 8 * count, it.Value.Slot);
            Array.Copy(it.Value.State, 0, snapshot, 8 + 8 * count, 4);
            sessions[count++] = it.Key;
        }
        backend.Multicast(new ArraySegment<ulong>(sessions, 0, count), new ArraySegment<byte>(snapshot, 0, 4 + 8 * count));
    }

    void Put(int at, uint value) {
        for (int n = 0; n < 4; n++)
            snapshot[at + n] = (byte)(value >> (8 * n));
    }
}
