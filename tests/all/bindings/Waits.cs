// Waits for times that have passed, and then in each of the ways that end with what the gateway says.
using System;
using System.Threading;
using Ringgate;

static class Waits {
    // What comes next, and that the turn is over with it.
    static void Take(Backend backend, Func<bool> wait) {
        var e = new Event();
        for (int waits = 0; !backend.Next(e); waits++) {
            wait();
            if (waits > 1000)
                throw new Exception("it does not wait");
        }
        int kind = (int)e.Kind;
        if (backend.Next(e))
            throw new Exception("more than one event");
        Console.WriteLine("event " + kind);
    }

    static void Main(string[] arguments) {
        using (var backend = new Backend(arguments[0], arguments[1])) {
            Take(backend, backend.Wait);
            foreach (var passed in new[] { TimeSpan.Zero, TimeSpan.FromTicks(-1), TimeSpan.MinValue,
                                           Timeout.InfiniteTimeSpan })
                if (backend.Wait(passed))
                    throw new Exception("nothing has come");
            Console.WriteLine("waited");
            Take(backend, backend.Wait);
            Take(backend, () => backend.Wait(TimeSpan.MaxValue));
            Take(backend, () => backend.Wait(TimeSpan.FromTicks(long.MaxValue / 100 + 1)));
            Take(backend, () => backend.Wait(TimeSpan.FromTicks(1L << 62)));
        }
    }
}
