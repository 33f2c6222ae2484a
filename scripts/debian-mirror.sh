#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the address of the Debian mirror that this machine's apt uses, or FLUXKV_DEBIAN_MIRROR where that is set.
set -eu

# Which of the sources is Debian is known once their lists are here.
# shellcheck disable=SC2016 # these are apt's variables
from_apt() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		sed -n '/|cdrom:/d; s,^Debian|Debian|main|\(.*[^/]\)/*$,\1,p' | head -n 1
}

say() { printf 'debian-mirror: %s\n' "$*" >&2; }

mirror=${FLUXKV_DEBIAN_MIRROR-}
if [ -z "$mirror" ] && command -v apt-get >/dev/null; then
	mirror=$(from_apt)
	if [ -z "$mirror" ] && [ "$(id -u)" = 0 ] && [ -z "$(apt-get indextargets 2>/dev/null)" ]; then
		apt-get update -q >/dev/null 2>&1 </dev/null || true
		mirror=$(from_apt)
	fi
fi
case $mirror in
"")
	say "apt knows no Debian mirror here: run apt-get update if it should, or set FLUXKV_DEBIAN_MIRROR=http://.../debian"
	exit 1
	;;
*[[:space:]]*)
	say "this is no address of a mirror: $mirror"
	exit 1
	;;
esac
printf '%s\n' "$mirror"
