"""Apply a delta from outside in a child process with hard limits: memory, CPU seconds, file size, no core.

Parent: `apply_in_child(old, delta, …)`. Child: `python -m swarmd.release.delta.child BASE DELTA OUT LIMITS`. A bomb, a
loop or a crash ends the child; the parent sees a `DeltaError` and fetches the full chunks instead. What comes out is
hashed by the parent; nothing else counts. Before the child looks at the delta it has opened all it needs, and from then
on it can open no file and no socket and start no process; nor, where the kernel takes a filter (`jail.py`), signal
another, look into one, or touch a file by its name. Where the daemon is root's, the child is nobody's: a user that no
other process has. Elsewhere it is the daemon's user, since only root may give it another. Whoever takes a decoder over
has the bytes of one model, and a pipe that says why it failed.
"""

import contextlib
import os
import resource
import secrets
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import msgspec

from swarmd.release.errors import DeltaError

_MEMORY = Path("/dev/shm")
_OWN_BYTES = 24 << 20
"""What Python itself may still take after the imports; the delta's own memory comes on top."""


_USERS, _NOBODY = 0x70000000, 65_534
"""A child of root's is one of 65,536 users from the first on, whom no system has; or, in a container that knows fewer,
nobody. Source: systemd's "Users, Groups, UIDs and GIDs on systemd Systems", which leaves the range free."""


class Limits(msgspec.Struct, frozen=True):
    """What a decoder may take."""

    memory_bytes: int = 64 << 20
    cpu_s: int = 10
    wall_s: float = 30.0


def apply_in_child(old: bytes, delta: bytes, out_bytes: int, out_sha256: bytes, limits: Limits | None = None) -> bytes:
    """Make the new file from a delta that nobody here has checked.

    Args:
        old: The base.
        delta: The delta file.
        out_bytes: The signed length of the new file; at byte `out_bytes` + 1 the child ends.
        out_sha256: The signed digest of the new file.
        limits: What the child may take.

    Returns:
        The new file, with the signed digest.

    Raises:
        DeltaError: It could not be made, or it is not what was signed.
    """
    import tempfile

    bounds = limits or Limits()
    # In memory where the system has such a place: a model that is sealed on disk must not lie there in the open. And
    # without names: whatever ends this process, the memory goes with it.
    place = _MEMORY if _MEMORY.is_dir() else None
    with contextlib.ExitStack() as stack:
        base, patch, out = (stack.enter_context(tempfile.TemporaryFile(dir=place)) for _ in range(3))
        for file, data in ((base, old), (patch, delta)):
            file.write(data)
            file.flush()
        opened = [file.fileno() for file in (base, patch, out)]
        command = [
            *(sys.executable, "-I", "-m", "swarmd.release.delta.child"),
            *(f"/proc/self/fd/{descriptor}" for descriptor in opened),
            *map(str, (out_bytes, bounds.memory_bytes, bounds.cpu_s)),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=bounds.wall_s, check=False, env=_environment(), pass_fds=opened
            )
        except subprocess.TimeoutExpired:
            raise DeltaError(f"the delta was not decoded within {bounds.wall_s:.0f} s") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise DeltaError(said[-1][:200] if said else f"the delta's decoder ended with status {done.returncode}")
        new = out.read(out_bytes + 1)
    if len(new) != out_bytes or sha256(new).digest() != out_sha256:
        raise DeltaError("what the delta makes does not hash to the signed digest")
    return new


def _environment() -> dict[str, str]:
    """One thread: a pool would reserve more address space than the limit allows."""
    return {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def main(arguments: list[str]) -> int:
    """The child: limits first, then decode."""
    base, patch, out, out_bytes, memory_bytes, cpu_s = arguments
    from swarmd.release.delta import jail
    from swarmd.release.delta.codec import apply_delta  # Imports count against no limit of the delta's.

    size = int(out_bytes)
    limit = _address_space() + _OWN_BYTES + int(memory_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        old, delta = Path(base).read_bytes(), Path(patch).read_bytes()
        with open(out, "wb") as made:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            _become_nobody()
            jail.shut_in()
            made.write(apply_delta(old, delta, size))
    except MemoryError:
        print("the delta wants more memory than it may have", file=sys.stderr)  # noqa: T201  # To the parent.
        return 1
    except (DeltaError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _become_nobody() -> None:
    """Root's rights end here: what is open stays open, and nothing else of the machine is this process's."""
    if os.geteuid():
        return
    for user in (_USERS + secrets.randbelow(1 << 16), _NOBODY):
        with contextlib.suppress(OSError):
            with contextlib.suppress(PermissionError):  # A container may keep its groups to itself.
                os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            return


def _address_space() -> int:
    """Bytes of address space in use now."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return 512 << 20


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
