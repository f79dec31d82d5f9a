// The game server's end of ringgate's bundle link for .NET, Mono and Unity, over the C library
// libringgate_backend.so. C# 7.3, netstandard 2.0; compile with /unsafe ("Allow 'unsafe' code" in Unity).
//
//     using (var backend = new Backend("/run/ringgate", "arena-1"))
//         for (var e = new Event(); ; backend.Flush()) {
//             backend.Wait();
//             while (backend.Next(e))
//                 if (e.Kind == Kind.Payload)
//                     backend.Send(e.Session, e.Bytes);
//         }
//
// A turn is: take every event, answer, flush once. Only Wait blocks. One thread at a time may use a
// backend. Nothing is allocated for an event but the texts of Listener and Text.

using System;
using System.Collections.Generic;
using System.ComponentModel;
using System.Net;
using System.Runtime.InteropServices;
using System.Text;

namespace Ringgate {
    /// <summary>What happened, and which fields of an Event are set besides Kind and Worker.</summary>
    public enum Kind {
        LinkUp = 1,      // Workers, Incarnation, Version
        Opened = 2,      // Session, ClientId, Address, Slot, SlotsMax, UserData, Listener, Delivers, IsMoved, Ticket
        Payload = 3,     // Session, Bytes
        Closed = 4,      // Session, Reason
        Pong = 5,        // RoundTrip
        Draining = 6,    // Left: no new players come, and the gateway will shut down
        LinkLost = 7,    // Text, PayloadsUnsent: forget all sessions of the worker
        OpenedPlain = 8, // Session, Address, Slot, SlotsMax, Listener
        Undrained = 9,   // the gateway takes players again
        Message = 10,    // Session, ChannelKind, Channel, Bytes: of a listener with delivery = "gateway"
        Report = 11,     // Session, Token, IsDelivered
        Room = 12,       // Session, IsFull, WaitingBytes
        Quality = 13,    // Session, RoundTrip, Variation, Loss, WaitingBytes
        Lingered = 14,   // Session, WaitingBytes, IsDelivered: what became of one that was closed with CloseSessionAfter
        // A player of another process may come, as Answer says: Session, Offer, Ticket, Left, ClientId, Address, Slot,
        // SlotsMax, UserData, Listener, Delivers, From, Bytes (0 to 1024). It is no player of this one before its Opened.
        Offered = 15,
        OfferOver = 16,  // Session, Offer, Refusal: it cannot come any more
        Moved = 17,      // Session, Ticket: at another process. The last about the session, but for a Report of what was sent before
        MoveRefused = 18 // Session, Ticket, Refusal: it plays on here
    }

    /// <summary>Why a session ended. A game may give those from Finished on.</summary>
    public enum CloseReason : uint {
        Other = 0, PlayerLeft = 1, TimedOut = 2, SequenceGap = 3, SequenceExhausted = 4, Shutdown = 5, Operator = 6,
        Unconfigured = 7, Delivery = 8, Overflow = 9, NewerLogin = 10, Moved = 11, Finished = 128, Kicked = 129, Refused = 130, GameShutdown = 131
    }

    /// <summary>Why a player was not moved.</summary>
    public enum MoveRefusal : uint {
        Other = 0, NoSuchBackend = 1, Itself = 2, Full = 3,
        NotLinked = 4, // no process is connected there
        Denied = 5,    // by the process there
        Time = 6,      // it has not answered in time
        Version = 7,
        Front = 8,      // players of this protocol, or of servers on a udp link
        NotAllowed = 9, // by the listener's config
        Busy = 10,      // the player is being moved already
        Offers = 11,    // 64 players are offered there already
        Closed = 12,    // nobody new is taken there, or the gateway is about to stop
        SessionOver = 13,
        PlayerFull = 14, // too much waits for the player for one message more
        SourceGone = 15  // the process that the player plays with has gone
    }

    /// <summary>The kinds of a player's channels, of each of which there are 256.</summary>
    public enum ChannelKind : uint { Reliable = 1, Sequenced = 2, Unreliable = 3 }

    /// <summary>Whether something was taken, and why not.</summary>
    public enum SendResult {
        Ok = 0, LinkDown = -1, LinkFull = -2, PayloadLength = -3, NotAChoice = -4, MessageLength = -5, NoMessages = -6,
        NoChannel = -7, FarewellLength = -8, NoDelivery = -9, // the player gets no messages, or has left
        NoMoves = -10, Name = -11, MoveLength = -12
    }

