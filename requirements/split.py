"""Split the training lock: what every machine installs, and the CUDA packages that only PyPI's own torch wheel needs.

    python requirements/split.py FULL BASE CUDA

A CPU build of torch has the same version with a `+cpu` suffix; its wheel's hash is added to the entry, so that both
builds satisfy the lock.
"""

import re
import sys
from pathlib import Path

CPU_TORCH_SHA256 = ("6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",)
CUDA = re.compile(r"^(nvidia-|cuda-|triton==)")


def main(full: str, base: str, cuda: str) -> None:
    """Write the two files."""
    entries = re.split(r"\n(?=\S)", Path(full).read_text().strip())
    kept = [entry for entry in entries if not CUDA.match(entry)]
    extra = "".join(f" \\\n    --hash=sha256:{digest}" for digest in CPU_TORCH_SHA256)
    kept = [entry + extra if entry.startswith("torch==") else entry for entry in kept]
    Path(base).write_text("\n".join(kept) + "\n")
    Path(cuda).write_text("\n".join(entry for entry in entries if CUDA.match(entry)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
