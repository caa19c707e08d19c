#!/usr/bin/env bash
# FOLDER: put Home Assistant of the lock and `FOLDER/python`, which runs it, there. It asks for Python 3.13.2 or newer:
# this machine's, or as root that of Debian 13, unpacked into FOLDER (70 MB) and run by chroot.
set -euo pipefail
folder=$(realpath -m "$1")
lock=$(dirname "$0")/homeassistant.lock
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock")
rm -rf "$folder"
mkdir -p "$folder"

if python3 -c 'import sys; sys.exit(sys.version_info < (3, 13, 2))'; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip "${pip[@]:3}"
  ln -s venv/bin/python "$folder/python"
  exit
fi
if [[ $(id -u) != 0 ]] || ! command -v mmdebstrap >/dev/null; then
  echo "Home Assistant's schemas are not tested: no Python 3.13.2, and not root with mmdebstrap to unpack one" >&2
  exit
fi
mirror=$(grep -rhoE '^(URIs:|deb) +[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | awk 'NR == 1 {print $2}' || true)
mmdebstrap --quiet --variant=extract --include=base-files,python3,libc6,libgcc-s1,libstdc++6,zlib1g trixie "$folder/root" \
  "${mirror:-http://deb.debian.org/debian}"
platforms=()
for glibc in 17 28 31 34; do platforms+=(--platform "manylinux_2_${glibc}_$(uname -m)"); done
"${pip[@]}" --ignore-requires-python --only-binary :all: --implementation cp --python-version 3.13.5 "${platforms[@]}" \
  --platform "manylinux2014_$(uname -m)" --abi cp313 --abi abi3 --abi none --target "$folder/root/usr/local/lib/python3.13/dist-packages"
# An empty environment: names of this machine's files mean nothing in there.
printf '#!/bin/sh\nexec env -i /usr/sbin/chroot "%s" /usr/bin/python3 "$@"\n' "$folder/root" >"$folder/python"
chmod +x "$folder/python"
