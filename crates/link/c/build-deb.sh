#!/bin/bash
# Build the Debian package libringgate-backend-dev: crates/link/c/build-deb.sh [OUT_DIR]. Needs a C compiler, make and dpkg-deb.
set -euo pipefail
cd "$(dirname "$0")"
out=$(realpath -m "${1:-../../../target/debian}")
architecture=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
number() { sed -n "s/^#define RG_LIBRARY_$1 //p" ../include/ringgate_backend.h; }
version=$(number MAJOR).$(number MINOR)
root=$(mktemp -d)
build=$(mktemp -d)
trap 'rm -rf "$root" "$build"' EXIT
chmod 755 "$root"

make --silent install BUILD="$build" PREFIX=/usr LIBDIR="/usr/lib/$multiarch" DESTDIR="$root"
doc=$root/usr/share/doc/libringgate-backend-dev
install -D -m 644 -t "$doc/examples" ../examples/c/*.c
install -m 644 ../../../docs/GAMES.md "$doc"
cat ../../../LICENSE-MIT ../../../LICENSE-APACHE >"$doc/copyright"

install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: libringgate-backend-dev
Version: $version
Architecture: $architecture
Maintainer: ringgate developers <ringgate@invalid>
Section: libdevel
Priority: optional
Depends: libc6-dev
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: game server's end of the bundle link of the gateway ringgate
 A C library, static and shared, with its header, for game servers that take
 their players from a gateway.
END
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/libringgate-backend-dev_${version}_$architecture.deb"
