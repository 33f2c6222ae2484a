#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds FluxKV, mounts a node in a temporary folder, stores more than its DRAM holds, and reads all of it back.
#
#   sudo scripts/quickstart.sh          takes everything away at the end
#   sudo scripts/quickstart.sh --keep   leaves it mounted, and says how to end it
#
# Installs missing packages with apt (Debian, Ubuntu), builds in build/ (there also a libfuse with passthrough, where the
# system's is too old and a Debian mirror is at hand), and puts everything else below one folder in $TMPDIR (default
# /var/tmp).
set -euo pipefail

DRAM=256MB SSD=1GB # of the node
SYSTEM_MIB=320     # of this machine's own files to store
NEED_MIB=1400      # of disk: the ring, and what is generated to compare with

top=$(cd "$(dirname "$0")/.." && pwd)
bin=$top/build
keep="" dir="" pid=""
# shellcheck source=scripts/processes.sh
. "$top/scripts/processes.sh"

step() { printf '  %-11s' "$1"; }
did() { printf '%s\n' "$*"; }
fail() {
	printf '\nquickstart: %s\n' "$*" >&2
	exit 1
}
# A command that nobody thought could fail. Where the daemon is no more, that is why.
unexpected() {
	local line=$1
	[ -z "$pid" ] || alive "$pid" || fail "fluxkvd has died: $(tail -n 1 "$dir/run/quickstart/fluxkvd.log")"
	fail "line $line of $0 failed, see above"
}

pid_of_daemon() { cat "$dir/run/quickstart/fluxkvd.pid" 2>/dev/null || true; }

# Whatever happened: no daemon, no mount, no folder is left.
clean_up() {
	local status=$?
	trap - EXIT INT TERM HUP
	if [ -n "$dir" ] && [ "$keep" != mounted ]; then
		[ -n "$pid" ] || pid=$(pid_of_daemon)
		if [ -n "$pid" ] && alive "$pid"; then
			kill -TERM "$pid" 2>/dev/null || true
			gone "$pid" 150 || kill -KILL "$pid" 2>/dev/null || true
		fi
		unmount "$dir/mnt" "$dir/run/quickstart/segment"
		rm -rf --one-file-system "$dir"
	fi
	exit $status
}

# ---- what is there, what is missing ---------------------------------------------------------------------------------

case ${1-} in
"") ;;
--keep) keep=yes ;;
-h | --help)
	sed -n '3,10s/^# \{0,1\}//p' "$0"
	exit 0
	;;
*)
	echo "quickstart: unknown option $1; see: $0 --help" >&2
	exit 2
	;;
