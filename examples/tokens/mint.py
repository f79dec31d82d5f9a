#!/usr/bin/env python3
"""Mints netcode 1.02 connect tokens, as a token service in Python does. Needs PyNaCl (`pip install pynacl`).

    mint.py KEY_FILE PROTOCOL_ID CLIENT_ID SERVER[,SERVER] OUT [USER_DATA]

KEY_FILE is what `ringgate keygen` has made, SERVER an address that players dial, OUT gets 2048 bytes.
"""

import ipaddress
import os
import struct
import sys
import time

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as seal

VERSION = b"NETCODE 1.02\0"


def address(text: str) -> bytes:
    """A server's address as tokens have it: all numbers little-endian, the words of IPv6 too."""
    host, _, port = text.rpartition(":")
    ip = ipaddress.ip_address(host.strip("[]"))
    if ip.version == 4:
        return b"\x01" + ip.packed + struct.pack("<H", int(port))
    return b"\x02" + struct.pack("<8H", *struct.unpack(">8H", ip.packed)) + struct.pack("<H", int(port))


def mint(key: bytes, protocol_id: int, client_id: int, servers: list[str], user_data: bytes = b"",
         expire_s: int = 30, timeout_s: int = 15) -> bytes:
    """A token for one client, good for `expire_s` seconds. It goes to the client, and nowhere else."""
    if len(key) != 32 or not 1 <= len(servers) <= 32 or len(user_data) > 256:
        raise ValueError("a key has 32 bytes, a token 1 to 32 servers and 256 bytes of user data")
    created = int(time.time())
    expires = created + expire_s
    addresses = struct.pack("<I", len(servers)) + b"".join(map(address, servers))
    keys = os.urandom(64)  # client to server, server to client; never used twice
    private = struct.pack("<Qi", client_id, timeout_s) + addresses + keys + user_data.ljust(256, b"\0")
    nonce = os.urandom(24)
    sealed = seal(private.ljust(1008, b"\0"), VERSION + struct.pack("<QQ", protocol_id, expires), nonce, key)
    public = VERSION + struct.pack("<QQQ", protocol_id, created, expires) + nonce + sealed
    return (public + struct.pack("<i", timeout_s) + addresses + keys).ljust(2048, b"\0")


if __name__ == "__main__":
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    key_file, protocol_id, client_id, servers, out, *user_data = sys.argv[1:]
    with open(key_file) as file:
        key = bytes.fromhex(file.read().strip())
    token = mint(key, int(protocol_id, 0), int(client_id), servers.split(","), "".join(user_data).encode())
    with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(token)
