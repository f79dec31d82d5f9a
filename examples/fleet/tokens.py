#!/usr/bin/env python3
"""Asks a token service for tokens, as a matchmaker would.

    tokens.py URL SECRET_FILE COUNT FOLDER

Writes them into FOLDER, one file for each address that they name: what `ringgate-loadgen run --tokens` takes.
"""

import base64
import json
import os
import random
import sys
import urllib.request

url, secret_file, count, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
secret = open(secret_file).read().strip()
first = random.getrandbits(62)
os.makedirs(folder, exist_ok=True)
for begin in range(0, count, 256):
    players = range(begin, min(count, begin + 256))
    # Client ids have 64 bits: as text, because not every JSON library has such numbers.
    wanted = [{"client_id": str(first + player), "region": "here", "expire": 300} for player in players]
    request = urllib.request.Request(
        url + "/v1/tokens/batch",
        data=json.dumps({"tokens": wanted}).encode(),
        headers={"Authorization": "Bearer " + secret, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        tokens = json.load(answer)["tokens"]
    for token in tokens:
        if "error" in token:
            sys.exit(f"{token['error']}: {token['message']}")
        with open(os.path.join(folder, token["addresses"][0] + ".tokens"), "ab") as file:
            file.write(base64.b64decode(token["token"]))
