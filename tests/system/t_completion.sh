#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The completion of fluxkv and fluxkv-bench for bash, with a fluxkv in front of PATH that has some names to give.
# Timeout: 60 s.
: "${top_srcdir:?}" "${top_builddir:?}"
if [[ ! -x $top_builddir/fluxkv ]]; then
	echo "1..0 # SKIP fluxkv is not built"
	exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
trap 'exit 99' HUP INT TERM
mkdir "$dir/bin" "$dir/work"
cat > "$dir/bin/fluxkv" << 'END'
#!/bin/bash
case "$*" in
"ls -- .") printf 'kv/\nlatents/\nodd/\n' ;;
"ls -- kv/") printf 'a b\nalpha\nbeta/\n' ;;
"ls -- odd/") printf '%s\n' '$(touch ran1)' '`touch ran2`' '$HOME' '*' "it's" 'new' 'line' 'a\b' ;;
"ls -- a \$(touch ran3)/") printf 'deep\n' ;;
"--instance two ls -- .") printf 'other/\n' ;;
"ns list") printf '   OBJECTS      BYTES      BLOCK          TTL PERSIST  NAME\n         2       10 B     64 MiB         none     yes  kv\n'
	printf '         0        0 B     64 MiB 4000000000 s      no  %s\n' 'x $(touch ran4)  y' '`touch ran5`' ;;
help*) exec "$REAL" "$@" ;;
*) exit 3 ;;
esac
END
chmod 755 "$dir/bin/fluxkv"
export PATH=$dir/bin:$PATH REAL=$top_builddir/fluxkv
cd "$dir/work" && touch local1 local2 || exit 99
# shellcheck source=/dev/null
. "$top_srcdir/scripts/completion/fluxkv.bash"

n=0
# expect "WANTED..." WORD...: the completions of the last WORD, sorted, with | between them.
expect() {
	local wanted=$1 got
	shift
	COMP_WORDS=(fluxkv "$@")
	COMP_CWORD=$#
	_fluxkv 2> "$dir/err"
	got=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd'|')
	n=$((n + 1))
	if [[ $got == "$wanted" && ! -s $dir/err ]]; then
		echo "ok $n - fluxkv $*"
	else
		echo "not ok $n - fluxkv $*"
		echo "# got: $got, not: $wanted; $(tr '\n' ' ' < "$dir/err")"
		echo "# reproduce: top_srcdir=$top_srcdir top_builddir=$top_builddir $0"
	fi
}

echo 1..39
expect "stat|status" sta
expect "pin|prefetch|put" p
expect "kv/" ls k
expect "kv/a b|kv/alpha" rm kv/a
expect "kv/beta/" rm -r kv/alpha kv/b
expect "local1|local2" put lo
expect "latents/" put local1 l
expect "latents/" get l
expect "local1|local2" get kv/alpha l
expect "dram|ssd" evict --tier ""
expect "kv/alpha" evict -t ssd kv/al
expect "--force" evict --f
expect "--block-size" ns create --b
expect "rm" ns r
expect "kv" ns rm k
expect "" ns create k
expect "none" ttl kv/alpha n
expect "other/" --instance two ls o
# Names are other people's: nothing in them runs or is expanded, and what is typed may be quoted already.
expect 'odd/$(touch ran1)|odd/$HOME' rm 'odd/$'
expect 'odd/it'"'"'s' rm "odd/it\\'"
expect 'odd/a\b' rm "'odd/a\\"
expect 'kv/a b' rm 'kv/a\ '
expect 'kv/a b' rm '"kv/a b'
expect 'a $(touch ran3)/deep' rm 'a\ \$(touch\ ran3)/d'
expect 'x $(touch ran4)  y' ns rm 'x\ '
expect '`touch ran5`' ns rm '\`'
n=$((n + 1))
if compgen -G 'ran*' > /dev/null; then
	echo "not ok $n - no name runs:" ran*
else
	echo "ok $n - no name runs"
fi
# Every command that the tool knows is completed.
n=$((n + 1))
known=$("$REAL" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | LC_ALL=C sort | paste -sd'|')
COMP_WORDS=(fluxkv "") COMP_CWORD=1
_fluxkv
got=$(printf '%s\n' "${COMPREPLY[@]}" | grep -v '^-' | LC_ALL=C sort | paste -sd'|')
if [[ $got == "$known" ]]; then
	echo "ok $n - all commands"
else
	echo "not ok $n - all commands: $got, not $known"
fi

# The benchmark's, with the real program.
cat > "$dir/bin/fluxkv-bench" << 'END'
#!/bin/sh
exec "$BENCH" "$@"
END
chmod 755 "$dir/bin/fluxkv-bench"
export BENCH=$top_builddir/fluxkv-bench
# shellcheck source=/dev/null
. "$top_srcdir/scripts/completion/fluxkv-bench.bash"

# expect_bench "WANTED..." WORD...
expect_bench() {
	local wanted=$1 got
	shift
	COMP_WORDS=(fluxkv-bench "$@")
	COMP_CWORD=$#
	_fluxkv_bench 2> "$dir/err"
	got=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd'|')
	n=$((n + 1))
	if [[ $got == "$wanted" && ! -s $dir/err ]]; then
		echo "ok $n - fluxkv-bench $*"
	else
		echo "not ok $n - fluxkv-bench $*"
		echo "# got: $got, not: $wanted; $(tr '\n' ' ' < "$dir/err")"
		echo "# reproduce: top_srcdir=$top_srcdir top_builddir=$top_builddir $0"
	fi
}

expect_bench "pressure|put" p
expect_bench "read|refill|report" re
expect_bench "--help" --h
expect_bench "--start" pressure --st
expect_bench "--target=" pressure --ta
expect_bench "" read --ta
expect_bench "files|fluxkv|memcached|redis" pressure --target =
expect_bench "memcached" pressure --target = m
expect_bench "local1|local2" pressure --save = l
expect_bench "local1|local2" read l
n=$((n + 1))
known=$("$BENCH" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | LC_ALL=C sort | paste -sd'|')
COMP_WORDS=(fluxkv-bench "") COMP_CWORD=1
_fluxkv_bench
got=$(printf '%s\n' "${COMPREPLY[@]}" | grep -v '^-' | LC_ALL=C sort | paste -sd'|')
if [[ -n $known && $got == "$known" ]]; then
	echo "ok $n - all commands of fluxkv-bench"
else
	echo "not ok $n - all commands of fluxkv-bench: $got, not $known"
fi
