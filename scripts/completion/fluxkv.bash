# SPDX-License-Identifier: Apache-2.0
# Completion of fluxkv(1) for bash.

# The words of a command's --help that start with a dash.
_fluxkv_options() {
	command fluxkv help "$1" 2>/dev/null | sed -n 's/^  \(-[a-z], \|    \)\(--[a-z-]*\).*/\2/p'
}

# What the shell will make of a word that is being typed: without its quotes and backslashes. Nothing in it is expanded.
_fluxkv_unquote() {
	local in=$1 quote= c

	_fluxkv_word=
	while [[ -n $in ]]; do
		c=${in:0:1} in=${in:1}
		case $quote$c in
		"'" | '"') quote=$c ;;
		"''" | '""') quote= ;;
		'\' | '"\') _fluxkv_word+=${in:0:1} in=${in:1} ;;
		*) _fluxkv_word+=$c ;;
		esac
	done
}

# Completes with those of the names on standard input, a line each, that start with what is typed. They are other
# people's: compgen -W would run a $(command) in one of them, and readline quotes it only when told that it is a file.
_fluxkv_names() {
	local cur=$1 prefix=$2 name

	while IFS= read -r name || [[ -n $name ]]; do
		[[ $prefix$name == "$cur"* ]] && COMPREPLY+=("$prefix$name")
	done
	[[ ${#COMPREPLY[@]} -gt 0 ]] && compopt -o filenames 2>/dev/null
	return 0
}

# Paths inside the file system, a directory level at a time, as `fluxkv ls` knows them.
_fluxkv_paths() {
	local dir=

	_fluxkv_unquote "$1"
	[[ $_fluxkv_word == */* ]] && dir=${_fluxkv_word%/*}/
	_fluxkv_names "$_fluxkv_word" "$dir" < <(command fluxkv "${_fluxkv_global[@]}" ls -- "${dir:-.}" 2>/dev/null)
	# A directory is not the end.
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace 2>/dev/null
	return 0
}

_fluxkv_files() {
	local IFS=$'\n'

	mapfile -t COMPREPLY < <(compgen -f -- "$1")
	compopt -o filenames 2>/dev/null
	return 0
}

_fluxkv_namespaces() {
	_fluxkv_unquote "$1"
	_fluxkv_names "$_fluxkv_word" "" < <(command fluxkv "${_fluxkv_global[@]}" ns list 2>/dev/null | sed -n '2,$s/^.\{55\}//p')
}

# Where the command stands, and how many words that are no options are behind it.
_fluxkv_scan() {
	local i

	_fluxkv_command= _fluxkv_operands=0 _fluxkv_verb= _fluxkv_global=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		local word=${COMP_WORDS[i]}
		case $word in
		--socket | --instance | --run-dir)
			_fluxkv_unquote "${COMP_WORDS[i + 1]}"
			_fluxkv_global+=("$word" "$_fluxkv_word")
			((i++))
			;;
		--tier | --delay | --count | --block-size | --ttl | --persist | --mode | -[tdnbTPm]) ((i++)) ;;
		-?*) ;;
		*)
			if [[ -z $_fluxkv_command ]]; then
				_fluxkv_command=$word
			else
				((_fluxkv_operands++))
				_fluxkv_verb=${_fluxkv_verb:-$word}
			fi
			;;
		esac
	done
}

_fluxkv_operand() {
	case $_fluxkv_command:$_fluxkv_operands in
	put:0 | get:1) _fluxkv_files "$1" ;;
	ns:0) mapfile -t COMPREPLY < <(compgen -W "create set list rm" -- "$1") ;;
	ns:1) [[ $_fluxkv_verb == list || $_fluxkv_verb == create ]] || _fluxkv_namespaces "$1" ;;
	help:0) mapfile -t COMPREPLY < <(compgen -W "$_fluxkv_commands" -- "$1") ;;
	ttl:1) mapfile -t COMPREPLY < <(compgen -W "none" -- "$1") ;;
	ls:0 | ttl:0 | get:0 | put:1) _fluxkv_paths "$1" ;;
	stat:* | rm:* | evict:* | prefetch:* | pin:* | unpin:*) _fluxkv_paths "$1" ;;
	esac
}

_fluxkv() {
	local _fluxkv_command _fluxkv_operands _fluxkv_verb _fluxkv_global _fluxkv_word
	local _fluxkv_commands="status stat ls put get rm evict prefetch pin unpin ttl ns top doctor help"
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	_fluxkv_scan
	case $prev in
	--socket | --run-dir) _fluxkv_files "$cur" && return ;;
	--tier | -t) mapfile -t COMPREPLY < <(compgen -W "dram ssd" -- "$cur") && return ;;
	--persist | -P) mapfile -t COMPREPLY < <(compgen -W "yes no" -- "$cur") && return ;;
	--instance | --delay | --count | --block-size | --ttl | --mode) return ;;
	esac
	if [[ -z $_fluxkv_command ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$_fluxkv_commands --socket --instance --run-dir --help --version" -- "$cur")
	elif [[ $cur == -* && $cur != - ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_fluxkv_options "$_fluxkv_command")" -- "$cur")
	else
		_fluxkv_operand "$cur"
	fi
}

complete -F _fluxkv fluxkv
