#!/bin/sh
# Makes ./configure from a checkout. Needs autoconf, automake and pkg-config.
set -e
cd "$(dirname "$0")"
mkdir -p m4
exec autoreconf --install --force "$@"
