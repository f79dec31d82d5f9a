// Mints netcode 1.02 connect tokens, as a token service in C# does. One file without a library:
// .NET has ChaCha20-Poly1305 with nonces of 12 bytes only, and tokens have 24 (XChaCha20-Poly1305).
// Where NSec or BouncyCastle is at hand, take its cipher in place of `Seal`.
//
//     mcs Mint.cs -r:System.Numerics.dll && mono Mint.exe KEY_FILE PROTOCOL_ID CLIENT_ID SERVER[,SERVER] OUT [USER_DATA]
//
// KEY_FILE is what `ringgate keygen` has made, SERVER an address that players dial, OUT gets 2048
// bytes: the player's keys among them, so run it with a umask of 077. Where there is .NET 7, its
// FileStreamOptions take a UnixCreateMode.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Numerics;
using System.Security.Cryptography;
using System.Text;

public static class Mint
{
    static readonly byte[] Version = Encoding.ASCII.GetBytes("NETCODE 1.02\0");

    // A token for one client, good for `expireS` seconds. It goes to the client, and nowhere else.
    public static byte[] Token(byte[] key, ulong protocolId, ulong clientId, IList<IPEndPoint> servers,
        byte[] userData, int expireS = 30, int timeoutS = 15)
    {
        if (key.Length != 32 || servers.Count < 1 || servers.Count > 32 || userData.Length > 256)
            throw new ArgumentException("a key has 32 bytes, a token 1 to 32 servers and 256 bytes of user data");
        var created = (ulong)DateTimeOffset.UtcNow.ToUnixTimeSeconds();
        byte[] protocol = Number(protocolId, 8), expires = Number(created + (ulong)expireS, 8);
        var timeout = Number((uint)timeoutS, 4);
        var addresses = Join(Number((ulong)servers.Count, 4), Join(servers.Select(Address).ToArray()));
        var keys = Random(64); // client to server, server to client; never used twice
        var nonce = Random(24);
        var secret = Padded(Join(Number(clientId, 8), timeout, addresses, keys, userData), 1008);
        var sealedPart = Seal(key, nonce, Join(Version, protocol, expires), secret);
        var head = Join(Version, protocol, Number(created, 8), expires, nonce, sealedPart);
        return Padded(Join(head, timeout, addresses, keys), 2048);
    }

    // A server's address as tokens have it: all numbers little-endian, the words of IPv6 too.
    static byte[] Address(IPEndPoint server)
    {
        var ip = server.Address.GetAddressBytes();
        var port = Number((ulong)server.Port, 2);
        if (server.AddressFamily == AddressFamily.InterNetwork) return Join(new byte[] { 1 }, ip, port);
        for (var at = 0; at < ip.Length; at += 2) Array.Reverse(ip, at, 2);
        return Join(new byte[] { 2 }, ip, port);
    }

    static byte[] Number(ulong value, int bytes)
    {
        return Enumerable.Range(0, bytes).Select(at => (byte)(value >> (8 * at))).ToArray();
    }

    static byte[] Join(params byte[][] parts)
    {
        return parts.SelectMany(part => part).ToArray();
    }

    static byte[] Padded(byte[] bytes, int length)
    {
        Array.Resize(ref bytes, length);
        return bytes;
    }

    static byte[] Random(int count)
    {
        var bytes = new byte[count];
        using (var random = RandomNumberGenerator.Create()) random.GetBytes(bytes);
        return bytes;
    }

    // XChaCha20-Poly1305: a key from the first 16 bytes of the nonce, and the usual AEAD with the rest.
    static byte[] Seal(byte[] key, byte[] nonce, byte[] bound, byte[] plain)
    {
        var words = State(key, nonce.Take(16).ToArray());
        var mixed = Rounds(words);
        var inner = mixed.Take(4).Concat(mixed.Skip(12)).SelectMany(word => Number(word, 4)).ToArray();
        var rest = Join(new byte[4], nonce.Skip(16).ToArray());
        var text = (byte[])plain.Clone();
        for (var at = 0; at < text.Length; at += 64)
        {
            var block = Block(inner, (uint)(1 + at / 64), rest);
            for (var i = at; i < Math.Min(at + 64, text.Length); i++) text[i] ^= block[i - at];
        }
        return Join(text, Tag(Block(inner, 0, rest), bound, text));
    }

