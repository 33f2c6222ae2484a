#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that FluxKV is built with (Debian, Ubuntu). What is there already is left as it is; when all is
# there, nothing is asked of the network.
#
#   install-deps.sh            to build and to run
#   install-deps.sh --tests    also what the tests use
#   install-deps.sh --ci       also what .ci/run uses
#   install-deps.sh --libfuse  no more than build-libfuse.sh uses
# shellcheck disable=SC2086 # lists of words are split
set -eu

build="autoconf automake gcc make pkg-config libc6-dev libfuse3-dev liburing-dev libsqlite3-dev libyaml-dev
	libjansson-dev libxxhash-dev libsystemd-dev libprotobuf-c-dev protobuf-c-compiler libsodium-dev libuv1-dev
	check fuse3 mount python3"
tests="python3-numpy procps rsync fio e2fsprogs util-linux strace mandoc systemd"
ci="clang libclang-rt-dev libcairo2-dev libhiredis-dev libmemcached-dev memcached redis-server mmdebstrap"
libfuse="gcc libc6-dev meson ninja-build dpkg-dev debian-archive-keyring"
fedora="autoconf automake gcc make pkgconf-pkg-config fuse3-devel liburing-devel sqlite-devel libyaml-devel
	jansson-devel xxhash-devel systemd-devel protobuf-c-devel protobuf-c-compiler libsodium-devel libuv-devel
	check-devel fuse3 python3"

say() { printf 'install-deps: %s\n' "$*" >&2; }

case ${1-} in
"") wanted=$build ;;
--tests) wanted="$build $tests" ;;
--ci) wanted="$build $tests $ci $libfuse" ;;
--libfuse) wanted=$libfuse ;;
-h | --help)
	sed -n '3,9s/^# \{0,1\}//p' "$0"
	exit 0
	;;
*)
	say "unknown option $1; see: $0 --help"
	exit 2
	;;
esac

if ! command -v apt-get >/dev/null; then
	# Somebody else's package manager: look whether the libraries are there, and name the packages if not.
	pkg-config --exists fuse3 liburing sqlite3 yaml-0.1 jansson libxxhash libsystemd libprotobuf-c libsodium libuv 2>/dev/null &&
		command -v automake >/dev/null && command -v protoc-c >/dev/null && exit 0
	say "this is not Debian or Ubuntu; install these yourself (names as on Fedora):" $fedora
	exit 1
fi

missing=
for p in $wanted; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	say "these packages are missing; run as root: apt-get install$missing"
	exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -q -y --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
	tail -n 5 "$log" >&2
	say "apt-get could not install$missing"
	exit 1
fi
