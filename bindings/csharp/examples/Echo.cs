// The smallest game server in C#: every player gets back what it sends.
//
//     mcs -unsafe bindings/csharp/Ringgate.Backend.cs bindings/csharp/examples/Echo.cs -out:Echo.exe
//     mono Echo.exe /run/ringgate arena-1

using System;
using Ringgate;

static class Echo {
    static void Main(string[] arguments) {
        bool isTold = arguments.Length > 1;
        using (var backend = new Backend(isTold ? arguments[0] : "/run/ringgate", isTold ? arguments[1] : "arena-1",
                                         mayStartAlone: true)) {
            var e = new Event();
            for (;;) {
                backend.Wait();
                while (backend.Next(e))
                    Handle(backend, e);
                backend.Flush();
                Console.Out.Flush();
            }
        }
    }

    static void Handle(Backend backend, Event e) {
        switch (e.Kind) {
        case Kind.Payload:
            // A full link drops the answer, as the internet would; Stats count it.
            backend.Send(e.Session, e.Bytes);
            break;
        case Kind.Opened:
            Console.WriteLine("player {0} in slot {1} of {2}, by {3}", e.ClientId, e.Slot, e.SlotsMax, e.Listener);
            break;
        case Kind.Closed:
            Console.WriteLine("session {0:x} is over: {1}", e.Session, Backend.Words(e.Reason));
            break;
        case Kind.LinkUp:
            Console.WriteLine("link {0} of {1} is up", e.Worker, e.Workers);
            break;
        case Kind.LinkLost:
            Console.WriteLine("link {0} is down: {1}", e.Worker, e.Text);
            break;
        }
    }
}
