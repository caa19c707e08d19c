"""Which tests a run skipped and why: each reason once, with its count; a test that CI never runs is no test.

A reason has to be a fact about the machine, which no installation changes: `FACTS` lists what such a reason begins
with. `make test` only tells; `.ci/run` sets SWARMD_SKIPS to a file, in which its runs leave what they counted, and ends
with

    python -m tests.support.skips FILE

which adds them up and fails where a reason is none of the facts, or where no test passed.
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
)
"""What the reason of a skip may begin with."""


def is_fact(reason: str) -> bool:
    """Whether a reason tells of the machine, not of something that nobody installed or asked for."""
    return reason.startswith(FACTS)


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
    """Add up the runs in a file and print them."""
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
    if wrong:
        print(
            f"{len(wrong)} reasons are no facts about this machine: let .ci/run install what is missing",
            file=sys.stderr,
        )
    return 1 if wrong or failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
