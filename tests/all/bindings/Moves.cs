// Has a player moved away and takes another one in, and says what it hears.

using System;
using System.Text;
using Ringgate;

static class Moves {
    // What cannot be moved, and then what can: in its longest form, and its shortest.
    static void TryToMove(Backend backend, ulong session) {
        byte[] door = Encoding.UTF8.GetBytes("do\0or"), data = Encoding.UTF8.GetBytes("le\0vel");
        var moves = new[] {
            new Move { Backend = "zone 2" },
            new Move { Backend = "zone-2", Data = new byte[1025] },
            new Move { Backend = "zone-2", Message = door, ChannelKind = 0 },
            new Move { Backend = "zone-2", Message = new byte[0] },
            new Move {
                Backend = "zone-2", Ticket = 12, Data = data, Time = TimeSpan.FromSeconds(7), Confirms = true, Message = door,
                ChannelKind = ChannelKind.Sequenced, Channel = 3
            },
            new Move { Backend = "zone-2" }
        };
        Console.WriteLine("moves " + string.Join(" ", Array.ConvertAll(moves, it => (int)backend.MoveSession(session, it))));
    }

    static void Main(string[] args) {
        using (var backend = new Backend(args[0], args[1])) {
            var e = new Event();
            for (bool isOver = false; !isOver; backend.Flush()) {
                backend.Wait();
                while (backend.Next(e)) {
                    if (e.Kind == Kind.Opened) {
                        Console.WriteLine("opened " + e.Delivers + " " + e.IsMoved + " " + e.Ticket + " " + e.Listener);
                        if (!e.IsMoved)
                            TryToMove(backend, e.Session);
                    } else if (e.Kind == Kind.MoveRefused) {
                        Console.WriteLine("refused " + e.Ticket + " " + (int)e.Refusal + " " + Backend.Words(e.Refusal));
                    } else if (e.Kind == Kind.Offered) {
                        string data = Encoding.UTF8.GetString(e.Bytes.Array, e.Bytes.Offset, e.Bytes.Count);
                        Console.WriteLine(string.Join(" ", "offered", e.Offer, e.Ticket, e.Left.TotalMilliseconds, e.ClientId,
                                                      e.Address, e.Slot, e.SlotsMax, e.UserData.Array[e.UserData.Offset],
                                                      e.UserData.Count, e.Listener, e.From, e.Delivers, data));
                        backend.Answer(e.Session, e.Offer, e.Bytes.Count > 0);
                    } else if (e.Kind == Kind.OfferOver) {
                        Console.WriteLine("over " + e.Offer + " " + (int)e.Refusal + " " + Backend.Words(e.Refusal));
                    } else if (e.Kind == Kind.Moved) {
                        Console.WriteLine("moved " + e.Ticket);
                        isOver = true;
                    }
                }
            }
        }
    }
}