esac
[ "$(id -u)" = 0 ] || fail "it mounts a file system, so it needs root: sudo $0"
[ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
[ -c /dev/fuse ] || fail "there is no /dev/fuse: load the module (modprobe fuse), or give the container --device /dev/fuse"
trap clean_up EXIT
trap 'unexpected $LINENO' ERR
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "FluxKV: a node with $DRAM of DRAM and $SSD of SSD, on this machine"
step packages
"$top/scripts/install-deps.sh" || fail "not all packages could be installed, see above"
did "all there"

mkdir -p "$bin"
chown --reference="$top" "$bin"
step libfuse
if pkg-config --atleast-version=3.17 fuse3; then
	did "the system's, $(pkg-config --modversion fuse3)"
elif said=$("$top/scripts/build-libfuse.sh" "$bin/libfuse" 2>&1 </dev/null); then
	did "${said#libfuse }"
else
	did "the system's, $(pkg-config --modversion fuse3), so reads take the copy path: $(tail -n 1 <<<"$said")"
fi

step build
SECONDS=0
: >"$bin/quickstart.log"
chown --reference="$top" "$bin/quickstart.log"
"$top/scripts/build.sh" >"$bin/quickstart.log" 2>&1 </dev/null ||
	fail "the build failed: $(grep -m1 -iE 'error' "$bin/quickstart.log" || tail -n 1 "$bin/quickstart.log") (all of it: $bin/quickstart.log)"
did "in $bin, $SECONDS s"

# ---- mount ----------------------------------------------------------------------------------------------------------

step mount
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/fluxkv-quickstart.XXXXXX")
mnt=$dir/mnt
mkdir "$dir/ssd" "$dir/mnt" "$dir/made"
have=$(($(df --output=avail -m "$dir" | tail -n 1)))
[ "$have" -ge "$NEED_MIB" ] || fail "$dir has $have MiB free and $NEED_MIB are needed: set TMPDIR to a larger disk"
options="dram=$DRAM,ssd=$dir/ssd:$SSD,instance=quickstart,run_dir=$dir/run,state_dir=$dir/state"
# Blocks wait in DRAM until the SSD has them, however slow it is here: nothing may be lost in this run.
options="$options,persist_backlog=$SSD"
if ! dd if=/dev/zero of="$dir/made/probe" bs=4096 count=1 oflag=direct status=none 2>/dev/null; then
	options="$options,ssd_direct=false"
fi
error=$("$bin/fluxkvd" -o "$options" standalone "$mnt" 2>&1 </dev/null) || fail "${error:-fluxkvd does not start}"
pid=$(pid_of_daemon)
did "$mnt"

fluxkv() { "$bin/fluxkv" --socket "$dir/run/quickstart/control" "$@"; }

# ---- store ----------------------------------------------------------------------------------------------------------

mib() { echo $(($(du -sm --apparent-size "$@" | awk '{ s += $1 } END { print s }'))); }

# Libraries and programs of this machine: real files, of all sizes.
step cp
cd /
python3 - "$SYSTEM_MIB" >"$dir/made/list" <<'PY'
import os, sys
left = int(sys.argv[1]) << 20
for top in "usr/lib", "usr/bin":
    for at, dirs, names in os.walk(top):
        dirs.sort()
        for path in (os.path.join(at, name) for name in sorted(names)):
            size = 0 if os.path.islink(path) else os.path.getsize(path)
            if 64 << 10 <= size <= min(left, 64 << 20):
                left -= size
                sys.stdout.buffer.write(os.fsencode(path) + b"\0")
PY
mkdir "$mnt/system"
xargs -0 -a "$dir/made/list" cp --parents -t "$mnt/system" || fail "cp into the mount failed"
xargs -0 -a "$dir/made/list" sha256sum >"$dir/made/system.sums"
system_files=$(wc -l <"$dir/made/system.sums")
did "$system_files files of /usr, $(mib "$mnt/system") MiB"

step dd
mkdir "$mnt/random" "$dir/made/random"
for i in 1 2 3 4 5 6 7 8; do
	dd if=/dev/urandom of="$dir/made/random/$i" bs=1M count=8 status=none
	dd if="$dir/made/random/$i" of="$mnt/random/$i" bs=4M oflag=direct status=none || fail "dd into the mount failed"
done
(cd "$dir/made/random" && sha256sum -- *) >"$dir/made/random.sums"
did "8 random files, $(mib "$mnt/random") MiB"

step python
python3 - "$mnt" <<'PY' || fail "Python could not store its values"
import hashlib, os, sys
os.makedirs(sys.argv[1] + "/python/v1")
for i in range(64):
    value = hashlib.shake_256(b"%d" % i).digest((1 << 20) - 128)
    name = f"{sys.argv[1]}/python/v1/{i}"
    with open(name + ".tmp", "wb") as f:
        f.write(value)
    os.rename(name + ".tmp", name)
PY
did "64 values of 1 MiB - 128, written beside and renamed"

# ---- read back ------------------------------------------------------------------------------------------------------

step "read back"
SECONDS=0
(cd "$mnt/system" && sha256sum --quiet --strict -c "$dir/made/system.sums") || fail "a file that cp stored came back changed"
(cd "$mnt/random" && sha256sum --quiet --strict -c "$dir/made/random.sums") || fail "a file that dd stored came back changed"
did "$((system_files + 8)) files, every SHA-256 is the same"

step mmap
python3 - "$mnt" <<'PY' || fail "a value that Python stored came back changed"
import hashlib, mmap, sys
for i in range(64):
    with open(f"{sys.argv[1]}/python/v1/{i}", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        if m[:] != hashlib.shake_256(b"%d" % i).digest((1 << 20) - 128):
            sys.exit(f"value {i} is wrong")
PY
did "64 values mapped from Python, every byte compared"

step status
fluxkv status --json >"$dir/made/status.json" || fail "fluxkv status does not answer"
python3 - "$dir/made/status.json" <<'PY' || fail "the tiers are not used as they should be, see above"
import json, sys
s = json.load(open(sys.argv[1]))
stored, dram = s["puts"]["bytes"], s["dram"]["capacity"]
print(f"{stored >> 20} MiB stored through {dram >> 20} MiB of DRAM; {s['ssd']['used'] >> 20} MiB are on the SSD, "
      f"{s['refills']['bytes'] >> 20} MiB were read from there\n")
bad = [text for text, wrong in [
    ("no more was stored than DRAM holds", stored <= dram),
    ("DRAM is empty", not s["dram"]["used"]),
    ("the SSD is empty", not s["ssd"]["used"]),
    ("nothing was read from the SSD", not s["hits"]["ssd_local"]),
    ("checksum errors", s["checksum_errors"]),
] if wrong]
sys.exit(f"  {', '.join(bad)}" if bad else 0)
PY
fluxkv status | sed 's/^/    /'
echo

# ---- the end --------------------------------------------------------------------------------------------------------

if [ -n "$keep" ]; then
	rm -rf "$dir/made"
	keep=mounted
	cat <<END
It stays mounted at $mnt. Try:
    sudo ls $mnt/python/v1 | head; sudo cat $mnt/.fluxkv/status
    sudo $bin/fluxkv --socket $dir/run/quickstart/control top
End it with (fluxkvd is given the time to end before its folder goes):
    sudo umount $mnt && sudo tail --pid=$pid -f /dev/null && sudo rm -rf --one-file-system $dir
END
	exit 0
fi
step unmount
umount "$mnt" || fail "umount failed"
# It ends with its mount. A mount namespace that was made meanwhile (a container's) has a copy: then it has to be asked.
gone "$pid" 20 || kill -TERM "$pid" 2>/dev/null || true
gone "$pid" 150 || fail "fluxkvd (pid $pid) has not ended 15 s after umount"
pid=
did "done, fluxkvd has ended; $dir is removed, the build stays in $bin"
