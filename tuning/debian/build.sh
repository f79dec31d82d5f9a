#!/bin/bash
# Build a Debian package: tuning/debian/build.sh [OUT_DIR]. Needs a Rust toolchain, dpkg-deb and gzip.
# BIN names a binary that is built already; without it the release is built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-target/debian}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
RINGGATE_COMMIT=${RINGGATE_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
export RINGGATE_COMMIT
if [[ -z ${BIN:-} ]]; then
    cargo build --profile dist --locked -p ringgate
    BIN=target/dist/ringgate
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# /etc/ringgate is open to the service's user, which has no name before it starts; keys in it have mode 0600.
install -D -m 755 "$BIN" "$root/usr/bin/ringgate"
install -d "$root/lib/systemd/system" "$root/etc/sysctl.d" "$root/etc/ringgate"
# The unit names the place where administrators install; packages have another.
sed -e 's|/usr/local/bin/|/usr/bin/|' -e 's|Goes to /etc/systemd/system/ringgate.service; |From the package ringgate; |' \
    tuning/ringgate.service >"$root/lib/systemd/system/ringgate.service"
# For hosts with game processes: it lies there until somebody enables it.
sed -e 's|/usr/local/bin/|/usr/bin/|' -e 's|Goes to /etc/systemd/system/ringgate-agent.service; |From the package ringgate; |' \
    tuning/ringgate-agent.service >"$root/lib/systemd/system/ringgate-agent.service"
# For hosts with a fleet's token service, likewise.
sed -e 's|/usr/local/bin/|/usr/bin/|' -e 's|Goes to /etc/systemd/system/ringgate-tokens.service; |From the package ringgate; |' \
    tuning/ringgate-tokens.service >"$root/lib/systemd/system/ringgate-tokens.service"
install -m 644 tuning/90-ringgate.conf "$root/etc/sysctl.d/90-ringgate.conf"
doc=$root/usr/share/doc/ringgate
install -D -m 644 -t "$doc/examples" tuning/prometheus/ringgate.rules.yml \
    tuning/grafana/ringgate.json
# The unit hands the key on as a credential: its user could not read the file. It has the file's name, so that root can check
# the config with CREDENTIALS_DIRECTORY=/etc/ringgate.
sed 's|{ file = "/etc/ringgate/netcode.key" }|{ credential = "netcode.key" }|' tuning/ringgate.example.toml >"$doc/examples/gate.toml"
chmod 644 "$doc/examples/gate.toml"
install -m 755 tuning/host.sh "$doc/examples/host.sh"
# The pages for those who operate it; what builds the site from them is not among them.
(cd docs && find . \( -name '*.md' -o -name '*.json' \) ! -name SUMMARY.md -exec install -D -m 644 {} "$doc/{}" \;)
install -m 644 -t "$doc" CHANGELOG.md
cat LICENSE-MIT LICENSE-APACHE >"$doc/copyright"
"$BIN" generate man --out "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1 "$doc/CHANGELOG.md"
install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d"
"$BIN" generate completions bash >"$root/usr/share/bash-completion/completions/ringgate"
"$BIN" generate completions zsh >"$root/usr/share/zsh/vendor-completions/_ringgate"
"$BIN" generate completions fish >"$root/usr/share/fish/vendor_completions.d/ringgate.fish"

install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: ringgate
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: ringgate developers <ringgate@invalid>
Section: net
Priority: optional
Depends: libc6 (>= 2.36), libgcc-s1
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: gateway in front of fleets of game servers
 Speaks netcode and Unreal's handshake with players and passes their payloads
 on to game processes of this host. Players are proven before a game process
 hears of them.
END
# What an administrator changes stays as it is in an upgrade.
echo /etc/sysctl.d/90-ringgate.conf >"$root/DEBIAN/conffiles"
install -m 755 tuning/debian/postinst tuning/debian/prerm tuning/debian/postrm "$root/DEBIAN/"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/ringgate_${version}_$(dpkg --print-architecture).deb"
