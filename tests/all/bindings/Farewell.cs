// Closes the first player that comes after delivery, and says what becomes of it.

using System;
using System.Text;
using Ringgate;

static class Farewell {
    // Each length that may be taken, and the next.
    static void TryLengths(Backend backend, ulong session) {
        foreach (var kind in new[] { ChannelKind.Reliable, ChannelKind.Unreliable }) {
            int longest = kind == ChannelKind.Reliable ? 65536 : 1159;
            for (int length = longest; length <= longest + 1; length++) {
                var message = new ArraySegment<byte>(new byte[length]);
                Console.WriteLine("message " + length + " " + (int)backend.SendMessage(session, kind, 0, message));
            }
        }
        foreach (int length in new[] { 1159, 1160, 1200, 1201 }) {
            var payload = new ArraySegment<byte>(new byte[length]);
            int taken = backend.Multicast(new ArraySegment<ulong>(new[] { session }), payload);
            Console.WriteLine("payload " + length + " " + (int)backend.Send(session, payload) + " " + taken);
        }
        Console.WriteLine("asked " + (int)backend.AskQuality(session));
    }

    static void Main(string[] args) {
        using (var backend = new Backend(args[0], args[1])) {
            var e = new Event();
            for (bool isOver = false; !isOver; backend.Flush()) {
                backend.Wait();
                while (backend.Next(e)) {
                    if (e.Kind == Kind.Opened) {
                        Console.WriteLine("opened " + e.Delivers);
                        TryLengths(backend, e.Session);
                        if (!e.Delivers)
                            continue;
                        var linger = TimeSpan.FromSeconds(5);
                        var refused = backend.CloseSessionAfter(e.Session, CloseReason.Kicked, linger, new byte[201]);
                        Console.WriteLine("refused " + (int)refused);
                        backend.CloseSessionAfter(e.Session, CloseReason.Kicked, linger, Encoding.UTF8.GetBytes("adé"));
                    } else if (e.Kind == Kind.Lingered) {
                        Console.WriteLine("lingered " + e.WaitingBytes + " " + e.IsDelivered);
                    } else if (e.Kind == Kind.Closed) {
                        Console.WriteLine("closed " + (int)e.Reason);
                        isOver = true;
                    }
                }
            }
        }
    }
}
