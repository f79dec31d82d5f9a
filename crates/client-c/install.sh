#!/bin/bash
# Puts the C client where compilers look: header, shared and static library, and what pkg-config reads.
#
#     cargo build --release -p ringgate-client-c
#     crates/client-c/install.sh PREFIX [FOLDER_WITH_THE_LIBRARIES]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:?usage: install.sh PREFIX [FOLDER_WITH_THE_LIBRARIES]}
built=${2:-$here/../../target/release}
libdir=$prefix/lib
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -1)
# What a program needs beside the static library, as `rustc --print native-static-libs` says.
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

mkdir -p "$prefix/include" "$libdir/pkgconfig"
install -m 644 "$here/include/ringgate_client.h" "$prefix/include/"
install -m 755 "$built/libringgate_client_c.so" "$libdir/libringgate_client.so.0"
ln -sf libringgate_client.so.0 "$libdir/libringgate_client.so"
install -m 644 "$built/libringgate_client_c.a" "$libdir/libringgate_client.a"
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|; s|@PRIVATE@|$private|" \
    "$here/ringgate-client.pc.in" >"$libdir/pkgconfig/ringgate-client.pc"
echo "installed in $prefix"
