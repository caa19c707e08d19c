"""`make demo-release`: a release's whole life on four real daemons, and a bad one's short life.

    v1 runs everywhere → v2, signed 2 of 3, is published at one node as a delta → it spreads, its canaries pass, it is
    promoted everywhere while frames go on → v3 is bad (its weights are not those its golden vector was made with) → its
    canary fails, it is halted, then revoked → the fleet is on v2

v2 is v1 with its output layers trained further by the recipe (`swarmd_recipes.heads`): rendered frames, the
recipe's targets and loss, its quantiser, and scores on frames held out, in some seconds on any machine. Everything else
is the real thing too: offline keys, the command line's own functions, daemons as processes, the `sim://farm` cameras.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swarmd.demo.process import DaemonProcess, stop_all
from swarmd.errors import DaemonError

MODEL = "eye"
ZOO = "zoo:small-320"
NODES = 4
"""Daemons of the demonstration: one publishes, three follow in two stages."""
STAGE_S = 300.0
"""Seconds until a stage of the rollout, or the training of v2, must be over: ample on a busy machine of two cores."""
POLL_S = 0.2
"""Seconds between two looks at the daemons."""
_UNDER_WAY = 2
"""Frames that an eye may hold at any time: one it looks at, one that waits."""


@dataclass(slots=True)
class Daemon(DaemonProcess):
    """One process and what it said."""

    suspicions: int = 0


class ReleaseDemo:
    """The story, step by step.

    Args:
        say: Told each step, for people.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.folder = Path(tempfile.mkdtemp(prefix="swarmd-release-"))
        self.daemons = [Daemon(f"drone-{index + 1}", self.folder / f"d{index + 1}.sock") for index in range(NODES)]

    async def run(self) -> dict[str, Any]:
        """Tell the story; returns the summary.

        Raises:
            DaemonError: A step did not happen in time; the message says which, with the daemons' last words.
        """
        try:
            return await self._story()
        finally:
            await stop_all(self.daemons)
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _story(self) -> dict[str, Any]:
        await asyncio.to_thread(self._make_fleet)
        await self._start()
        first = await asyncio.to_thread(self._publication, 1, factory_bundle(self.folder / "v1", 1), None, ())
        self._say("four daemons fly; v1 is published as the first release")
        await self._publish(0, first)
        await self._until(lambda status: _versions(status) == [1] * NODES, "v1 on all nodes")
        before = await self._frames()
        base = self.folder / "v1" / "small-320.tflite"
        self._say("the recipe trains v2 from v1")
        tuned = await asyncio.to_thread(self._train, self.folder / "v1" / "small-320.toml", self.folder / "v2")
        second = await asyncio.to_thread(
            self._publication, 2, self.folder / "v2" / base.with_suffix(".toml").name, first, (base,)
        )
        ratio = self._delta_ratio(second)
        self._say(f"v2 is signed 2 of 3 and published at drone-2; its delta is {100 * ratio:.1f} % of the file")
        began = time.monotonic()
        await self._publish(1, second)
        await self._until(_all_have_bytes, "the bytes of v2 on all nodes")
        spread_s = time.monotonic() - began
        self._say(f"v2 lies on all nodes after {spread_s:.1f} s; its canaries try it")
        await self._until(lambda status: _versions(status) == [2] * NODES, "v2 on all nodes")
        self._say("v2 passed its canaries and runs everywhere")
        halted = await self._bad_release(second)
        after = await self._frames()
        status = await self._ask(0, "model_status")
        return {
            "final_versions": {name: row["version"] for name, row in status["models"][MODEL]["nodes"].items()},
            "halted": halted,
            "frames": after["inferred"] - before["inferred"],
            "frames_lost": after["lost"] - before["lost"],
            "frames_replaced": after["replaced"] - before["replaced"],
            "eye_restarts": after["restarts"],
            "delta_ratio": round(ratio, 4),
            "recipe": tuned,
            "spread_s": round(spread_s, 2),
            "false_suspicions": sum(daemon.suspicions for daemon in self.daemons),
            "drift": status["models"][MODEL]["drift"],
            "audit_lines": await asyncio.to_thread(self._verify_audits),
        }

    async def _bad_release(self, second: Path) -> int:
        bundle = await asyncio.to_thread(spoilt_bundle, self.folder / "v2", self.folder / "v3", 3)
        third = await asyncio.to_thread(self._publication, 3, bundle, second, (), is_tried=False)
        self._say("v3 is bad: its weights are not those that its golden vector was made with")
        await self._publish(2, third)
        await self._until(lambda status: _state_of(status, 3) == "halted", "v3 halted")
        self._say("v3 failed on its first canary and is halted; it is revoked for good")
        await asyncio.to_thread(self._revoke, third)
        await self._until(lambda status: _state_of(status, 3) == "revoked", "v3 revoked")
        await self._until(lambda status: _versions(status) == [2] * NODES, "v2 on all nodes again")
        return 3

    # --- The publisher's desk -----------------------------------------------------------------------------------------

    def _make_fleet(self) -> None:
        from swarmd.identity.files import IDENTITY_FILE, write_secret_file
        from swarmd.identity.fleet import create_fleet

        fleet = create_fleet(self.folder / "fleet", "demo")
        for daemon in self.daemons:
            folder = self.folder / f"id-{daemon.name}"
            folder.mkdir(mode=0o700)
            write_secret_file(folder / IDENTITY_FILE, fleet.enrol(daemon.name, "demo").to_bytes())

    def _train(self, old: Path, new: Path) -> dict[str, Any]:
        """v2 out of v1, as a process of its own: the daemons have the processors first."""
        if find_spec("swarmd_recipes") is None:
            raise DaemonError("this demo trains a second model, which needs a checkout: make demo-release")
        command = [sys.executable, "-m", "swarmd_recipes.heads", str(old), str(new), "--version", "2"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=STAGE_S, preexec_fn=lambda: os.nice(5)
        )
        if done.returncode:
            raise DaemonError(f"the recipe made no v2: {done.stderr[-500:]}")
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {key: said[key] for key in ("before", "after", "changed")}

    def _publication(
        self, version: int, bundle: Path, after: Path | None, bases: tuple[Path, ...], *, is_tried: bool = True
    ) -> Path:
        """Build, then sign at two desks, each with one key and the statement file only."""
        out = self.folder / f"pub{version}"
        command = ["build", str(bundle), "-o", str(out), "--model", MODEL, "--version", str(version)]
        command += ["--fleet", str(self.folder / "fleet"), "--soak", "3", "--samples", "15"]
        command += ["--swap-when", "any", "--rollout", "25,50,100"]
        command += ["--after", str(after)] if after else []
        command += [] if is_tried else ["--untried"]  # A desk that is in a hurry, or whose machine cannot run it.
        for base in bases:
            command += ["--base", str(base)]
        self._cli("model", *command)
        for number in (1, 2):
            self._cli("model", "sign", str(out), "--key", str(self.folder / "fleet" / "keys" / f"release-{number}.key"))
        self._cli("model", "verify", str(out), "--fleet", str(self.folder / "fleet"))
        return out

    def _revoke(self, publication: Path) -> None:
        key = self.folder / "fleet" / "keys" / "revoke-1.key"
        out = self.folder / "revoke.swm"
        control = str(self.daemons[3].control)
        command = ["revoke", str(publication), "--reason", "golden vectors differ", "--key", str(key), "-o", str(out)]
        self._cli("model", *command, "--publish", "--control", control)

    def _cli(self, *arguments: str) -> None:
        """Run a verb of the command line in this process, quietly."""
        from swarmd.cli.main import main

        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            if main(arguments) != 0:
                raise DaemonError(f"swarmd {' '.join(arguments)} failed")

    def _delta_ratio(self, publication: Path) -> float:
        from swarmd.release.author import read_publication

        ratio = read_publication(publication).delta_ratio
        return 1.0 if ratio is None else ratio

    def _verify_audits(self) -> int:
        from swarmd.release.audit import verify_folder

        total = 0
        for daemon in self.daemons:
            lines, _, problem = verify_folder(self.folder / daemon.name / "releases")
            if problem:
                raise DaemonError(f"the audit log of {daemon.name} is broken: {problem}")
            total += lines
        return total

    # --- The daemons --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        config = self.folder / "swarmd.toml"
        config.write_text('[log]\nlevel = "warning"\nformat = "text"\n[http]\nlisten = "off"\n[models]\nturn_s = 5.0\n')
        for index, daemon in enumerate(self.daemons):
            join = self.daemons[0].address
            await self._spawn(daemon, index, join)
            await self._wait(lambda daemon=daemon: bool(daemon.address), f"{daemon.name} to come up")  # type: ignore[misc]
        await self._until(lambda status: len(status["models"][MODEL]["nodes"]) == NODES, "all nodes to report")
        deadline = time.monotonic() + STAGE_S
        while not all([(await self._ask(index, "status")).get("model") for index in range(NODES)]):
            if time.monotonic() > deadline:
                raise DaemonError(self._stuck("the eyes"))
            await asyncio.sleep(POLL_S)

    async def _spawn(self, daemon: Daemon, index: int, join: str) -> None:
        source = f"sim://farm?of={NODES}&seed=7&faults=0.025&drone={index + 1}&laps=1000"
        command = [
            *(sys.executable, "-m", "swarmd", "run", "-c", str(self.folder / "swarmd.toml")),
            *("--identity", str(self.folder / f"id-{daemon.name}"), "--listen", "127.0.0.1:0"),
            *("--state", str(self.folder / daemon.name), "--control", str(daemon.control), "--events", "json"),
            *("--source", source, "--model", ZOO),
            *(("--join", join) if join else ()),
        ]
        await daemon.begin(command, lambda: self._read_events(daemon))

    async def _read_events(self, daemon: Daemon) -> None:
        async for event in daemon.events():
            if event["event"] in ("suspect", "failed"):
                daemon.suspicions += 1

    async def _ask(self, index: int, verb: str) -> dict[str, Any]:
        return await self.daemons[index].ask(verb)

    async def _publish(self, index: int, publication: Path) -> None:
        control = str(self.daemons[index].control)
        await asyncio.to_thread(self._cli, "model", "publish", str(publication), "--control", control)

    async def _frames(self) -> dict[str, int]:
        """Frames inferred; lost: captured, and neither inferred nor replaced by a newer one; replaced; restarts.

        An eye that comes to a frame too late takes the newest: that is how slow the machine is, with an update or
        without, and is counted by itself.
        """
        total = {"inferred": 0, "lost": 0, "replaced": 0, "restarts": 0}
        for index in range(NODES):
            counters = (await self._ask(index, "status"))["eye"]["counters"]
            total["inferred"] += counters.get("frames", 0)
            unusable, replaced = counters.get("frames_unusable", 0), counters.get("frames_dropped_newer", 0)
            settled = counters.get("frames_inferred", 0) + unusable + replaced
            total["lost"] += unusable + max(0, counters.get("frames_captured", 0) - settled - _UNDER_WAY)
            total["replaced"] += replaced
            total["restarts"] += counters.get("restarts", 0)
        return total

    async def _until(self, done: Callable[[Mapping[str, Any]], bool], what: str) -> None:
        """Poll every node's own view until all of them say so."""
        deadline = time.monotonic() + STAGE_S
        while True:
            views = [await self._ask(index, "model_status") for index in range(NODES)]
            if all(view and done(view) for view in views):
                return
            if time.monotonic() > deadline:
                raise DaemonError(self._stuck(what) + "\n" + json.dumps(views[0])[:3000])
            await asyncio.sleep(POLL_S)

    async def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STAGE_S
        while not done():
            if any(one.ended for one in self.daemons) or time.monotonic() > deadline:
                raise DaemonError(self._stuck(what))
            await asyncio.sleep(POLL_S)

    def _stuck(self, what: str) -> str:
        words = "\n".join(f"{daemon.name}: {line}" for daemon in self.daemons for line in daemon.last_words[-8:])
        return f"waited {STAGE_S:.0f} s for {what}:\n{words}"


