#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds a libfuse that has passthrough, for a system whose own is older than 3.17.
#
#   build-libfuse.sh [PREFIX]    installs it in PREFIX, for configure --with-libfuse=PREFIX
#                                (default: build/libfuse of the checkout, where build.sh finds it)
#
# The source is Debian's package, from apt's mirror (or from FLUXKV_DEBIAN_MIRROR), under the signature of Debian's
# archive. apt's own sources and lists stay as they are. Only the library is built, to be linked statically. Root
# installs what that takes (meson, ninja, dpkg-dev, Debian's keyring); with these there, anybody may run it.
# Exits with 77 where no mirror is known or can be reached.
set -eu

VERSION=3.17 # the oldest that will do
SUITE=trixie # of Debian, which has a newer one
UNREACHABLE=77

top=$(cd "$(dirname "$0")/.." && pwd)
state=""

say() { printf 'build-libfuse: %s\n' "$*" >&2; }
fail() {
	say "$@"
	exit 1
}

case ${1-} in
-h | --help)
	sed -n '3,11s/^# \{0,1\}//p' "$0"
	exit 0
	;;
-*)
	say "unknown option $1; see: $0 --help"
	exit 2
	;;
/*) prefix=$1 ;;
?*) prefix=$PWD/$1 ;;
*) prefix=$top/build/libfuse ;;
esac

# The version in PREFIX, if that is new enough. The .pc file is what an installation writes last.
installed() {
	v=$(sed -n 's/^Version: *//p' "$prefix/lib/pkgconfig/fuse3.pc" 2>/dev/null) && [ -f "$prefix/lib/libfuse3.a" ] &&
		dpkg --compare-versions "$v" ge "$VERSION" && printf '%s\n' "$v"
}

report() { printf 'libfuse %s in %s\n' "$(installed)" "$prefix"; }

# Nothing in somebody else's folder shall belong to root, nor root go where that somebody's links lead.
build_as_owner() {
	dir=$prefix
	while [ ! -e "$dir" ]; do dir=$(dirname "$dir"); done
	uid=$(stat -L -c %u "$dir")
	[ "$(id -u)" = 0 ] && [ "$uid" != 0 ] || return 0
	unset HOME # root's
	exec setpriv --reuid "$uid" --regid "$(stat -L -c %g "$dir")" --clear-groups "$0" "$prefix"
}

clean_up() {
	[ -z "$state" ] || rm -rf "$state"
	rmdir "$prefix" 2>/dev/null || true
}

# run WHAT COMMAND...: quietly; where it fails, why
run() {
	what=$1
	shift
	"$@" >"$state/log" 2>&1 </dev/null && return
	why=$(grep -m1 -E '^(W: GPG|E:|.*ERROR:|.*error:)' "$state/log" || tail -n 1 "$state/log")
	say "$what failed: $why"
	case $why in *"Hash Sum"*) ;; "E: Failed to fetch "*) exit $UNREACHABLE ;; esac
	exit 1
}

# An apt of its own: no source but Debian's, no hook of the machine's, no setting that lets an unsigned thing pass.
configure_apt() {
	for keyring in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
		[ ! -e "$keyring" ] || break
	done
	echo "deb-src [signed-by=$keyring target=Sources] $mirror $SUITE main" >"$state/sources.list"
	cat >"$state/apt.conf" <<END
Dir::Etc::SourceList "$state/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
Dir::State::Lists "$state/lists";
Dir::Cache "$state/cache";
APT::Get::AllowUnauthenticated "false";
APT::Get::Only-Source "true";
APT::Update::Error-Mode "any";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
	mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/source"
	# apt fetches as a user of its own, where there is one and it can.
	chmod 711 "$state"
	[ "$(id -u)" != 0 ] || chown _apt "$state/source" 2>/dev/null || true
}

fetch() {
	configure_apt
	run "looking into Debian's $SUITE at $mirror" apt-get -q -c "$state/apt.conf" update
	cd "$state/source"
	run "getting libfuse's source from $mirror" apt-get -q -c "$state/apt.conf" source fuse3
	cd /
	source=$(echo "$state"/source/fuse3-*/)
}

build() {
	run "configuring libfuse" meson setup --wrap-mode=nodownload --default-library=static --buildtype=debugoptimized \
		--prefix="$prefix" --libdir=lib --bindir=/usr/bin -Dutils=false -Dexamples=false -Dtests=false \
		"$state/build" "$source"
	run "building libfuse" ninja -C "$state/build"
	run "installing libfuse in $prefix" ninja -C "$state/build" install
}

if installed >/dev/null; then
	report
	exit
fi
command -v apt-get >/dev/null || fail "this is not Debian or Ubuntu; install a libfuse of $VERSION or newer yourself"
"$top/scripts/install-deps.sh" --libfuse
mirror=$("$top/scripts/debian-mirror.sh") || exit $UNREACHABLE
export FLUXKV_DEBIAN_MIRROR="$mirror"
build_as_owner

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir -p "$prefix" 2>/dev/null || true
[ -w "$prefix" ] || fail "cannot write to $prefix"
state=$(mktemp -d "${TMPDIR:-/var/tmp}/fluxkv-libfuse.XXXXXX")
fetch
build
installed >/dev/null || fail "Debian's $SUITE at $mirror has no libfuse of $VERSION or newer"
report
