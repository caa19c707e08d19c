"""Give fuzz targets to libFuzzer, guided by the coverage of our code.

    python -m tests.fuzz.libfuzzer [TARGET…] --runs 1000000

Needs atheris (`make fuzz` installs it beside the project). One process a target; an input that raises, hangs for 20 s
or takes more than 2 GB is written to out/fuzz/ and the run ends with status 1. One line of JSON a target.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT = Path("out/fuzz")


def one(name: str, corpus: Path, flags: list[str]) -> None:
    """Run a single target in this process; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["swarmd", "swarmd_protocols", "swarmd_models"]):
        from tests.fuzz.targets import TARGETS
    fuzzed = TARGETS[name]()
    for at, data in enumerate(fuzzed.corpus):
        (corpus / f"{at:04}").write_bytes(data)
    atheris.Setup([name, *flags, str(corpus)], fuzzed.target)
    atheris.Fuzz()


def main() -> int:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=0, help="at most so long for a target; 0 is as long as it takes")
    parser.add_argument("--inside", metavar="CORPUS", help=argparse.SUPPRESS)
    args, flags = parser.parse_known_args()
    if args.inside:
        one(args.targets[0], Path(args.inside), flags)
        return 0
    from tests.fuzz.targets import TARGETS

    if unknown := set(args.targets) - set(TARGETS):
        parser.error(f"no target named {', '.join(sorted(unknown))}; there are: {', '.join(TARGETS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in args.targets or TARGETS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="swarmd-fuzz-") as corpus:
            flags = [f"-runs={args.runs}", f"-max_total_time={args.seconds}", "-seed=1", "-max_len=65536"]
            flags += ["-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={OUT / name}-", "-print_final_stats=1"]
            command = [sys.executable, "-m", "tests.fuzz.libfuzzer", name, "--inside", corpus, *flags]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        text = done.stdout + done.stderr
        runs = re.search(r"number_of_executed_units: (\d+)", text)
        covered = re.findall(r"cov: (\d+)", text)
        row = {
            "target": name,
            "ok": done.returncode == 0,
            "inputs": int(runs[1]) if runs else 0,
            "covered": int(covered[-1]) if covered else 0,
            "seconds": round(time.monotonic() - began, 1),
        }
        print(json.dumps(row), flush=True)
        if done.returncode:
            failed += 1
            print(text[-4_000:], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
