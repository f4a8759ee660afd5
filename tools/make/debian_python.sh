#!/usr/bin/env bash
# An interpreter of Debian's in a directory, without touching this system:
#   tools/make/debian_python.sh DIRECTORY SUITE ARCHITECTURE PACKAGE      taken apart, not installed
# If it is for this machine's architecture, it gets the C library that it brought, which may be newer than the machine's.
set -euo pipefail
directory=$1 suite=$2 architecture=$3 package=$4
mkdir -p "$directory/packages" "$directory/root"
directory=$(realpath "$directory")
debootstrap --arch="$architecture" --variant=minbase --download-only --include="$package" "$suite" "$directory/packages" >/dev/null
for archive in "$directory"/packages/var/cache/apt/archives/*.deb; do
  dpkg-deb -x "$archive" "$directory/root"
done
if [ "$architecture" = "$(dpkg --print-architecture)" ]; then
  patchelf --set-interpreter "$(ls "$directory"/root/usr/lib*/ld-linux-*.so.*)" --force-rpath \
    --set-rpath "$directory/root/usr/lib/$(uname -m)-linux-gnu" "$directory/root/usr/bin/${package%-venv}"
fi