    static uint[] State(byte[] key, byte[] last)
    {
        var bytes = Join(Encoding.ASCII.GetBytes("expand 32-byte k"), key, last);
        return Enumerable.Range(0, 16).Select(at => Word(bytes, 4 * at)).ToArray();
    }

    static uint Word(byte[] bytes, int at)
    {
        return bytes[at] | (uint)bytes[at + 1] << 8 | (uint)bytes[at + 2] << 16 | (uint)bytes[at + 3] << 24;
    }

    static byte[] Block(byte[] key, uint counter, byte[] nonce)
    {
        var state = State(key, Join(Number(counter, 4), nonce));
        return Rounds(state).Zip(state, (mixed, was) => mixed + was).SelectMany(word => Number(word, 4)).ToArray();
    }

    static uint[] Rounds(uint[] from)
    {
        var x = (uint[])from.Clone();
        for (var round = 0; round < 10; round++)
        {
            for (var i = 0; i < 4; i++) Quarter(x, i, 4 + i, 8 + i, 12 + i);
            for (var i = 0; i < 4; i++) Quarter(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
        }
        return x;
    }

    static void Quarter(uint[] x, int a, int b, int c, int d)
    {
        x[a] += x[b]; x[d] = Turn(x[d] ^ x[a], 16);
        x[c] += x[d]; x[b] = Turn(x[b] ^ x[c], 12);
        x[a] += x[b]; x[d] = Turn(x[d] ^ x[a], 8);
        x[c] += x[d]; x[b] = Turn(x[b] ^ x[c], 7);
    }

    static uint Turn(uint word, int bits)
    {
        return word << bits | word >> (32 - bits);
    }

    // Poly1305 over what is bound, the sealed text, and the lengths of both.
    static byte[] Tag(byte[] block, byte[] bound, byte[] text)
    {
        foreach (var at in new[] { 3, 7, 11, 15 }) block[at] &= 15;
        foreach (var at in new[] { 4, 8, 12 }) block[at] &= 252;
        BigInteger r = Unsigned(block, 0, 16), s = Unsigned(block, 16, 16), sum = 0;
        var prime = (BigInteger.One << 130) - 5;
        var all = Join(Filled(bound), Filled(text), Number((ulong)bound.Length, 8), Number((ulong)text.Length, 8));
        for (var at = 0; at < all.Length; at += 16)
            sum = (sum + Unsigned(all, at, 16) + (BigInteger.One << 128)) * r % prime;
        return Padded(((sum + s) & ((BigInteger.One << 128) - 1)).ToByteArray(), 16);
    }

    static byte[] Filled(byte[] bytes)
    {
        return Padded((byte[])bytes.Clone(), (bytes.Length + 15) / 16 * 16);
    }

    static BigInteger Unsigned(byte[] bytes, int at, int count)
    {
        return new BigInteger(bytes.Skip(at).Take(count).Concat(new byte[1]).ToArray());
    }

    static IPEndPoint Endpoint(string text)
    {
        var colon = text.LastIndexOf(':');
        var ip = IPAddress.Parse(text.Substring(0, colon).Trim('[', ']'));
        return new IPEndPoint(ip, int.Parse(text.Substring(colon + 1)));
    }

    static ulong Id(string text)
    {
        return text.StartsWith("0x") ? ulong.Parse(text.Substring(2), NumberStyles.HexNumber) : ulong.Parse(text);
    }

    public static int Main(string[] args)
    {
        if (args.Length < 5)
        {
            Console.Error.WriteLine("Mint KEY_FILE PROTOCOL_ID CLIENT_ID SERVER[,SERVER] OUT [USER_DATA]");
            return 2;
        }
        var hex = File.ReadAllText(args[0]).Trim();
        var key = Enumerable.Range(0, hex.Length / 2).Select(at => Convert.ToByte(hex.Substring(2 * at, 2), 16)).ToArray();
        var servers = args[3].Split(',').Select(Endpoint).ToList();
        var userData = Encoding.UTF8.GetBytes(args.Length > 5 ? args[5] : "");
        var token = Token(key, Id(args[1]), ulong.Parse(args[2]), servers, userData);
        using (var file = new FileStream(args[4], FileMode.CreateNew, FileAccess.Write)) file.Write(token, 0, token.Length);
        return 0;
    }
}
