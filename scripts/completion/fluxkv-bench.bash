# SPDX-License-Identifier: Apache-2.0
# Completion of fluxkv-bench(1) for bash. All it knows it reads from --help.

_fluxkv_bench_commands() { command fluxkv-bench --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p'; }

# What --help of the command says of its options, as --name or --name=METAVAR.
_fluxkv_bench_options() {
	command fluxkv-bench "$1" --help 2>/dev/null | sed -n 's/^  \(-[a-z], \|    \)\(--[a-z-]*\(=[^ ]*\)\{0,1\}\) .*/\2/p'
}

# The values of an option: its words where it has a choice, files otherwise.
_fluxkv_bench_values() {
	local option=$1 cur=$2 metavar

	metavar=$(_fluxkv_bench_options "${COMP_WORDS[1]}" | sed -n "s/^$option=//p")
	case $metavar in
	*'|'*) mapfile -t COMPREPLY < <(compgen -W "${metavar//|/ }" -- "$cur") ;;
	DIR | FILE | PATH | PROGRAM) _fluxkv_bench_files "$cur" ;;
	esac
}

_fluxkv_bench_files() {
	local IFS=$'\n'

	mapfile -t COMPREPLY < <(compgen -f -- "$1")
	compopt -o filenames 2>/dev/null
	return 0
}

_fluxkv_bench() {
	local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	if [[ $COMP_CWORD -eq 1 ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_fluxkv_bench_commands) --help --version" -- "$cur")
	elif [[ $cur == = ]]; then # "=" is a word of its own, as bash splits the line
		_fluxkv_bench_values "$previous" ""
	elif [[ $previous == = ]]; then
		_fluxkv_bench_values "${COMP_WORDS[COMP_CWORD - 2]}" "$cur"
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_fluxkv_bench_options "${COMP_WORDS[1]}" | sed 's/=.*/=/')" -- "$cur")
		[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	else
		_fluxkv_bench_files "$cur"
	fi
	return 0
}

complete -F _fluxkv_bench fluxkv-bench
