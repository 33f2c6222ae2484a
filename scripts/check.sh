#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds FluxKV in build/ of the checkout and runs its tests, as make check does. The tests that mount need root; as
# somebody else they skip. Arguments go to make: check.sh TESTS=tests/system/t_tiers.py
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1-}" = -h ] || [ "${1-}" = --help ]; then
	sed -n '3,4s/^# //p' "$0"
	exit 0
fi
"$top/scripts/install-deps.sh" --tests
"$top/scripts/build.sh"
exec make -C "$top/build" check "$@"