def _versions(status: Mapping[str, Any]) -> list[int]:
    return [row["version"] for row in status["models"][MODEL]["nodes"].values()]


def _state_of(status: Mapping[str, Any], version: int) -> str:
    found = [one["state"] for one in status["models"][MODEL]["releases"] if one["version"] == version]
    return str(found[0]) if found else ""


def _all_have_bytes(status: Mapping[str, Any]) -> bool:
    rows = status["models"][MODEL]["nodes"].values()
    return all(row["version"] == 2 or row["phase"] in ("ready", "trial", "passed") for row in rows) and bool(
        _state_of(status, 2)
    )


# --- Bundles for the story ---


def factory_bundle(folder: Path, version: int) -> Path:
    """The zoo's bundle without its ONNX twins, as a folder of its own."""
    from swarmd_models.bundle import load_bundle

    bundle = load_bundle(ZOO)
    model = Path(bundle.model_path)
    folder.mkdir(parents=True, exist_ok=True)
    for source in bundle.files():
        if source.suffix != ".onnx":
            shutil.copyfile(source, folder / source.name)
    text = "\n".join(
        line for line in model.with_suffix(".toml").read_text().splitlines() if not line.startswith("onnx")
    )
    path = folder / model.with_suffix(".toml").name
    path.write_text(_renumber(text, version) + "\n")
    return path


