// A game server for one match, in C#, which registers itself with the fleet of its gateway: starting
// while it loads, ready for anybody, allocated once somebody plays, draining when all have left. Then
// it ends, and with it what stands in the fleet. Every player gets back what it sends.
//
//     mcs -unsafe bindings/csharp/Ringgate.Backend.cs bindings/csharp/examples/Match.cs -out:Match.exe
//     mono Match.exe /run/ringgate arena-1

using System;
using System.Collections.Generic;
using Ringgate;

sealed class Match {
    readonly Backend backend;
    readonly HashSet<ulong> players = new HashSet<ulong>();
    readonly Announcement what = new Announcement { Group = "arena", Slots = 4 };

    static void Main(string[] arguments) {
        bool isTold = arguments.Length > 1;
        // No [[backend]] of a config names it, so it may start before its gateway knows of it.
        using (var backend = new Backend(isTold ? arguments[0] : "/run/ringgate", isTold ? arguments[1] : "arena-1",
                                         mayStartAlone: true))
            new Match(backend).Play();
    }

    Match(Backend backend) {
        this.backend = backend;
        what.Labels["map"] = "dust";
        what.Labels["mode"] = "caf\u00e9";
    }

    void Play() {
        var standing = backend.Standing;
        var e = new Event();
        Becomes(State.Starting);
        // Here a real server loads its level.
        Becomes(State.Ready);
        for (var isOver = false; !isOver;) {
            // Who was on the way when the last one left plays on: the end comes a turn later.
            bool isEmpty = what.State == State.Draining;
            backend.Wait(isEmpty ? TimeSpan.FromSeconds(1) : TimeSpan.MaxValue);
            while (backend.Next(e))
                Handle(e);
            backend.Flush();
            isOver = isEmpty && what.State == State.Draining;
            if (backend.Standing != standing) {
                standing = backend.Standing;
                Console.WriteLine(Backend.Words(standing));
            }
            Console.Out.Flush();
        }
    }

    // Says what it is from now on. The gateway counts its players.
    void Becomes(State state) {
        what.State = state;
        backend.Announce(what);
    }

    void Handle(Event e) {
        switch (e.Kind) {
        case Kind.Opened:
            players.Add(e.Session);
            Console.WriteLine("{0} players", players.Count);
            Becomes(State.Allocated);
            break;
        case Kind.Payload:
            // A full link drops the answer, as the internet would; Stats count it.
            backend.Send(e.Session, e.Bytes);
            break;
        case Kind.Closed:
        case Kind.Moved: // to another process: as gone from here as one who has left
            players.Remove(e.Session);
            Console.WriteLine("{0} players", players.Count);
            if (players.Count == 0)
                Becomes(State.Draining);
            break;
        case Kind.LinkLost:
            // Players who are still there are opened again when the link is back.
            players.RemoveWhere(session => Backend.WorkerOf(session) == e.Worker);
            break;
        }
    }
}
