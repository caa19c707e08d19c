"""Borrowed inference between real daemons over an emulated radio: what it brings, and what kills and lies cost.

python -m tests.bench.bench_offload [--only weak kill …] [--loss 2 10] [--lies nan …]

Three devices at 10 Mbit/s, 10 ms a way and so much loss towards each: two lenders of small-320 and a borrower. One JSON
row a case. Needs root and the lab beside the checkout (../shared/lab/netlab), but for `servers`: our inference API
beside four others (`bench_servers.py`). On a machine that does other work judge counts, bytes and ratios within a row,
not times.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from swarmd.demo.offload import VIEWS, Flight, OffloadOptions
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.bench import bench_servers
from tests.support.bundles import unhurried
from tests.support.daemons import wait_for
from tests.support.exclusive import own_name
from tests.support.lying_daemon import HOW
from tests.support.netlab import NETLAB, Lab
from tests.support.offload_client import Row
from tests.support.paths import ROOT
from tests.unit.test_texts import PROMPT

_MODELS = tempfile.TemporaryDirectory(prefix="swarmd-bench-models-")
LENT = unhurried(Path(_MODELS.name))
LARGE, SMALL = load_bundle(LENT), load_bundle("zoo:tiny-224")
CORE_SHARE = 0.1
"""Of one core that the weak borrower has: a tenth of this machine's is a small board's."""
QUALITY = 85
"""Of JPEGs where the owner allows them."""
ABILITY = "detect/pv-fault"
CGROUP = Path("/sys/fs/cgroup")
LONG = "drone-9 failed drone-4\nrover-3 failed rover-8\ndrone-2 autopilot link near row 7\n5 soiling review"
"""A prompt whose text is some thirty tokens."""


class Field:
    """Two lenders and a borrower."""

    def __init__(self, folder: Path, loss: int, rate: str = "10mbit") -> None:
        self.lab = Lab(own_name("o"), folder, 3, ["--inference", "127.0.0.1:0"])
        self.folder, self.loss, self.rate = folder, loss, rate
        self.lenders, self.borrower = self.lab.daemons[:2], self.lab.daemons[2]

    def configure(self, index: int, models: Sequence[str], lending: str, inference: str = "") -> None:
        """Of daemon 1 to 3."""
        path = self.folder / f"{index}.toml"
        text = f"[inference]\nmodels = {json.dumps(models)}\n{inference}\n[lending]\n{lending}\n"
        path.write_text(text)
        command = self.lab.daemons[index - 1]._command
        if str(path) not in command:
            command += ["--config", str(path)]

    def start(self) -> None:
        """All three, which then know each other, and what is offered."""
        self.lab("link", "1,2,3", "--rate", self.rate, "--delay", "10", "--loss", str(self.loss))
        self.lab.start()
        wait_for(lambda: set(self.offers()) >= {"n1", "n2"}, "both offers", seen=self.offers)
        wait_for(self.address, "the borrower's worker", seen=self.borrower.log)

    def lie(self, index: int, how: str) -> None:
        """Before the start: this lender lies."""
        command = self.lab.daemons[index - 1]._command
        at = command.index("swarmd")
        command[at : at + 1] = ["tests.support.lying_daemon", how]

    def offers(self) -> dict[str, list[str]]:
        """Who offers the borrower what."""
        return dict((self.borrower.status().get("lending") or {}).get("lenders", {}))

    def address(self) -> str:
        """Of the borrower's inference API, once it has its models."""
        status = self.borrower.status().get("inference") or {}
        return str(status["address"]) if status.get("models") or not self.has_own else ""

    has_own = True

    def counts(self) -> Counter[str]:
        """Of the borrower."""
        return Counter(self.borrower.status()["lending"]["counts"])

    def ask(
        self, name: str, digest: str, requests: int, clients: int, deadline_ms: int, how: str,
        told: Callable[[Row], None] = lambda row: None, pictures: str = "", form: str = "",
    ) -> list[Row]:  # fmt: skip
        """What a program on the borrower got."""
        wait_for(lambda: (self.borrower.status().get("inference") or {}).get("address"), "the worker")
        address = self.borrower.status()["inference"]["address"]
        client = subprocess.Popen(
            [
                *("ip", "netns", "exec", f"{self.lab._name}-3", sys.executable, "-m", "tests.support.offload_client"),
                *(address, name, digest, str(requests), str(clients), str(deadline_ms), how, pictures, form),
            ],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert client.stdout is not None
        rows = []
        for line in client.stdout:
            rows.append(json.loads(line))
            told(rows[-1])
        client.stdout.close()
        assert client.wait() == 0
        return rows

    def suspicions(self, killed: str = "") -> list[str]:
        """Who was given up that lives."""
        named = {row["subject"] for one in self.lab.daemons for row in one.events() if row["event"] == "failed"}
        return sorted(named - {killed})


@contextmanager
def field(loss: int, rate: str = "10mbit") -> Iterator[Field]:
    """A field of its own for one case."""
    with tempfile.TemporaryDirectory(prefix="swarmd-bench-") as folder:
        one = Field(Path(folder), loss, rate)
        try:
            yield one
        finally:
            one.lab.close()


@contextmanager
def throttled(pids: Sequence[int], share: float) -> Iterator[str]:
    """Processes that together have so much of a core; what throttles them, "" where nothing can."""
    for base, quota, text in (
        (CGROUP / "cpu", "cpu.cfs_quota_us", f"{round(share * 100_000)}"),
        (CGROUP, "cpu.max", f"{round(share * 100_000)} 100000"),
    ):
        group = base / own_name("swarmd-bench")
        try:
            group.mkdir()
            (group / quota).write_text(text)
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        try:
            for pid in pids:
                (group / "cgroup.procs").write_text(str(pid))
            yield f"cgroup {quota} {text}"
        finally:
            for pid in pids:
                with contextlib.suppress(OSError):  # It may have ended.
                    (base / "cgroup.procs").write_text(str(pid))
            group.rmdir()
        return
    yield ""


def times(rows: Sequence[Row]) -> dict[str, float]:
    """Of those that were answered."""
    took = sorted(row["ms"] for row in rows if row["status"] == 200)
    at = lambda share: took[min(len(took) - 1, int(share * len(took)))]  # noqa: E731
    return {"p50_ms": at(0.5), "p99_ms": at(0.99)} if took else {}


def reference() -> list[str]:
    """What small-320 finds on the golden picture."""
    picture = np.load(ZOO / "small-320.golden.npz")["image"]
    detector = Detector.open(LARGE, DetectorOptions())
    try:
        return [one.label for one in detector.detect(picture)]
    finally:
        detector.close()


# --- cases ----------------------------------------------------------------------------------------------------------


def weak(loss: int) -> Iterator[dict[str, Any]]:
    """A borrower with a tenth of a core and tiny-224: alone, and asking for each frame."""
    flight = Flight(OffloadOptions(frames=60, noise=1.0, size="320x256"))
    frames = list(flight.frames())
    pictures = np.stack([one.image if one.image.ndim == 3 else one.image[..., None] for one in frames])
    with field(loss) as one:
        path = one.folder / "pictures.npy"
        np.save(path, pictures)
        for index in (1, 2):
            one.configure(index, [LENT], "lend = true")
        one.configure(3, ["zoo:tiny-224"], "borrow = true")
        one.start()
        pids = [one.borrower.process.pid, one.borrower.status()["inference"]["pid"]]  # type: ignore[union-attr]
        with throttled(pids, CORE_SHARE) as how:
            for case, name, digest, borrow in (
                ("alone", SMALL.name, "", "no"),
                ("asks for all", LARGE.name, LARGE.digest, "yes"),
            ):
                before = one.counts()
                rows = one.ask(name, digest, len(frames), 1, 5_000, borrow, pictures=str(path))
                views: Counter[str] = Counter()
                for row in rows:
                    boxes = row.get("boxes", ())
                    views.update({a for box in boxes if (a := flight.asset_at(frames[row["number"]], np.array(box)))})
                called = {asset for asset, count in views.items() if count >= VIEWS}
                yield {
                    "case": f"weak, {case}", "loss": loss, "throttled": how or "not: no cgroup", "requests": len(rows),
                    "answered": sum(row["status"] == 200 for row in rows),
                    "recall": round(len(called & flight.truth & flight.seen) / len(flight.truth & flight.seen), 3),
                    "false": len(called - flight.truth),
                    "bytes": (one.counts() - before)["borrow_request_bytes"], **times(rows),
                    "suspected": one.suspicions(),
                }  # fmt: skip


def forms(loss: int) -> Iterator[dict[str, Any]]:
    """The same pictures as they are, without loss, and in whichever form the owner allows and the link suggests."""
    frames = list(Flight(OffloadOptions(frames=40, noise=1.0, size="320x256")).frames())
    for rate in ("10mbit", "1mbit"):
        with field(loss, rate) as one:
            path = one.folder / "pictures.npy"
            np.save(path, np.stack([np.atleast_3d(frame.image) for frame in frames]))
            for index in (1, 2):
                one.configure(index, [LENT], "lend = true")
            one.configure(3, ["zoo:nano-160"], f"borrow = true\njpeg_quality = {QUALITY}")
            one.start()
            said: dict[int, list[str]] = {}
            for form in ("raw", "lossless", ""):
                asks = (LARGE.name, LARGE.digest, len(frames), 1, 20_000, "yes", lambda row: None, str(path), form)
                one.ask(*asks)  # So that the link is measured.
                before = one.counts()
                rows = one.ask(*asks)
                said = said or {row["number"]: row.get("labels", []) for row in rows}
                yield {
                    "case": "forms", "rate": rate, "loss": loss, "asked_for": form or "any", "requests": len(rows),
                    "went_as": dict(Counter(row.get("form", "") for row in rows)),
                    "answered": sum(row["status"] == 200 for row in rows),
                    "bytes_each": (one.counts() - before)["borrow_request_bytes"] // len(rows), **times(rows),
                    "labels_as_raw": sum(said[row["number"]] == row.get("labels") for row in rows),
                    "suspected": one.suspicions(), "load": round(os.getloadavg()[0], 1),
                }  # fmt: skip


def kill(loss: int) -> Iterator[dict[str, Any]]:
    """A lender is killed while it works."""
    requests, kill_at, mine = 60, 20, reference()
    with field(loss) as one:
        for index in (1, 2):
            one.configure(index, [LENT], "lend = true")
        one.configure(3, ["zoo:tiny-224"], "borrow = true")
        one.start()
        killed, killed_ns, seen = "", 0, 0

        def told(row: Row) -> None:
            nonlocal killed, killed_ns, seen
            seen += 1
            if seen == kill_at:
                killed = row["lender"]
                victim = next(daemon for daemon in one.lab.daemons if daemon.name == killed)
                killed_ns = time.monotonic_ns()
                victim.kill()

        rows = one.ask(LARGE.name, LARGE.digest, requests, 2, 60_000, "yes", told)
        lost = [row for row in one.borrower.status()["lending"]["lost"] if row["monotonic_ns"] > killed_ns]
        during = [row["ms"] for row in rows if row["began_ns"] <= killed_ns <= row["began_ns"] + row["ms"] * 1e6]
        yield {
            "case": "kill", "loss": loss, "requests": len(rows),
            "one_answer_each": sorted(row["number"] for row in rows) == list(range(requests)),
            "answered": sum(row["status"] == 200 for row in rows),
            "right": sum(row.get("labels") == mine for row in rows), **times(rows),
            "under_way_at_the_kill_ms": during,
            "rerouted": one.counts()["borrow_rerouted"],
            "kill_to_notice_ms": [round((row["monotonic_ns"] - killed_ns) / 1e6, 1) for row in lost],
            "rerouted_then": [row["rerouted"] for row in lost],
            "notice_to_next_lender_ms": [row["took_us"] / 1e3 for row in lost],
            "suspected": one.suspicions(killed),
        }  # fmt: skip


def hostile(loss: int, lies: Sequence[str] = HOW) -> Iterator[dict[str, Any]]:
    """One of the lenders answers with harm; the borrower has the model too, and a short queue."""
    mine = reference()
    for how in lies:
        with field(loss) as one:
            for index in (1, 2):
                one.configure(index, [LENT], "lend = true")
            one.configure(3, [LENT], "borrow = true", "max_requests = 1")
            one.lie(1, how)
            one.start()
            rows: list[Row] = []
            for _ in range(6):
                rows += one.ask(LARGE.name, LARGE.digest, 20, 4, 20_000, "yes")
            counts = one.counts()
            late = rows[-20:]
            answered = [row for row in rows if row["status"] == 200]
            worker = one.borrower.status()["inference"]["pid"]
            yield {
                "case": f"hostile: {how}", "loss": loss, "requests": len(rows), "answered": len(answered),
                "right": sum(row["labels"] == mine for row in answered),
                "by_the_liar": sum(row["lender"] == "n1" for row in rows),
                "by_the_liar_of_the_last_20": sum(row["lender"] == "n1" for row in late),
                "last_20_answered_right": sum(row.get("labels") == mine for row in late),
                "checks_wrong": counts["borrow_checked_wrong"], "ejected": counts["borrow_ejected"],
                "borrower_worker_mb": peak_mb(worker), **times(rows), "suspected": one.suspicions(),
            }  # fmt: skip


def release(loss: int) -> Iterator[dict[str, Any]]:
    """Both lenders get a new bundle, one after the other, while a borrower asks by what they are able to."""
    requests = 240
    with field(loss) as one:
        versions = {}
        for version, label in (("1", "diode"), ("2", "diode-of-release-2")):
            versions[version] = load_bundle(unhurried(one.folder / version, ("diode", label)))
        picture = np.load(ZOO / "small-320.golden.npz")["image"]
        expected = {}
        for bundle in versions.values():
            detector = Detector.open(bundle, DetectorOptions())
            expected[bundle.digest] = sorted(seen.label for seen in detector.detect(picture))
            detector.close()

        def install(index: int, version: str) -> None:
            path = str(one.folder / version / "small-320.toml")
            one.configure(index, [path], "lend = true", f'abilities = ["{path} {ABILITY} 0.7"]')

        for index in (1, 2):
            install(index, "1")
        one.configure(3, ["zoo:tiny-224"], "borrow = true")
        one.start()
        rolled = threading.Thread(target=lambda: [roll(index) for index in (1, 2)])

        def roll(index: int) -> None:
            daemon = one.lab.daemons[index - 1]
            install(index, "2")
            daemon.stop()
            daemon.start([f"10.77.0.{3 - index}:7946"])
            wait_for(lambda: versions["2"].digest in one.offers().get(f"n{index}", []), "the new offer")

        rolled.start()
        rows = []
        while rolled.is_alive() or not rows or len(rows) < requests:
            rows += one.ask(f"able:{ABILITY}", "", 40, 2, 20_000, "yes")
        rolled.join()
        rows += one.ask(f"able:{ABILITY}", "", 20, 2, 20_000, "yes")
        answered = [row for row in rows if row["status"] == 200]
        by_version = Counter(row["version"] for row in answered)
        yield {
            "case": "release", "loss": loss, "requests": len(rows), "answered": len(answered),
            "by_release": {name: by_version[bundle.digest] for name, bundle in versions.items()},
            "releases_differ": len({tuple(labels) for labels in expected.values()}) == 2,
            "mixed": sum(sorted(row["labels"]) != expected[row["version"]] for row in answered),
            "slowest_ms": max(row["ms"] for row in answered), **times(rows),
            "suspected": sorted(set(one.suspicions()) - {"n1", "n2"}),
        }  # fmt: skip


def flood(loss: int) -> Iterator[dict[str, Any]]:
    """A borrower sends every request twenty times, under tickets that have long ended; another one is honest."""
    with field(loss) as one:
        one.configure(1, [LENT], "lend = true")
        one.configure(2, ["zoo:tiny-224"], "borrow = true")
        one.configure(3, ["zoo:tiny-224"], "borrow = true")
        command = one.lab.daemons[1]._command
        command[command.index("swarmd")] = "tests.support.flooding_daemon"
        one.lab("link", "1,2,3", "--rate", "10mbit", "--delay", "10", "--loss", str(loss))
        one.lab.start()
        lender, flooder = one.lab.daemons[:2]
        for borrower in (flooder, one.borrower):
            wait_for(lambda who=borrower: (who.status().get("lending") or {}).get("lenders"), "the offer")
        wait_for(one.address, "the borrower's worker")
        alone = one.ask(LARGE.name, LARGE.digest, 30, 1, 20_000, "yes")
        address = flooder.status()["inference"]["address"]
        tiny = one.folder / "tiny.npy"
        np.save(tiny, np.zeros((1, 16, 16, 1), np.uint8))  # So that the lender, not the radio, is what is flooded.
        flooding = subprocess.Popen(
            [
                *("ip", "netns", "exec", f"{one.lab._name}-2", sys.executable, "-m", "tests.support.offload_client"),
                *(address, LARGE.name, LARGE.digest, "200000", "32", "5000", "yes", str(tiny)),
            ],
            stdout=subprocess.DEVNULL, cwd=ROOT,
        )  # fmt: skip
        try:
            wait_for(lambda: Counter(flooder.status()["lending"]["counts"])["borrow_requests"] > 32, "the flood")
            during = one.ask(LARGE.name, LARGE.digest, 30, 1, 20_000, "yes")
        finally:
            flooding.kill()
            flooding.wait()
        lent = Counter(lender.status()["lending"]["counts"])
        yield {
            "case": "flood", "loss": loss,
            "sent_by_the_flooder": Counter(flooder.status()["lending"]["counts"])["borrow_requests"] * 20,
            "refused": {name: lent[name] for name in sorted(lent) if "refused" in name or "over" in name},
            "lent": lent["lent_answered"],
            "honest_alone": {"answered": sum(row["status"] == 200 for row in alone), **times(alone)},
            "honest_during": {"answered": sum(row["status"] == 200 for row in during), **times(during)},
            "lender_worker_mb": peak_mb(lender.status()["inference"]["pid"]),
            "lender_brain_mb": peak_mb(lender.process.pid),  # type: ignore[union-attr]
            "suspected": one.suspicions(),
        }  # fmt: skip


def text(loss: int) -> Iterator[dict[str, Any]]:
    """Texts of a language model that only the lenders have; the one who writes the fourth is killed in it."""
    digest, prompts = load_bundle("zoo:events-text").digest, (PROMPT, LONG) * 4
    with field(loss) as one:
        for index in (1, 2):
            one.configure(index, ["zoo:events-text"], "lend = true")
        one.configure(3, [], "borrow = true")
        one.has_own = False
        one.start()
        wait_for(lambda: (one.borrower.status().get("inference") or {}).get("address"), "the worker")
        # A lender offers nothing yet while its worker loads.
        wait_for(lambda: all(digest in one.offers().get(name, []) for name in ("n1", "n2")), "both to offer the model")
        address, killed, said, took, tokens = one.borrower.status()["inference"]["address"], "", [], [], 0
        for number, prompt in enumerate(prompts):
            began_ns, pieces = time.monotonic_ns(), []
            client = subprocess.Popen(
                [
                    *("ip", "netns", "exec", f"{one.lab._name}-3", sys.executable, "-m", "swarmd", "infer"),
                    *("events-text", "--version", digest, "--borrow", "--stream", "--json", "--prompt", prompt),
                    *("--deadline-ms", "60000", "--url", address),
                ],
                stdout=subprocess.PIPE, text=True, cwd=ROOT,
            )  # fmt: skip
            assert client.stdout is not None
            for line in client.stdout:
                row = json.loads(line)
                pieces.append(row["text_output"])
                tokens += row["parameters"].get("tokens", 0) if "finish_reason" in row["parameters"] else 0
                if number == 3 and not killed and len(pieces) == 2:
                    killed = row["parameters"]["lender"]
                    next(daemon for daemon in one.lab.daemons if daemon.name == killed).kill()
            client.stdout.close()
            client.wait()
            said.append("".join(pieces) if client.returncode == 0 else "")
            took.append((time.monotonic_ns() - began_ns) / 1e6)
        of_each = [Counter(filter(None, said[index::2])) for index in range(2)]
        yield {
            "case": "text", "loss": loss, "texts": len(prompts), "answered": sum(bool(one) for one in said),
            "alike": sum(max(one.values(), default=0) for one in of_each),
            "tokens": tokens, "p50_ms": round(sorted(took)[len(took) // 2]), "slowest_ms": round(max(took)),
            "killed_in_ms": round(took[3]), "suspected": one.suspicions(killed),
            "borrower": one.borrower.status()["lending"]["counts"],
            "lenders": [
                daemon.status()["lending"]["counts"] for daemon in one.lab.daemons[:2] if daemon.name != killed
            ],
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip


def peak_mb(pid: int) -> int:
    """Most memory that a process has had."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return round(int(rows["VmHWM"].split()[0]) / 1024)


SERVERS = "servers"
"""The case that needs no radio."""
CASES: dict[str, Callable[[int], Iterator[dict[str, Any]]]] = {
    "weak": weak, "kill": kill, "hostile": hostile, "release": release, "flood": flood,
    "text": text, "forms": forms,
}  # fmt: skip


def main() -> int:
    """Print a row a case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [*sorted(CASES), SERVERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--loss", nargs="+", type=int, default=[2, 10])
    parser.add_argument("--lies", nargs="+", choices=HOW, default=list(HOW))
    args = parser.parse_args()
    if SERVERS in args.only:
        for row in bench_servers.rows(bench_servers.options().parse_args([])):
            print(json.dumps({"case": SERVERS, **row}), flush=True)
    args.only = [name for name in args.only if name != SERVERS]
    if args.only and (os.geteuid() != 0 or not NETLAB.exists()):
        print("bench_offload needs root and ../shared/lab/netlab beside the checkout", file=sys.stderr)
        return 2
    for name in args.only:
        for loss in args.loss:
            rows = hostile(loss, args.lies) if name == "hostile" else CASES[name](loss)
            for row in rows:
                print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
