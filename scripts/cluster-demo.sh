#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cluster on this machine: a master and three nodes, one of them without an SSD. What is stored on one is read on the
# others, from its memory and from its SSD; then that node is killed, and it is told what is left.
#
#   sudo scripts/cluster-demo.sh
#
# Each is on a machine of its own, as far as the network goes: a network namespace, with a switch between them. Where
# that is not allowed they share the loopback. Takes the programs of build/, which it builds where they are missing, or
# of $top_builddir; everything else lies below one folder in $TMPDIR (default /var/tmp). Nothing of it is left at the
# end, nor after Ctrl-C.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
bin=${top_builddir:-$top/build}
dir="" master="" switch="" pids="" wrap=()
declare -A machine address
# shellcheck source=scripts/processes.sh
. "$top/scripts/processes.sh"

say() { printf '\n%s\n' "$*"; }
step() { printf '  %-22s' "$1"; }
did() { printf '%s\n' "$*"; }
fail() {
	printf '\ncluster-demo: %s\n' "$*" >&2
	exit 1
}

pid_of() { cat "$dir/$1/run/$1/fluxkvd.pid" 2>/dev/null || true; }

# end PID...: SIGTERM, and SIGKILL for what has not ended 10 s later
end() {
	local pid
	for pid; do ! alive "$pid" || kill -TERM "$pid" 2>/dev/null || true; done
	for pid; do gone "$pid" 100 || kill -KILL "$pid" 2>/dev/null || true; done
}

# Whatever happened: no process, no mount, no folder is left. Nodes end before their master.
clean_up() {
	local status=$?
	trap - EXIT INT TERM HUP ERR
	if [ -n "$dir" ]; then
		# shellcheck disable=SC2046
		end $(for n in one two three; do pid_of $n; done)
		master=${master:-$(cat "$dir/master/run/fluxkv-master.pid" 2>/dev/null || true)}
		[ -z "$master" ] || end "$master"
		for n in one two three; do
			unmount "$dir/$n/mnt" "$dir/$n/run/$n/segment"
		done
		rm -rf --one-file-system "$dir"
	fi
	# With the last process in it a network namespace goes, and all that is in it.
	for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
	exit $status
}

case ${1-} in
"") ;;
-h | --help)
	sed -n '3,12s/^# \{0,1\}//p' "$0"
	exit 0
	;;
*)
	echo "cluster-demo: unknown option $1; see: $0 --help" >&2
	exit 2
	;;
esac
[ "$(id -u)" = 0 ] || fail "it mounts file systems, so it needs root: sudo $0"
[ -c /dev/fuse ] || fail "there is no /dev/fuse: load the module (modprobe fuse), or give the container --device /dev/fuse"
trap clean_up EXIT
trap 'fail "line $LINENO of $0 failed, see above"' ERR
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- machines -------------------------------------------------------------------------------------------------------

# new_machine: a network namespace that lasts as long as the process that sleeps in it, whose pid is $made
new_machine() {
	unshare -n sleep infinity </dev/null >/dev/null 2>&1 &
	made=$!
	pids="$pids $made"
	for _ in $(seq 50); do
		[ "$(readlink /proc/$made/ns/net)" = "$(readlink /proc/self/ns/net)" ] || return 0
		alive "$made" || return 1
		sleep 0.02
	done
	return 1
}
on() { nsenter --net="/proc/$1/ns/net" "${@:2}"; }

# plug NAME NUMBER: a machine with an address, on the switch
plug() {
	new_machine || return 1
	machine[$1]=$made
	address[$1]=10.77.0.$2
	on "$switch" ip link add "port$2" type veth peer name eth0 netns "$made" &&
		on "$switch" ip link set "port$2" master br0 up &&
		on "$made" ip addr add "10.77.0.$2/24" dev eth0 &&
		on "$made" ip link set eth0 up && on "$made" ip link set lo up
}

make_network() {
	new_machine || return 1
	switch=$made
	on "$switch" ip link add br0 type bridge && on "$switch" ip link set br0 up &&
		plug master 1 && plug one 2 && plug two 3 && plug three 4
}

# use NAME: what starts a program on that machine
use() { wrap=(${machine[$1]:+nsenter "--net=/proc/${machine[$1]}/ns/net"}); }

say "A FluxKV cluster on this machine"
if [ ! -x "$bin/fluxkvd" ] || [ ! -x "$bin/fluxkv-master" ]; then
	step build
	"$top/scripts/build.sh" >/dev/null 2>&1 </dev/null || fail "the build failed; scripts/build.sh says why"
	did "in $bin"
fi
step machines
if make_network 2>/dev/null; then
	did "four network namespaces, 10.77.0.1 to 10.77.0.4, and a switch"
else
	machine=()
	address=([master]=127.0.0.1 [one]=127.0.0.2 [two]=127.0.0.3 [three]=127.0.0.4)
	did "addresses of the loopback (network namespaces need root, unshare and ip)"
fi

# ---- the cluster ----------------------------------------------------------------------------------------------------

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/fluxkv-cluster.XXXXXX")
[ "$(($(df --output=avail -m "$dir" | tail -n 1)))" -ge 800 ] || fail "$dir has less than 800 MiB free: set TMPDIR"
mkdir "$dir"/{master,one,two,three,made} "$dir"/{one,two,three}/mnt "$dir"/{one,two}/ssd
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
direct=""
dd if=/dev/zero of="$dir/made/probe" bs=4096 count=1 oflag=direct status=none 2>/dev/null || direct=",ssd_direct=false"