    /// <summary>What a game process is ready for.</summary>
    public enum State : uint {
        Starting = 0,  // not yet for players
        Ready = 1,     // for anybody
        Allocated = 2, // for those whom a matchmaker has sent
        Draining = 3   // for those who are there
    }

    /// <summary>What has become of an announcement.</summary>
    public enum Standing : uint {
        Waiting = 0, // the gateway is not there, or cannot reach the fleet now
        Registered = 1,
        NameTaken = 2,    // by another process, at this gateway or at another one
        NameInConfig = 3, // a [[backend]] in the gateway's config has it
        TooMany = 4,      // the gateway takes no more of the fleet
        Unauthorised = 5, // this user may not
        Invalid = 6,      // the gateway does not understand it
        Refused = 255     // also what a newer gateway says
    }

    /// <summary>What a game process is.</summary>
    public sealed class Announcement {
        /// <summary>Which listeners of the fleet lead to it: letters, digits, '.', '_' and '-', 64 at most.</summary>
        public string Group { get; set; }
        /// <summary>How many players it takes: 1 to 1,000,000.</summary>
        public uint Slots { get; set; }
        public State State { get; set; } = State.Ready;
        /// <summary>How many players it has. Without it the gateway counts them.</summary>
        public uint? Players { get; set; }
        /// <summary>What a matchmaker can choose it by, 32 at most: a name as a group's, and a text of 255 bytes at most
        /// without control characters.</summary>
        public IDictionary<string, string> Labels { get; } = new SortedDictionary<string, string>(StringComparer.Ordinal);
    }

    /// <summary>Where a player is to play. Null and zero mean none, or the default.</summary>
    public sealed class Move {
        /// <summary>The name of the other process in the gateway's config.</summary>
        public string Backend { get; set; }
        /// <summary>What both processes know the move by.</summary>
        public ulong Ticket { get; set; }
        /// <summary>So long may the other one take to answer: 2 s, and 30 s at most.</summary>
        public TimeSpan Time { get; set; }
        /// <summary>The other one is told that it has the player when this one has heard that it has lost it.</summary>
        public bool Confirms { get; set; }
        /// <summary>For the other one: at most 1024 bytes.</summary>
        public byte[] Data { get; set; }
        /// <summary>What the player is sent in between, if it gets messages: 1 to 1159 bytes, on a reliable channel behind
        /// all that this process has sent there, and before all from the other there.</summary>
        public byte[] Message { get; set; }
        public ChannelKind ChannelKind { get; set; } = ChannelKind.Reliable;
        public int Channel { get; set; }
    }

