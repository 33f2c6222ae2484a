#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mandoc has nothing to say about the manual pages, and they speak of the options that the programs have.
# Timeout: 60 s.
: "${top_srcdir:?}" "${top_builddir:?}"
if ! command -v mandoc > /dev/null; then
	echo "1..0 # SKIP mandoc is not installed"
	exit 0
fi
pages=$(ls "$top_srcdir"/man/*.[1-8])
n=0
result() {
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		echo "$2" | sed 's/^/# /'
		echo "# reproduce: top_srcdir=$top_srcdir top_builddir=$top_builddir $0"
	fi
}

# Whether pages of other packages, or ours, are installed here says nothing about ours.
for page in $pages; do
	result "${page##*/}" "$(mandoc -Tlint "$page" 2>&1 | grep -v 'referenced manual not found' | grep -v 'outdated mandoc.db')"
done

# The long options of a program's --help that its page does not name. $1: the page, $2...: the help.
unnamed() {
	page=$1
	shift
	for option in $("$@" | grep -o -- '--[a-z][a-z-]*' | sort -u); do
		grep -q -- "\(Fl\|Fl [a-z] ,\) -${option#--}\\>" "$page" || echo "$option is not in ${page##*/}"
	done
}

for command in $("$top_builddir/fluxkv" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
	missing=
	grep -q "^\\.It Cm $command\\>" "$top_srcdir/man/fluxkv.1" || missing="$command is not in fluxkv.1"
	result "fluxkv $command" "$missing"
done
result "options of fluxkvd" "$(unnamed "$top_srcdir/man/fluxkvd.8" "$top_builddir/fluxkvd" --help)"
result "options of fluxkv-master" "$(unnamed "$top_srcdir/man/fluxkv-master.8" "$top_builddir/fluxkv-master" --help)"
# Recursion, parents and the like are given in the short form that the page describes.
result "options of fluxkv" "$(unnamed "$top_srcdir/man/fluxkv.1" "$top_builddir/fluxkv" help | grep -v -e --help -e --version)"
for command in $("$top_builddir/fluxkv-bench" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
	missing=$(unnamed "$top_srcdir/man/fluxkv-bench.1" "$top_builddir/fluxkv-bench" "$command" --help)
	grep -q "^\\.It Cm $command\\>" "$top_srcdir/man/fluxkv-bench.1" || missing="$missing $command is not in fluxkv-bench.1"
	result "fluxkv-bench $command" "$missing"
done
# Every key of the configuration.
missing=
for key in $(sed -n 's/^    {\("\|CONFIG_[A-Z]* "\.\)\([a-z_]*\)".*/\2/p' "$top_srcdir/store/config_keys.c"); do
	grep -q "^\.It Ic $key " "$top_srcdir/man/fluxkv.yaml.5" || missing="$missing $key is not in fluxkv.yaml.5"
done
result "keys of the configuration" "$missing"
echo "1..$n"
