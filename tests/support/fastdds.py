"""The reader on eProsima Fast DDS, the vendor behind ROS 2's default middleware, built where its headers are."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "integration" / "fastdds_reader.cpp"


def build(folder: Path) -> tuple[str, dict[str, str]]:
    """The program and the environment that it needs; skips the test where it cannot be built.

    `FASTDDS_PREFIX` names a folder with `usr/include` and `usr/lib`, such as Debian's packages unpacked.
    """
    prefix = Path(os.environ.get("FASTDDS_PREFIX", "/"))
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed (apt install g++)")
    if not (prefix / "usr/include/fastdds/dds/domain/DomainParticipant.hpp").exists():
        known = subprocess.run(["apt-cache", "show", "libfastrtps-dev"], capture_output=True, check=False)
        pytest.skip(
            "Fast DDS is not installed (apt install libfastrtps-dev)"
            if known.returncode == 0
            else "no Fast DDS 2 in this Debian (libfastrtps-dev)"
        )
    triple = f"{platform.machine()}-linux-gnu"
    library = prefix / "usr/lib" / triple
    program = folder / "fastdds_reader"
    command = [compiler, "-O0", "-std=c++17", "-o", str(program), str(SOURCE)]
    if prefix != Path("/"):
        include = prefix / "usr/include"
        command += [f"-I{include}", f"-I{include / triple}", f"-L{library}"]
        command += ["-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run([*command, "-lfastrtps", "-lfastcdr"], check=True, timeout=120)
    return str(program), {"LD_LIBRARY_PATH": str(library)}
