#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The systemd units, as they are installed, in a root directory of their own. Timeout: 60 s.
: "${top_srcdir:?}" "${top_builddir:?}"
if ! command -v systemd-analyze > /dev/null; then
	echo "1..0 # SKIP systemd-analyze is not installed"
	exit 0
fi
root=$(mktemp -d) || exit 99
trap 'rm -rf "$root"' EXIT
trap 'exit 99' HUP INT TERM

units=$root/usr/lib/systemd/system
mkdir -p "$units" "$root/bin"
cp "$top_builddir"/scripts/systemd/*.service "$top_builddir"/scripts/systemd/*.mount "$units" || exit 99

# What the units start must be there: what they name, and nothing else, is put into the root.
daemon=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$units/fluxkvd@.service")
master=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$units/fluxkv-master.service")
mkdir -p "$root/${daemon%/*}"
for program in /bin/sh /bin/kill /bin/mkdir "$daemon" "$master"; do
	printf '#!/bin/sh\n' > "$root/$program"
	chmod 755 "$root/$program"
done

n=0
verify() {
	n=$((n + 1))
	if said=$(timeout 60 systemd-analyze "--root=$root" --man=no --recursive-errors=no verify "$@" 2>&1) && [ -z "$said" ]; then
		echo "ok $n - $*"
	else
		echo "not ok $n - $*"
		echo "$said" | sed 's/^/# /'
		echo "# reproduce: top_srcdir=$top_srcdir top_builddir=$top_builddir $0"
	fi
}

echo 1..9
verify fluxkvd@node1.service
verify mnt-fluxkv.mount
verify fluxkv-master.service

# The path in the unit is that of the program that `make install` installs.
n=$((n + 1))
if [ "${daemon##*/}" = fluxkvd ] && grep -q '^Type=notify' "$units/fluxkvd@.service"; then
	echo "ok $n - the service starts fluxkvd and waits for its notice"
else
	echo "not ok $n - the service starts fluxkvd and waits for its notice"
fi
n=$((n + 1))
if [ "${master##*/}" = fluxkv-master ] && grep -q '^Type=notify' "$units/fluxkv-master.service" &&
	grep -q '^ExecStart=[^ ]* -f ' "$units/fluxkv-master.service"; then
	echo "ok $n - the master's service starts fluxkv-master and waits for its notice"
else
	echo "not ok $n - the master's service starts fluxkv-master and waits for its notice"
fi
n=$((n + 1))
if grep -q '@[a-z]*@' "$units"/*; then
	echo "not ok $n - no placeholder is left"
else
	echo "ok $n - no placeholder is left"
fi

# What README.md says of the configuration's place, which configure's default has to make true.
n=$((n + 1))
if "$top_builddir/config.status" --config | grep -q -e --sysconfdir; then
	echo "ok $n - the units read /etc/fluxkv # SKIP configured with --sysconfdir"
elif grep -q '^ConditionPathExists=/etc/fluxkv/%i.yaml$' "$units/fluxkvd@.service" &&
	grep -q '^Options=config=/etc/fluxkv/fluxkv.yaml$' "$units/mnt-fluxkv.mount"; then
	echo "ok $n - the units read /etc/fluxkv"
else
	echo "not ok $n - the units read /etc/fluxkv"
fi

# Before the daemon starts, its mount point is made, with what is missing above it: the unit's own commands do it.
n=$((n + 1))
if said=$(sed -n "s|^ExecStartPre=||p" "$units/fluxkvd@.service" | sed "s|$daemon|$top_builddir/fluxkvd|" |
	while read -r line; do
		MOUNTPOINT=$root/mnt/kv sh -c "${line#-}" || [ "$line" != "${line#-}" ] || exit 1
	done 2>&1) && [ -d "$root/mnt/kv" ]; then
	echo "ok $n - the service makes the mount point"
else
	echo "not ok $n - the service makes the mount point"
	echo "$said" | sed 's/^/# /'
fi

# And the check itself can fail.
n=$((n + 1))
sed -i 's/^Type=notify/Type=nonsense/' "$units/fluxkvd@.service"
if systemd-analyze "--root=$root" --man=no --recursive-errors=no verify fluxkvd@node1.service 2>&1 | grep -q nonsense; then
	echo "ok $n - a broken unit is found"
else
	echo "not ok $n - a broken unit is found"
fi
