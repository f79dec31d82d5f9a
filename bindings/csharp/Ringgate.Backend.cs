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
using System.ComponentModel;
using System.Net;
using System.Runtime.InteropServices;
using System.Text;

namespace Ringgate {
    /// <summary>What happened, and which fields of an Event are set besides Kind and Worker.</summary>
    public enum Kind {
        LinkUp = 1,      // Workers, Incarnation, Version
        Opened = 2,      // Session, ClientId, Address, Slot, SlotsMax, UserData, Listener
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
        Quality = 13     // Session, RoundTrip, Variation, Loss, WaitingBytes
    }

    /// <summary>Why a session ended. A game may give those from Finished on.</summary>
    public enum CloseReason : uint {
        Other = 0, PlayerLeft = 1, TimedOut = 2, SequenceGap = 3, SequenceExhausted = 4, Shutdown = 5, Operator = 6,
        Unconfigured = 7, Delivery = 8, Overflow = 9, NewerLogin = 10, Finished = 128, Kicked = 129, Refused = 130, GameShutdown = 131
    }

    /// <summary>The kinds of a player's channels, of each of which there are 256.</summary>
    public enum ChannelKind : uint { Reliable = 1, Sequenced = 2, Unreliable = 3 }

    /// <summary>Whether something was taken, and why not.</summary>
    public enum SendResult {
        Ok = 0, LinkDown = -1, LinkFull = -2, PayloadLength = -3, NotAChoice = -4, MessageLength = -5, NoMessages = -6,
        NoChannel = -7
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
        public double Loss { get; internal set; }

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
            if (Native.rg_library_version() >> 16 != Native.LibraryMajor)
                throw new DllNotFoundException("libringgate_backend is not version " + Native.LibraryMajor);
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

        /// <summary>Flushes, then waits for something to do. Returns whether there is something.</summary>
        public bool Wait() { return Found(Native.rg_wait(handle, -1)); }

        /// <summary>The same for so long at most.</summary>
        public bool Wait(TimeSpan timeout) {
            return Found(Native.rg_wait(handle, Math.Max(0, timeout.Ticks) * 100));
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
            } while (native.Kind < (int)Kind.LinkUp || native.Kind > (int)Kind.Quality); // those of later libraries
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
                e.ClientId = native->ClientId;
                Marshal.Copy((IntPtr)native->UserData, e.Buffer, 0, Native.UserDataBytes);
                e.UserData = new ArraySegment<byte>(e.Buffer, 0, Native.UserDataBytes);
                FillPlayer(e, native);
                break;
            case Kind.OpenedPlain:
                FillPlayer(e, native);
                break;
            case Kind.Payload:
            case Kind.Message:
                e.ChannelKind = (ChannelKind)native->ChannelKind;
                e.Channel = (int)native->Channel;
                Marshal.Copy((IntPtr)native->Bytes, e.Buffer, 0, (int)native->BytesLen);
                e.Bytes = new ArraySegment<byte>(e.Buffer, 0, (int)native->BytesLen);
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

        static void FillPlayer(Event e, Native.Event* native) {
            var ip = new byte[16];
            Marshal.Copy((IntPtr)native->Ip, ip, 0, ip.Length);
            var address = new IPAddress(ip, native->Scope);
            e.Address = new IPEndPoint(address.IsIPv4MappedToIPv6 ? address.MapToIPv4() : address, native->Port);
            e.Slot = native->Slot;
            e.SlotsMax = native->SlotsMax;
            e.Listener = Native.Text((IntPtr)native->Listener);
        }

        /// <summary>Takes 1 to 1200 bytes for a player, up to 1472 for one of a plain listener.</summary>
        public SendResult Send(ulong session, ArraySegment<byte> payload) {
            if (payload.Count == 0)
                return SendResult.PayloadLength;
            fixed (byte* bytes = &payload.Array[payload.Offset])
                return (SendResult)Native.rg_send(handle, session, bytes, (UIntPtr)payload.Count);
        }

        public SendResult Send(ulong session, byte[] payload) { return Send(session, new ArraySegment<byte>(payload)); }

        /// <summary>Takes the same 1 to 1200 bytes for several players. Returns for how many.</summary>
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

        /// <summary>Asks every worker for a Pong. Returns how many were asked.</summary>
        public int Ping() { return (int)Native.rg_ping(handle); }

        /// <summary>Sends what was taken: one datagram for each link, more only where one is too small.</summary>
        public void Flush() { Native.rg_flush(handle); }

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

        /// <summary>A close reason or a send result in words.</summary>
        public static string Words(CloseReason reason) { return Native.Text(Native.rg_close_reason_text((uint)reason)); }
        public static string Words(SendResult result) { return Native.Text(Native.rg_send_result_text((int)result)); }
    }

    static unsafe class Native {
        // Linux looks for this name with "lib" in front; Unity takes the file from Plugins.
        const string Library = "libringgate_backend.so.1";
        internal const int LibraryMajor = 1;
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
        [DllImport(Library)] internal static extern uint rg_ping(IntPtr backend);
        [DllImport(Library)] internal static extern void rg_flush(IntPtr backend);
        [DllImport(Library)] internal static extern int rg_is_up(IntPtr backend);
        [DllImport(Library)] internal static extern void rg_stats_sized(IntPtr backend, Stats* stats, UIntPtr bytes);
        [DllImport(Library)] internal static extern IntPtr rg_link_loss_text(uint reason);
        [DllImport(Library)] internal static extern IntPtr rg_close_reason_text(uint reason);
        [DllImport(Library)] internal static extern IntPtr rg_send_result_text(int result);

        internal static byte[] Text(string text) { return Encoding.UTF8.GetBytes(text + "\0"); }

        internal static string Text(IntPtr text) { return Marshal.PtrToStringAnsi(text); }
    }
}