    /// <summary>What became of payloads, one for each player that a multicast names. All only grow.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Stats {
        public ulong PayloadsTaken, PayloadsSent, PayloadsLost, PayloadsLinkDown, PayloadsLinkFull, BundlesSent;
    }

    /// <summary>What happened. Make one and use it again; Bytes and UserData are good until the next call of Next.</summary>
    public sealed class Event {
        public Kind Kind { get; internal set; }
        public int Worker { get; internal set; }
        public int Workers { get; internal set; }
        public int Version { get; internal set; }
        public ulong Incarnation { get; internal set; }
        public ulong Session { get; internal set; }
        public ulong ClientId { get; internal set; }
        public IPEndPoint Address { get; internal set; }
        public uint Slot { get; internal set; }
        public uint SlotsMax { get; internal set; }
        public ArraySegment<byte> UserData { get; internal set; }
        public string Listener { get; internal set; }
        public ArraySegment<byte> Bytes { get; internal set; }
        public CloseReason Reason { get; internal set; }
        public string Text { get; internal set; }
        public ulong PayloadsUnsent { get; internal set; }
        public TimeSpan RoundTrip { get; internal set; }
        public TimeSpan Variation { get; internal set; }
        public TimeSpan Left { get; internal set; }
        public ChannelKind ChannelKind { get; internal set; }
        public int Channel { get; internal set; }
        public ulong Token { get; internal set; }
        public bool IsDelivered { get; internal set; }
        public bool IsFull { get; internal set; }
        public uint WaitingBytes { get; internal set; }
        /// <summary>The player gets messages. Gateways before version 5 do not say so.</summary>
        public bool Delivers { get; internal set; }
        public double Loss { get; internal set; }
        /// <summary>The player has come from another process, with this ticket.</summary>
        public bool IsMoved { get; internal set; }
        public ulong Ticket { get; internal set; }
        public ulong Offer { get; internal set; }
        /// <summary>Where an offered player plays.</summary>
        public string From { get; internal set; }
        public MoveRefusal Refusal { get; internal set; }

        internal readonly byte[] Buffer = new byte[Native.MessageBytesMax];
    }

    /// <summary>A game process's connection to every worker of a gateway.</summary>
    public sealed unsafe class Backend : IDisposable {
        public const uint NoSlot = 0xffffffff;

        IntPtr handle;

        /// <summary>Connects to a gateway. One that is not there yet is waited for, or an error.</summary>
        public Backend(string runDir, string name, bool mayStartAlone = false, int queueBundles = 0) {
            if (runDir == null || name == null)
                throw new ArgumentNullException(runDir == null ? nameof(runDir) : nameof(name));
            uint version = Native.rg_library_version();
            if (version >> 16 != Native.LibraryMajor || (version & 0xffff) < Native.LibraryMinor)
                throw new DllNotFoundException("libringgate_backend is not version " + Native.LibraryMajor + "." +
                                               Native.LibraryMinor + ", or a later one of " + Native.LibraryMajor);
            byte[] runDirText = Native.Text(runDir), nameText = Native.Text(name);
            fixed (byte* at = runDirText, nameAt = nameText) {
                var options = new Native.Options {
                    RunDir = at, Name = nameAt, QueueBundles = (uint)queueBundles, MayStartAlone = mayStartAlone ? 1 : 0
                };
                handle = Native.rg_connect_sized(&options, (UIntPtr)sizeof(Native.Options));
            }
            if (handle == IntPtr.Zero)
                throw new Win32Exception(Marshal.GetLastWin32Error(), "no gateway for " + name + " in " + runDir);
        }

        ~Backend() { Free(); }

        /// <summary>Hangs up on every worker.</summary>
        public void Dispose() {
            Free();
            GC.SuppressFinalize(this);
        }

        void Free() {
            Native.rg_free(handle);
            handle = IntPtr.Zero;
        }

        /// <summary>Flushes, then waits for something to do, as long as it takes. Returns whether there is something.</summary>
        public bool Wait() { return Found(Native.rg_wait(handle, -1)); }

        /// <summary>The same for so long at most: not at all below zero, which is a deadline that has
        /// passed, and as long as the library can for what it has no number for.</summary>
        public bool Wait(TimeSpan timeout) {
            return Found(Native.rg_wait(handle, Nanoseconds(timeout)));
        }

        static long Nanoseconds(TimeSpan time) {
            long ticks = Math.Max(0, time.Ticks);
            return ticks > long.MaxValue / 100 ? long.MaxValue : ticks * 100;
        }

        static bool Found(int found) {
            if (found < 0)
                throw new Win32Exception(Marshal.GetLastWin32Error());
            return found > 0;
        }

        /// <summary>The next event of this turn. False: the turn is over, so flush.</summary>
        public bool Next(Event e) {
            Native.Event native;
            do {
                if (!Found(Native.rg_next_sized(handle, &native, (UIntPtr)sizeof(Native.Event))))
                    return false;
            } while (native.Kind < (int)Kind.LinkUp || native.Kind > (int)Kind.MoveRefused); // those of later libraries
            Fill(e, &native);
            return true;
        }

        static void Fill(Event e, Native.Event* native) {
            e.Kind = (Kind)native->Kind;
            e.Worker = (int)native->Worker;
            e.Session = native->Session;
            switch (e.Kind) {
            case Kind.LinkUp:
                e.Workers = (int)native->Workers;
                e.Version = (int)native->Version;
                e.Incarnation = native->Incarnation;
                break;
            case Kind.Opened:
                FillClient(e, native);
                e.IsMoved = native->IsMoved != 0;
                break;
            case Kind.Offered:
                FillClient(e, native);
                e.Offer = native->Offer;
                e.Left = TimeSpan.FromMilliseconds(native->LeftMs);
                e.From = Native.Text((IntPtr)native->From);
                FillBytes(e, native, Native.UserDataBytes);
                break;
            case Kind.OfferOver:
            case Kind.Moved:
            case Kind.MoveRefused:
                e.Offer = native->Offer;
                e.Ticket = native->Ticket;
                e.Refusal = (MoveRefusal)native->Reason;
                break;
            case Kind.OpenedPlain:
                FillPlayer(e, native);
                break;
            case Kind.Payload:
            case Kind.Message:
                e.ChannelKind = (ChannelKind)native->ChannelKind;
                e.Channel = (int)native->Channel;
                FillBytes(e, native, 0);
                break;
            case Kind.Closed:
                e.Reason = (CloseReason)native->Reason;
                break;
            case Kind.LinkLost:
                e.Text = Native.Text(Native.rg_link_loss_text(native->Reason));
                e.PayloadsUnsent = native->PayloadsUnsent;
                break;
            default:
                e.RoundTrip = TimeSpan.FromTicks((long)(native->RoundTripNs / 100));
                e.Variation = TimeSpan.FromTicks((long)(native->VariationNs / 100));
                e.Left = TimeSpan.FromMilliseconds(native->LeftMs);
                e.Token = native->Token;
                e.IsDelivered = native->IsDelivered != 0;
                e.IsFull = native->IsFull != 0;
                e.WaitingBytes = native->WaitingBytes;
                e.Loss = native->LossPerMille / 1e3;
                break;
            }
        }

        static void FillBytes(Event e, Native.Event* native, int at) {
            Marshal.Copy((IntPtr)native->Bytes, e.Buffer, at, (int)native->BytesLen);
            e.Bytes = new ArraySegment<byte>(e.Buffer, at, (int)native->BytesLen);
        }

        static void FillClient(Event e, Native.Event* native) {
            e.ClientId = native->ClientId;
            Marshal.Copy((IntPtr)native->UserData, e.Buffer, 0, Native.UserDataBytes);
            e.UserData = new ArraySegment<byte>(e.Buffer, 0, Native.UserDataBytes);
            e.Delivers = native->Delivers != 0;
            e.Ticket = native->Ticket;
            FillPlayer(e, native);
        }

        static void FillPlayer(Event e, Native.Event* native) {
            var ip = new byte[16];
            Marshal.Copy((IntPtr)native->Ip, ip, 0, ip.Length);
            var address = new IPAddress(ip, native->Scope);
            e.Address = new IPEndPoint(address.IsIPv4MappedToIPv6 ? address.MapToIPv4() : address, native->Port);
            e.Slot = native->Slot;
            e.SlotsMax = native->SlotsMax;
            e.Listener = Native.Text((IntPtr)native->Listener);
        }

        /// <summary>Takes 1 to 1200 bytes for a player, up to 1472 for one of a plain listener, up to 1159 for one who gets
        /// messages.</summary>
        public SendResult Send(ulong session, ArraySegment<byte> payload) {
            if (payload.Count == 0)
                return SendResult.PayloadLength;
            fixed (byte* bytes = &payload.Array[payload.Offset])
                return (SendResult)Native.rg_send(handle, session, bytes, (UIntPtr)payload.Count);
        }

        public SendResult Send(ulong session, byte[] payload) { return Send(session, new ArraySegment<byte>(payload)); }

        /// <summary>Takes the same 1 to 1200 bytes for several players. Returns for how many: for none where one of them gets
        /// messages and there are more than 1159.</summary>
        public int Multicast(ArraySegment<ulong> sessions, ArraySegment<byte> payload) {
            if (sessions.Count == 0 || payload.Count == 0)
                return 0;
            fixed (ulong* ids = &sessions.Array[sessions.Offset])
            fixed (byte* bytes = &payload.Array[payload.Offset])
                return (int)Native.rg_multicast(handle, ids, (UIntPtr)sessions.Count, bytes, (UIntPtr)payload.Count);
        }

        /// <summary>Sends a whole message to a player of a listener with delivery = "gateway". With a token other than
        /// 0, a Report says what became of it.</summary>
        public SendResult SendMessage(ulong session, ChannelKind kind, int channel, ArraySegment<byte> message,
                                      ulong token = 0) {
            if (message.Count == 0)
                return SendResult.MessageLength;
            fixed (byte* bytes = &message.Array[message.Offset])
                return (SendResult)Native.rg_send_message(handle, session, (uint)kind, (uint)channel, bytes,
                                                          (UIntPtr)message.Count, token);
        }

        /// <summary>Asks how good the way to a player is, which a Quality answers.</summary>
        public SendResult AskQuality(ulong session) { return (SendResult)Native.rg_ask_quality(handle, session); }

        /// <summary>Ends a session; Closed with the same reason answers.</summary>
        public SendResult CloseSession(ulong session, CloseReason reason) {
            return (SendResult)Native.rg_close_session(handle, session, (uint)reason);
        }

        /// <summary>Ends a session of a player who gets messages when everything that was sent on reliable channels has arrived,
        /// or after so long, of which more than 30 s count as that. The player's library has the reason and the text, at most 200
        /// bytes, if it is of this release or later. Lingered and Closed answer. Other players, and those of an earlier gateway,
        /// are closed at once.</summary>
        public SendResult CloseSessionAfter(ulong session, CloseReason reason, TimeSpan linger, byte[] text = null) {
            var copy = ForPointer(text);
            fixed (byte* bytes = copy)
                return (SendResult)Native.rg_close_session_after(handle, session, (uint)reason, Milliseconds(linger), bytes,
                                                                 (UIntPtr)(copy.Length - 1));
        }

        static uint Milliseconds(TimeSpan time) {
            return (uint)Math.Min(Math.Max(0, time.TotalMilliseconds), uint.MaxValue);
        }

        // One more than there is, because an empty array cannot be pointed at.
        static byte[] ForPointer(byte[] bytes) {
            var copy = new byte[(bytes == null ? 0 : bytes.Length) + 1];
            if (bytes != null)
                bytes.CopyTo(copy, 0);
            return copy;
        }

        /// <summary>Moves a player to another game process of the gateway, if that says yes and the listener's config allows
        /// it. Moved or MoveRefused answers, unless the session is closed before. Until then the player plays on
        /// here.</summary>
        public SendResult MoveSession(ulong session, Move move) {
            if (move == null)
                throw new ArgumentNullException(nameof(move));
            byte[] name = Native.Text(move.Backend ?? ""), data = ForPointer(move.Data), message = ForPointer(move.Message);
            fixed (byte* nameAt = name, dataAt = data, messageAt = message) {
                var native = new Native.Move {
                    Backend = nameAt, Ticket = move.Ticket, TimeMs = Milliseconds(move.Time), Confirms = move.Confirms ? 1 : 0,
                    Data = dataAt, DataLen = (UIntPtr)(data.Length - 1), Message = move.Message == null ? null : messageAt,
                    MessageLen = (UIntPtr)(message.Length - 1), ChannelKind = (uint)move.ChannelKind, Channel = (uint)move.Channel
                };
                return (SendResult)Native.rg_move_session_sized(handle, session, &native, (UIntPtr)sizeof(Native.Move));
            }
        }

        /// <summary>Says whether a player may come who was Offered.</summary>
        public SendResult Answer(ulong session, ulong offer, bool isWelcome) {
            return (SendResult)Native.rg_answer(handle, session, offer, isWelcome ? 1 : 0);
        }

        /// <summary>Registers this process with the fleet of its gateway, which leads players to it from then on, and says
        /// anew what it is whenever that has changed. It stays registered as long as it runs, and a gateway that restarts is
        /// told again. Costs a message to the gateway, so a few times a second at the most. A gateway knows nobody of this name
        /// before, so connect with mayStartAlone; its refusals until then are of no concern.</summary>
        public void Announce(Announcement what) {
            if (what == null)
                throw new ArgumentNullException(nameof(what));
            var texts = new List<byte[]> { Native.Text(what.Group ?? "") };
            foreach (var label in what.Labels) {
                texts.Add(Native.Text(label.Key));
                texts.Add(Native.Text(label.Value ?? ""));
            }
            var pins = new List<GCHandle>();
            try {
                var at = new byte*[texts.Count];
                for (int n = 0; n < at.Length; n++) {
                    pins.Add(GCHandle.Alloc(texts[n], GCHandleType.Pinned));
                    at[n] = (byte*)pins[n].AddrOfPinnedObject();
                }
                // One more than there are, because an empty array cannot be pointed at.
                var labels = new Native.Label[what.Labels.Count + 1];
                for (int n = 0; n < what.Labels.Count; n++)
                    labels[n] = new Native.Label { Name = at[2 * n + 1], Value = at[2 * n + 2] };
                fixed (Native.Label* first = labels) {
                    var native = new Native.Announcement {
                        Group = at[0], Slots = what.Slots, State = (int)what.State,
                        CountsPlayers = what.Players.HasValue ? 1 : 0, Players = what.Players ?? 0, Labels = first,
                        LabelsLen = (UIntPtr)what.Labels.Count
                    };
                    if (Native.rg_announce_sized(handle, &native, (UIntPtr)sizeof(Native.Announcement)) == 0)
                        return;
                }
                int error = Marshal.GetLastWin32Error();
                if (error == Native.InvalidArgument)
                    throw new ArgumentException(
                        "an announcement with a name, a group, labels, slots or players that cannot be", nameof(what));
                throw new Win32Exception(error);
            } finally {
                foreach (var pin in pins)
                    pin.Free();
            }
        }

        /// <summary>How the registration stands, as the gateway has said last.</summary>
        public Standing Standing { get { return (Standing)Native.rg_standing(handle); } }

        /// <summary>Asks every worker for a Pong. Returns how many were asked.</summary>
        public int Ping() { return (int)Native.rg_ping(handle); }

        /// <summary>Sends what was taken: one datagram for each link, more only where one is too small.</summary>
        public void Flush() { Native.rg_flush(handle); }

        /// <summary>The same, and waits for at most so long until all of it has left. Returns how many datagrams
        /// have not: a process that ends before there are none takes them along, closes included.</summary>
        public long FlushFor(TimeSpan wait) { return (long)Native.rg_flush_for(handle, Nanoseconds(wait)); }

        /// <summary>Whether the links to all workers are up.</summary>
        public bool IsUp { get { return Native.rg_is_up(handle) != 0; } }

        /// <summary>What became of all payloads so far.</summary>
        public Stats Stats {
            get {
                Stats stats;
                Native.rg_stats_sized(handle, &stats, (UIntPtr)sizeof(Stats));
                return stats;
            }
        }

        /// <summary>The worker that owns a session.</summary>
        public static int WorkerOf(ulong session) { return (int)(session >> 56); }

        /// <summary>A close reason, a refusal, a standing or a send result in words.</summary>
        public static string Words(CloseReason reason) { return Native.Text(Native.rg_close_reason_text((uint)reason)); }
        public static string Words(MoveRefusal refusal) { return Native.Text(Native.rg_move_refusal_text((uint)refusal)); }
        public static string Words(Standing standing) { return Native.Text(Native.rg_standing_text((uint)standing)); }
        public static string Words(SendResult result) { return Native.Text(Native.rg_send_result_text((int)result)); }
    }

    static unsafe class Native {
        // Linux looks for this name with "lib" in front; Unity takes the file from Plugins.
        const string Library = "libringgate_backend.so.1";
        internal const int LibraryMajor = 1;
        internal const int LibraryMinor = 3;
        internal const int InvalidArgument = 22; // EINVAL
        internal const int MessageBytesMax = 65536;
        internal const int UserDataBytes = 256;

        [StructLayout(LayoutKind.Sequential)]
        internal struct Options {
            internal byte* RunDir;
            internal byte* Name;
            internal long SpinNs;
            internal uint QueueBundles;
            internal int MayStartAlone;
            internal long BatchDelayNs;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct Move {
            internal byte* Backend;
            internal ulong Ticket;
            internal uint TimeMs;
            internal int Confirms;
            internal byte* Data;
            internal UIntPtr DataLen;
            internal byte* Message;
            internal UIntPtr MessageLen;
            internal uint ChannelKind, Channel;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct Label {
            internal byte* Name;
            internal byte* Value;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct Announcement {
            internal byte* Group;
            internal uint Slots;
            internal int State, CountsPlayers;
            internal uint Players;
            internal Label* Labels;
            internal UIntPtr LabelsLen;
        }

        // As struct rg_event of the header: fields are only ever appended.
        [StructLayout(LayoutKind.Sequential)]
        internal struct Event {
            internal int Kind;
            internal uint Worker, Workers, Reason, Error;
            internal ulong Incarnation, Session, ClientId;
            internal byte* Ip;
            internal uint Scope;
            internal ushort Port;
            internal uint Slot, SlotsMax;
            internal byte* UserData;
            internal fixed byte Listener[33];
            internal byte* Bytes;
            internal UIntPtr BytesLen;
            internal ulong RoundTripNs;
            internal uint LeftMs;
            internal ulong PayloadsUnsent;
            internal uint Version, ChannelKind, Channel;
            internal ulong Token;
            internal int IsDelivered, IsFull;
            internal uint WaitingBytes;
            internal ulong VariationNs;
            internal uint LossPerMille;
            internal IntPtr User;
            internal int Delivers, IsMoved;
            internal ulong Ticket, Offer;
            internal fixed byte From[33];
        }

        [DllImport(Library)] internal static extern uint rg_library_version();
        [DllImport(Library, SetLastError = true)] internal static extern IntPtr rg_connect_sized(Options* options, UIntPtr bytes);
        [DllImport(Library)] internal static extern void rg_free(IntPtr backend);
        [DllImport(Library, SetLastError = true)] internal static extern int rg_wait(IntPtr backend, long timeoutNs);
        [DllImport(Library, SetLastError = true)] internal static extern int rg_next_sized(IntPtr backend, Event* e, UIntPtr bytes);
        [DllImport(Library)] internal static extern int rg_send(IntPtr backend, ulong session, byte* bytes, UIntPtr len);
        [DllImport(Library)] internal static extern UIntPtr rg_multicast(IntPtr backend, ulong* sessions, UIntPtr sessionsLen, byte* bytes, UIntPtr len);
        [DllImport(Library)] internal static extern int rg_send_message(IntPtr backend, ulong session, uint kind, uint channel, byte* bytes, UIntPtr len, ulong token);
        [DllImport(Library)] internal static extern int rg_ask_quality(IntPtr backend, ulong session);
        [DllImport(Library)] internal static extern int rg_close_session(IntPtr backend, ulong session, uint reason);
        [DllImport(Library)] internal static extern int rg_close_session_after(IntPtr backend, ulong session, uint reason, uint lingerMs, byte* text, UIntPtr len);
        [DllImport(Library)] internal static extern int rg_move_session_sized(IntPtr backend, ulong session, Move* move, UIntPtr bytes);
        [DllImport(Library)] internal static extern int rg_answer(IntPtr backend, ulong session, ulong offer, int isWelcome);
        [DllImport(Library)] internal static extern IntPtr rg_move_refusal_text(uint reason);
        [DllImport(Library)] internal static extern uint rg_ping(IntPtr backend);
        [DllImport(Library)] internal static extern void rg_flush(IntPtr backend);
        [DllImport(Library)] internal static extern UIntPtr rg_flush_for(IntPtr backend, long waitNs);
        [DllImport(Library)] internal static extern int rg_is_up(IntPtr backend);
        [DllImport(Library)] internal static extern void rg_stats_sized(IntPtr backend, Stats* stats, UIntPtr bytes);
        [DllImport(Library, SetLastError = true)] internal static extern int rg_announce_sized(IntPtr backend, Announcement* announcement, UIntPtr bytes);
        [DllImport(Library)] internal static extern uint rg_standing(IntPtr backend);
        [DllImport(Library)] internal static extern IntPtr rg_standing_text(uint standing);
        [DllImport(Library)] internal static extern IntPtr rg_link_loss_text(uint reason);
        [DllImport(Library)] internal static extern IntPtr rg_close_reason_text(uint reason);
        [DllImport(Library)] internal static extern IntPtr rg_send_result_text(int result);

        // Whoever reads it stops at the first NUL.
        internal static byte[] Text(string text) {
            if (text.IndexOf('\0') >= 0)
                throw new ArgumentException("a text with a NUL in it");
            return StrictUtf8.GetBytes(text + "\0");
        }

        static readonly Encoding StrictUtf8 = new UTF8Encoding(false, true);

        internal static string Text(IntPtr text) { return Marshal.PtrToStringAnsi(text); }
    }
}
