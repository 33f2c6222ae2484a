#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds FluxKV out of tree, from whatever state the checkout is in.
#
#   build.sh [DIR [CONFIGURE-OPTION...]]    in DIR (default: build/ of the checkout)
#   build.sh --check [DIR ...]              also the programs that the tests use
#
# With the libfuse that build-libfuse.sh has put into DIR/libfuse, if it has; else with the system's.
# Run as root over somebody else's checkout, it builds as that somebody, so that nothing there belongs to root.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
check=
if [ "${1-}" = --check ]; then
	check=--check
	shift
fi
dir=${1-$top/build}
[ $# -eq 0 ] || shift

if [ "$(id -u)" = 0 ] && [ "$(stat -c %u "$top")" != 0 ]; then
	exec setpriv --reuid "$(stat -c %u "$top")" --regid "$(stat -c %g "$top")" --clear-groups \
		"$0" $check "$dir" "$@"
fi

# Later changes of these files are make's business.
if [ ! -x "$top/configure" ] || [ -n "$(find "$top/configure.ac" -newer "$top/configure")" ]; then
	"$top/autogen.sh"
fi
mkdir -p "$dir"
cd "$dir"
libfuse=
[ ! -f libfuse/lib/pkgconfig/fuse3.pc ] || libfuse=--with-libfuse=$PWD/libfuse
if [ ! -f Makefile ] || [ $# -gt 0 ]; then
	"$top/configure" --quiet ${libfuse:+"$libfuse"} "$@"
elif [ -n "$libfuse" ] && ! ./config.status --config | grep -qE -e '--with(out)?-libfuse'; then
	# It came after this folder was configured, which stays as it is otherwise.
	eval "set -- $(./config.status --config)"
	"$top/configure" --quiet "$libfuse" "$@"
fi
exec make -j"$(nproc)" all ${check:+check-programs}
