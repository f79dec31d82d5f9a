#!/bin/bash
# Build the Debian packages, ringgate and ringgate-loadgen: tuning/debian/build.sh [OUT_DIR]. Needs a Rust toolchain, dpkg-deb and
# gzip. BIN and LOADGEN_BIN name binaries that are built already; without them the release is built here.
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
if [[ -z ${LOADGEN_BIN:-} ]]; then
    cargo build --profile dist --locked -p ringgate-loadgen
    LOADGEN_BIN=target/dist/ringgate-loadgen
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/ringgate
mkdir -m 755 "$root"

# program ROOT BIN: what a program says of itself lies where shells and man look for it.
program() {
    local root=$1 bin=$2 name=${2##*/}
    install -D -m 755 "$bin" "$root/usr/bin/$name"
    "$bin" generate man --out "$root/usr/share/man/man1"
    gzip -9n "$root"/usr/share/man/man1/*.1
    install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
        "$root/usr/share/fish/vendor_completions.d"
    "$bin" generate completions bash >"$root/usr/share/bash-completion/completions/$name"
    "$bin" generate completions zsh >"$root/usr/share/zsh/vendor-completions/_$name"
    "$bin" generate completions fish >"$root/usr/share/fish/vendor_completions.d/$name.fish"
    install -d "$root/usr/share/doc/$name" "$root/DEBIAN"
    cat LICENSE-MIT LICENSE-APACHE >"$root/usr/share/doc/$name/copyright"
}

# pack NAME SUMMARY: the package of what lies in work/NAME; the rest of its description is on standard input.
pack() {
    local root=$work/$1 arch libc
    # What it was linked with may be newer than where it is to run.
    libc=$(grep -aohE 'GLIBC_2\.[0-9]+' "$root"/usr/bin/* | sort -uV | tail -1 || true)
    libc=${libc#GLIBC_}
    arch=$(dpkg --print-architecture)
    {
        printf '%s\n' "Package: $1" "Version: $version" "Architecture: $arch" \
            'Maintainer: ringgate developers <ringgate@invalid>' 'Section: net' 'Priority: optional' \
            "Depends: libc6 (>= ${libc:-2.36}), libgcc-s1" "Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)" \
            "Description: $2"
        cat
    } >"$root/DEBIAN/control"
    mkdir -p "$out"
    dpkg-deb --root-owner-group --build "$root" "$out/$1_${version}_$arch.deb"
}

# /etc/ringgate is open to the service's user, which has no name before it starts; keys in it have mode 0600.
program "$root" "$BIN"
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
    tuning/prometheus/ringgate.rules.test.yml tuning/grafana/ringgate.json
install -m 644 tuning/ringgate.example.toml "$doc/examples/gate.toml"
install -m 644 tuning/ringgate.plain.example.toml "$doc/examples/plain.toml"
install -m 644 tuning/ringgate.agent.example.toml "$doc/examples/agent.toml"
install -m 644 tuning/ringgate.tokens.example.toml "$doc/examples/tokens.toml"
install -m 755 tuning/host.sh "$doc/examples/host.sh"
# The pages for those who operate it; what builds the site from them is not among them. What they link to in the source alone is
# named instead.
pages=$PWD/docs
(
    cd "$pages"
    find . \( -name '*.md' -o -name '*.json' \) ! -name SUMMARY.md | while read -r page; do
        up='\.\./'
        [[ $page == ./*/* ]] && up='\.\./\.\./'
        install -d "$doc/${page%/*}"
        sed -zE "s|\[([^]]*)\]\($up([^)#]*)[^)]*\)|\1 (\2 of the source)|g" "$page" >"$doc/$page"
        chmod 644 "$doc/$page"
    done
)
install -m 644 -t "$doc" CHANGELOG.md
gzip -9n "$doc/CHANGELOG.md"

# What an administrator changes stays as it is in an upgrade.
echo /etc/sysctl.d/90-ringgate.conf >"$root/DEBIAN/conffiles"
install -m 755 tuning/debian/postinst tuning/debian/prerm tuning/debian/postrm "$root/DEBIAN/"
pack ringgate "gateway in front of fleets of game servers" <<'END'
 Speaks netcode and Unreal's handshake with players and passes their payloads
 on to game processes of this host. Players are proven before a game process
 hears of them.
END

mkdir -m 755 "$work/ringgate-loadgen"
program "$work/ringgate-loadgen" "$LOADGEN_BIN"
pack ringgate-loadgen "players for gateways of ringgate, by the ten thousand" <<'END'
 Plays real clients through a gateway, over a bad network if asked, and holds
 its books against the gateway's to the datagram.
END
