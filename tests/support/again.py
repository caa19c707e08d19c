"""A second try, alone, of the few tests of real processes that failed in a crowd: `python -m tests.support.again`.

The tests below `ALONE` start real processes that share this machine's cores with the rest of the suite. Where at most
`MAX_FAILED` of them failed and nothing else did, in a run that came to its end, each is run once more with the machine
to itself. Whoever passes then (a test that is skipped does not) is printed by name as *unsteady*: a defect of the test
or of the product that somebody has to look into, no clean pass. Rules, laws, mutants and simulations depend on no clock
and never get a second try, but for the mutants that a law of real processes is to find.
"""

import json
import sys
from pathlib import Path

import pytest

ALONE = (
    "tests/integration/",
    "tests/packaging/",
    "tests/mutants/test_handing_mutants.py",
    "tests/mutants/test_form_mutants.py",
)
"""Where tests of real processes live."""
MAX_FAILED = 4
"""Failures of a run that a busy machine may explain: more are a broken change."""
_CACHE = Path(".pytest_cache/v/cache/lastfailed")
STATUS = "swarmd/status"
"""Where `keep_status` leaves in pytest's cache how the run ended."""
_STATUS = Path(".pytest_cache/v") / STATUS


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


def came_to_its_end(status: Path = _STATUS) -> bool:
    """Whether the last run has run all its tests: one that was interrupted, or broke itself, leaves many untried."""
    try:
        return int(json.loads(status.read_text())) == pytest.ExitCode.TESTS_FAILED
    except (FileNotFoundError, ValueError):
        return False


def keep_status(session: pytest.Session, exitstatus: int) -> None:
    """The hook `pytest_sessionfinish`: leave in the cache how the run ended."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(STATUS, int(exitstatus))


class _Passed:
    """A plugin: which tests have passed."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One part of a test is over."""
        if report.when == "call" and report.passed:
            self.names.add(report.nodeid)


def main() -> int:
    """Try again what may be; the exit status."""
    failed = failed_of_last_run()
    reason = may_try_again(failed)
    if not reason and not came_to_its_end():
        reason = "the run did not come to its end"
    if reason:
        sys.stderr.write(f"no second try: {reason}\n")
        return 1
    passed = _Passed()
    status = int(pytest.main(["-n", "0", *failed], plugins=[passed]))
    if not status and (left := sorted(set(failed) - passed.names)):
        sys.stderr.write("failed, and did not pass alone:\n" + "".join(f"  {name}\n" for name in left))
        return 1
    if not status:
        sys.stdout.write("unsteady, passed only alone; look into each:\n" + "".join(f"  {name}\n" for name in failed))
    return status


if __name__ == "__main__":
    sys.exit(main())
