#!/usr/bin/env node
// Mints netcode 1.02 connect tokens, as a token service in Node does. Needs libsodium-wrappers
// (`npm install libsodium-wrappers`), which is libsodium in WebAssembly.
//
//     node mint.js KEY_FILE PROTOCOL_ID CLIENT_ID SERVER[,SERVER] OUT [USER_DATA]
//
// KEY_FILE is what `ringgate keygen` has made, SERVER an address that players dial, OUT gets 2048
// bytes.
"use strict";

const { randomBytes } = require("node:crypto");
const { readFileSync, writeFileSync } = require("node:fs");
const net = require("node:net");

const VERSION = Buffer.from("NETCODE 1.02\0");

/** A number of `bytes` bytes, little-endian. Ids have 64 bits, which a Number cannot hold. */
function number(value, bytes) {
    const written = Buffer.alloc(8);
    written.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)));
    return written.subarray(0, bytes);
}

/** The eight words of an IPv6 address. */
function words(ip) {
    const [head, tail] = ip.split("::").map((part) => part.split(":").filter(Boolean));
    const known = [...head, ...(tail ?? [])];
    const zeros = Array(8 - known.length).fill("0");
    return [...head, ...zeros, ...(tail ?? [])].map((word) => parseInt(word, 16));
}

/** A server's address as tokens have it: all numbers little-endian, the words of IPv6 too. */
function address(text) {
    const colon = text.lastIndexOf(":");
    const [ip, port] = [text.slice(0, colon).replace(/[[\]]/g, ""), number(text.slice(colon + 1), 2)];
    if (net.isIPv4(ip)) return Buffer.concat([Buffer.from([1, ...ip.split(".").map(Number)]), port]);
    if (!net.isIPv6(ip) || ip.includes(".")) throw new Error(`not an address: ${text}`);
    return Buffer.concat([Buffer.from([2]), ...words(ip).map((word) => number(word, 2)), port]);
}

/** A token for one client, good for `expireS` seconds. It goes to the client, and nowhere else. */
async function mint(key, protocolId, clientId, servers, userData = Buffer.alloc(0), expireS = 30, timeoutS = 15) {
    const sodium = require("libsodium-wrappers");
    await sodium.ready;
    if (key.length !== 32 || servers.length < 1 || servers.length > 32 || userData.length > 256) {
        throw new Error("a key has 32 bytes, a token 1 to 32 servers and 256 bytes of user data");
    }
    const created = Math.floor(Date.now() / 1000);
    const [protocol, expires] = [number(protocolId, 8), number(created + expireS, 8)];
    const timeout = number(timeoutS, 4);
    const addresses = Buffer.concat([number(servers.length, 4), ...servers.map(address)]);
    const keys = randomBytes(64); // client to server, server to client; never used twice
    const secret = Buffer.alloc(1008);
    Buffer.concat([number(clientId, 8), timeout, addresses, keys, userData]).copy(secret);
    const nonce = randomBytes(24);
    const bound = Buffer.concat([VERSION, protocol, expires]);
    const sealed = sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(secret, bound, null, nonce, key);
    const token = Buffer.alloc(2048);
    const head = [VERSION, protocol, number(created, 8), expires, nonce, sealed];
    Buffer.concat([...head, timeout, addresses, keys]).copy(token);
    return token;
}

async function main() {
    const [keyFile, protocolId, clientId, servers, out, userData = ""] = process.argv.slice(2);
    const key = Buffer.from(readFileSync(keyFile, "utf8").trim(), "hex");
    const token = await mint(key, protocolId, clientId, servers.split(","), Buffer.from(userData));
    writeFileSync(out, token, { mode: 0o600, flag: "wx" });
}

module.exports = { mint };
if (require.main === module) main();