def _renumber(text: str, version: int) -> str:
    return re.sub(r'^version = "[^"]*"', f'version = "{version}"', text, count=1, flags=re.MULTILINE)


def spoilt_bundle(old: Path, new: Path, version: int) -> Path:
    """A bad version: weights anywhere, under the golden vector of the version before.

    Args:
        old: Folder of the bundle before.
        new: Folder to make.
        version: Shown version.
    """
    import numpy as np

    from swarmd.release.delta.flatbuffer import regions

    shutil.copytree(old, new)
    description = next(new.glob("*.toml"))
    model = description.with_suffix(".tflite")
    data = bytearray(model.read_bytes())
    was = sha256(data).hexdigest()
    rng = np.random.default_rng(version)
    for region in regions(bytes(data)):
        if region.kind == "i1" and region.size >= 1_000:
            data[region.start : region.start + region.size] = rng.integers(-90, 90, region.size, np.int8).tobytes()
    model.write_bytes(bytes(data))
    text = _renumber(description.read_text(), version)
    description.write_text(text.replace(was, sha256(data).hexdigest()))
    return description


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; exit 1 when the story did not end as it should."""
    parser = argparse.ArgumentParser(prog="make demo-release", description=__doc__)
    parser.add_argument("--json", action="store_true", help="only the summary, one JSON object")
    args = parser.parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        if not args.json:
            print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)  # noqa: T201  # A program's own output.

    try:
        summary = asyncio.run(ReleaseDemo(say).run())
    except DaemonError as error:
        print(f"demo-release: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(summary))  # noqa: T201
    good = set(summary["final_versions"].values()) == {2} and summary["halted"] == 3 and not summary["frames_lost"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
