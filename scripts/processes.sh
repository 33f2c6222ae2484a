# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For scripts that start daemons, to be sourced: whether they live, and what they mounted.

alive() { grep -qs '^State:[[:space:]]*[^XZ]' "/proc/$1/status"; }
# gone PID TENTHS: waits until the process has ended
gone() {
	for _ in $(seq "$2"); do
		alive "$1" || return 0
		sleep 0.1
	done
	return 1
}
# unmount DIR...: those that are mounted
unmount() {
	local m
	for m; do ! grep -qF " $m " /proc/self/mounts || umount -l "$m" || true; done
}
