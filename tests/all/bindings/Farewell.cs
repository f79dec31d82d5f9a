// Closes the first player that comes after delivery, and says what becomes of it.

using System;
using System.Text;
using Ringgate;

static class Farewell {
    static void Main(string[] args) {
        using (var backend = new Backend(args[0], args[1])) {
            var e = new Event();
            for (bool isOver = false; !isOver; backend.Flush()) {
                backend.Wait();
                while (backend.Next(e)) {
                    if (e.Kind == Kind.Opened) {
                        Console.WriteLine("opened " + e.Delivers);
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
