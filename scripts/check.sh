#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds FluxKV in build/ of the checkout and runs its tests, as make check does. The tests that mount need root; as
# somebody else they skip. Arguments go to make: check.sh TESTS=tests/system/t_tiers.py
# Run as root over somebody else's checkout, it leaves nothing of root's there either (build.sh).
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1-}" = -h ] || [ "${1-}" = --help ]; then
	sed -n '3,5s/^# //p' "$0"
	exit 0
fi
"$top/scripts/install-deps.sh" --tests
"$top/scripts/build.sh" --check
# The tests run as whoever calls this, and so make writes down their results.
if [ "$(id -u)" = 0 ] && [ "$(stat -c %u "$top")" != 0 ]; then
	trap 'find "$top/build" -uid 0 -exec chown -h --reference="$top" {} +' EXIT
	trap 'exit 130' INT TERM HUP
fi
make -C "$top/build" check "$@"
