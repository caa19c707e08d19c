"""Which tests a run skipped and why: each reason once, with its count; a test that CI never runs is no test.

A reason has to be a fact about the machine, which no installation changes: `FACTS` lists what such a reason begins
with. `make test` only tells; `.ci/run` sets SWARMD_SKIPS to a file, in which its runs leave what they counted, and ends
with

    python -m tests.support.skips [--strict] FILE

which adds them up. It fails where a test waits for somebody to ask for it, or where no test passed. That something is
not installed is said loudly, and fails with `--strict`: an index of packages that did not answer for a minute breaks no
change. Whether tests failed is for who ran them to say: some are tried a second time (`tests.support.again`).
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FACTS = (
    "not root here",
    "no ../shared beside this checkout",
    "no older revision of this tree here",
    "no NVIDIA GPU here",
    "an NVIDIA GPU is here",
    "a TPM is here",
    "no systemd-creds here",
    "no IPv6 loopback here",
    "no multicast on loopback here",
    "no network namespaces here",
    "no Python from 3.13.2 here, and not root",
    "no Fast DDS 2 in this Debian",
    "no Arm emulation here",
    "64-bit Arm here",
    "CycloneDDS 0.10 here",
    "this OpenCV has GStreamer",
    "this C library has no malloc_trim",
    "no Linux here",
    "rtnetlink is Linux's",
    "no private mounts here",
    "this OpenCV writes no FFV1",
    "a fact about this ",
    "no booted Debian here",
    "no image can be built here",
    "no C compiler with Python's headers here",
)
"""What the reason of a skip may begin with."""

_ASKED = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|^$|\btakes (a |some )?minutes?\b|CPU minutes")
"""A reason that says a switch, or that a test is long, or nothing: it is left out by whoever wrote it."""


def is_fact(reason: str) -> bool:
    """Whether a reason tells of the machine, not of something that nobody installed or asked for."""
    return reason.startswith(FACTS)


def waits_to_be_asked(reason: str) -> bool:
    """Whether the test could run here, and does only where somebody asks for it: in CI that is never."""
    return not is_fact(reason) and _ASKED.search(reason) is not None


def reason_of(longrepr: Any) -> str:
    """The words of a skip, as pytest's reports carry it: (file, line, "Skipped: reason") or text."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) and len(longrepr) == 3 else str(longrepr)
    return " ".join(re.sub(r"^Skipped: ", "", text).split())


def folded(reasons: dict[str, int]) -> Iterable[str]:
    """One line for each reason, the most frequent first."""
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield f"{count:5}  {reason[:200]}{'' if is_fact(reason) else '   <- no fact about the machine'}"


def keep(path: Path, passed: int, failed: int, reasons: dict[str, int]) -> None:
    """Append one run's counts, a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"passed": passed, "failed": failed, "skipped": reasons}) + "\n")


def main(arguments: list[str]) -> int:
    """Add up the runs in a file and print them; 1 where the account is not in order."""
    is_strict = "--strict" in arguments
    arguments = [one for one in arguments if one != "--strict"]
    runs = [json.loads(line) for line in Path(arguments[0]).read_text(encoding="utf-8").splitlines()]
    reasons: Counter[str] = Counter()
    for run in runs:
        reasons.update(run["skipped"])
    print(f"skipped: {reasons.total()}, for {len(reasons)} reasons")
    for line in folded(reasons):
        print(line)
    passed, failed = (sum(run[name] for run in runs) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed, {reasons.total()} skipped")
    wrong = [reason for reason in reasons if not is_fact(reason)]
    asked = [reason for reason in wrong if waits_to_be_asked(reason)]
    if wrong:
        print(
            f"!! {len(wrong)} reasons are NO FACTS about this machine; of them {len(asked)} wait to be asked for (move "
            f"such a test to tests/long or have it run), {len(wrong) - len(asked)} miss what .ci/run installs",
            file=sys.stderr,
        )
    return 1 if asked or (wrong and is_strict) or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