step master
use master
cat >"$dir/master/fluxkv.yaml" <<END
run_dir: $dir/master/run
state_dir: $dir/master/state
cluster_key_file: $dir/key
END
"${wrap[@]}" "$bin/fluxkv-master" -c "$dir/master/fluxkv.yaml" --listen "${address[master]}:7450" </dev/null 2>"$dir/made/said" ||
	fail "$(cat "$dir/made/said")"
master=$(cat "$dir/master/run/fluxkv-master.pid")
did "${address[master]}:7450, pid $master; it knows names and places, no bytes pass through it"

# start NAME OPTIONS: a node of the cluster
start() {
	step "node $1"
	use "$1"
	"${wrap[@]}" "$bin/fluxkvd" -o "instance=$1,dram=128MB$2,cluster_key_file=$dir/key,data_listen=${address[$1]}:0" \
		-o "run_dir=$dir/$1/run,state_dir=$dir/$1/state" "${address[master]}:7450" "$dir/$1/mnt" \
		</dev/null 2>"$dir/made/said" || fail "$(cat "$dir/made/said")"
}
fluxkv() { "$bin/fluxkv" --socket "$dir/$1/run/$1/control" "${@:2}"; }

start one ",ssd=$dir/one/ssd:256MB,persist_backlog=256MB$direct"
did "${address[one]}, 128 MB of memory, 256 MB of SSD"
start two ",ssd=$dir/two/ssd:256MB,persist_backlog=256MB$direct"
did "${address[two]}, 128 MB of memory, 256 MB of SSD"
start three ""
did "${address[three]}, 128 MB of memory, no SSD"
one=$dir/one/mnt two=$dir/two/mnt three=$dir/three/mnt

# ---- reading elsewhere ----------------------------------------------------------------------------------------------

# served NODE: where its reads were served from
served() {
	fluxkv "$1" status --json | python3 -c '
import json, sys
hits = json.load(sys.stdin)["hits"]
words = {"memory_local": "its memory", "memory_remote": "memory elsewhere", "ssd_local": "its SSD", "ssd_remote": "an SSD elsewhere"}
print(", ".join(f"{hits[k]} from {words[k]}" for k in words if hits[k]) or "no reads")'
}
# compare NODE WHAT: reads all values of a kind on a node, and compares their SHA-256
compare() { (cd "$dir/$1/mnt/kv" && sha256sum --quiet --strict -c "$dir/made/$2.sums"); }

say "What one node stores, the others read"
mkdir "$one/kv"
for i in $(seq 16); do
	dd if=/dev/urandom of="$dir/made/value" bs=1M count=2 status=none
	for kind in shared cold alone; do
		[ "$kind" = shared ] || [ "$i" -le 8 ] || continue
		printf '%s %s' "$kind" "$i" | cat - "$dir/made/value" >"$one/kv/$kind$i"
		(cd "$one/kv" && sha256sum "$kind$i") >>"$dir/made/$kind.sums"
	done
done
step "put on one"
did "32 values of 2 MiB, as files below $one/kv"
step "read on two"
compare two shared || fail "a value came changed"
did "16 values, every SHA-256 is right: $(served two)"
step "read on two again"
compare two shared || fail "a value came changed"
did "now they are here: $(served two)"

step "evict on one"
# Behind the writer's back they have been copied to the SSD; this waits for the last.
for _ in $(seq 300); do
	waiting=$(fluxkv one status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["persists"]["backlog_bytes"])')
	[ "$waiting" != 0 ] || break
	sleep 0.1
done
for i in $(seq 8); do fluxkv one evict --tier dram "kv/cold$i" >/dev/null; done
did "8 values are on its SSD alone"
step "read on three"
compare three cold || fail "a value came changed"
did "sent while they are read from that SSD: $(served three)"

step "overwrite on two"
printf 'new\n' >"$two/kv/shared1"
for n in one three; do
	[ "$(cat "$dir/$n/mnt/kv/shared1")" = new ] || fail "node $n sees the old version"
done
did "the next open on one and on three sees it"
sed -i '/ shared1$/d' "$dir/made/shared.sums"

# ---- a node dies ----------------------------------------------------------------------------------------------------

say "One node is killed"
step "kill -9 one"
pid=$(pid_of one)
kill -KILL "$pid"
gone "$pid" 50 || fail "it has not ended"
umount -l "$one"
did "pid $pid"
step "read on three"
compare three shared || fail "what two nodes had is not read any more"
compare three cold || fail "what two nodes had is not read any more"
did "what others have had a copy of is all there: 23 values"
step "what it alone had"
for _ in $(seq 200); do
	missing=0
	for i in $(seq 8); do [ -e "$three/kv/alone$i" ] && cat "$three/kv/alone$i" >/dev/null 2>&1 || missing=$((missing + 1)); done
	listed=$(find "$three/kv" -name 'alone*' | wc -l)
	[ "$missing" = 8 ] && [ "$listed" = 0 ] && break
	sleep 0.1
done
[ "$missing" = 8 ] || fail "values are read that nobody has"
did "8 misses: a cache has lost them, and no wrong byte was read"
start one ",ssd=$dir/one/ssd:256MB,persist_backlog=256MB$direct"
did "started again, empty"
step "read on one"
compare one shared || fail "a value came changed"
did "from the others: $(served one)"

say "The end"
step "unmount"
for n in three two one; do
	umount "$dir/$n/mnt" || fail "umount of $dir/$n/mnt failed"
done
for n in three two one; do
	pid=$(pid_of $n)
	[ -z "$pid" ] || gone "$pid" 150 || fail "node $n (pid $pid) has not ended 15 s after umount"
done
did "the nodes have left; the master ends, and $dir is removed"
