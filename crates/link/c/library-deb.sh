#!/bin/bash
# Build the Debian package of a C library, libringgate-NAME-dev: what `make deb` calls in the library's folder. Needs make and
# dpkg-deb.
set -euo pipefail
name=$1 version=$2 description=$3
out=$(realpath -m "${4:-../../target/debian}")
top=$(realpath "$(dirname "$0")/../../..")
package=libringgate-$name-dev
architecture=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
root=$(mktemp -d)
build=$(mktemp -d)
trap 'rm -rf "$root" "$build"' EXIT
chmod 755 "$root"

make --silent install BUILD="$build" PREFIX=/usr LIBDIR="/usr/lib/$multiarch" DESTDIR="$root"
doc=$root/usr/share/doc/$package
for example in examples/*.c ../examples/c/*.c; do
    [[ ! -e $example ]] || install -D -m 644 -t "$doc/examples" "$example"
done
install -m 644 "$top/docs/GAMES.md" "$doc"
cat "$top/LICENSE-MIT" "$top/LICENSE-APACHE" >"$doc/copyright"

install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: $package
Version: $version
Architecture: $architecture
Maintainer: ringgate developers <ringgate@invalid>
Section: libdevel
Priority: optional
Depends: libc6-dev
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: $description
 A C library, static and shared, with its header and what pkg-config and CMake
 look for.
END
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/${package}_${version}_$architecture.deb"
