"""A second try, alone, of the few tests of real processes that failed in a crowd: `python -m tests.support.again`.

The tests below `ALONE` start real processes that share this machine's cores with the rest of the suite. Where at most
`MAX_FAILED` of them failed and nothing else did, each is run once more with the machine to itself. Whoever passes then
is printed by name as *unsteady*: a defect of the test or of the product that somebody has to look into, no clean pass.
Rules, laws, mutants and simulations depend on no clock and never get a second try.
"""

import json
import sys
from pathlib import Path

import pytest

ALONE = ("tests/integration/", "tests/packaging/")
"""Where tests of real processes live."""
MAX_FAILED = 4
"""Failures of a run that a busy machine may explain: more are a broken change."""
_CACHE = Path(".pytest_cache/v/cache/lastfailed")


def may_try_again(failed: list[str]) -> str:
    """Why these tests (their node ids) get no second try, or "" where they do."""
    if not failed:
        return "no test failed: the run itself broke"
    if len(failed) > MAX_FAILED:
        return f"{len(failed)} tests failed; a busy machine explains {MAX_FAILED} at most"
    for name in failed:
        if not name.startswith(ALONE) or "::" not in name:
            return f"{name} depends on no clock"
    return ""


def failed_of_last_run(cache: Path = _CACHE) -> list[str]:
    """The node ids that pytest's last run left as failed; empty where it left none."""
    try:
        return sorted(json.loads(cache.read_text()))
    except FileNotFoundError:
        return []


def main() -> int:
    """Try again what may be; the exit status."""
    failed = failed_of_last_run()
    if reason := may_try_again(failed):
        sys.stderr.write(f"no second try: {reason}\n")
        return 1
    status = int(pytest.main(["-n", "0", *failed]))
    if not status:
        sys.stdout.write("unsteady, passed only alone; look into each:\n" + "".join(f"  {name}\n" for name in failed))
    return status


if __name__ == "__main__":
    sys.exit(main())
