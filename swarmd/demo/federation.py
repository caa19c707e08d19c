"""`make demo-federation`: three swarms below one region; a broker and a gateway are killed, and nothing is lost.

    3 swarms × 3 daemons, two of them gateways ── 2 routers or brokers ── 1 region ── one question to all

Every daemon, gateway, broker and the region is a process of its own. Two daemons of a swarm see a new thing every
second, so that it is confirmed; on the way one router and one gateway are killed with SIGKILL. In the end the region is
asked for all of them, then two swarms are stopped and it is asked again, and the gateways themselves. Routers are our
own, of eclipse-zenoh (the extra `zenoh`); with `--pipe mqtt` brokers are mosquitto's (apt install mosquitto).
"""

import argparse
import asyncio
import contextlib
import json
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.errors import ControlError, DaemonError

SWARMS = ("north", "east", "west")
SIGHT_S = 1.0
"""Seconds between two new things of one swarm."""
SIGHTS = 20
"""Things of one swarm: the broker dies at a third of them, the gateway at two thirds."""
STALE_S = 4.0
"""Seconds of silence after which the region names a site stale; the default of 30 would make a longer story."""
WAIT_S = 120.0
"""Seconds until a step must be over: ample on a busy machine of two cores."""
POLL_S = 0.2
"""Seconds between two looks."""
_APART_M = 40.0
"""Between two things: far more than what two sightings of one lie apart."""


@dataclass(slots=True)
class Process:
    """One program and what it said last."""

    name: str
    control: Path
    words: list[str] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None


class FederationDemo:
    """The story, step by step.

    Args:
        say: Told each step, for people.
        swarms: Their names; all but the first go dark in the end.
        sights: Things that each of them sees.
        pipe: "mqtt" for two brokers, "zenoh" for two routers.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        swarms: Sequence[str] = SWARMS,
        sights: int = SIGHTS,
        pipe: str = "mqtt",
    ) -> None:
        self._say = say
        self._pipe = pipe
        self._swarms, self._sights = tuple(swarms), sights
        self.folder = Path(tempfile.mkdtemp(prefix="swarmd-federation-"))
        self.region = self.folder / "region"
        self.daemons = {
            swarm: [Process(f"{swarm}-{role}", self.folder / f"{swarm}-{role}.sock") for role in ("eye", "gw1", "gw2")]
            for swarm in swarms
        }
        self._others: list[Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._said: dict[tuple[str, int], float] = {}
        """(swarm, thing) to when its second sighting was taken, by this machine's clock."""

    async def run(self) -> dict[str, Any]:
        """Tell the story; returns the summary.

        Raises:
            DaemonError: A step did not happen in time; the message says which, with the last words of all.
        """
        try:
            return await self._story()
        finally:
            await self._stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _story(self) -> dict[str, Any]:
        brokers = await self._start()
        self._say("three swarms of three daemons, two gateways each, two pipes and a region are up")
        killed: dict[str, float] = {}
        for number in range(self._sights):
            began = time.monotonic()
            await asyncio.gather(*(self._see(swarm, number) for swarm in self._swarms))
            if number == self._sights // 3:
                await self._kill(brokers[0])
                killed["router" if self._pipe == "zenoh" else "broker"] = time.time()
                self._say("the first broker or router is killed")
            if number == 2 * self._sights // 3:
                await self._kill(self.daemons[self._swarms[0]][1])
                killed["gateway"] = time.time()
                self._say(f"a gateway of {self._swarms[0]} is killed")
            await asyncio.sleep(max(0.0, SIGHT_S - (time.monotonic() - began)))
        said = len(self._said)
        answer = await self._until(lambda answer: _things(answer) >= said, "everything to be readable above")
        self._say(f"the region shows {_things(answer)} of {said} things")
        await self._until(_has_a_gateway_everywhere, "a gateway of each swarm to be heard")
        delays = self._delays(answer)
        members = [daemons[0] for daemons in self.daemons.values()]
        gateways = [daemons[2] for daemons in self.daemons.values()]
        added_mb = _resident_mb(gateways) - _resident_mb(members)
        for swarm in self._swarms[1:]:
            for one in self.daemons[swarm]:
                await self._kill(one)
        self._say("all sites but the first go dark")
        last = await self._until(lambda answer: _stale(answer) == len(self._swarms) - 1, "dark sites to be stale")
        began = time.monotonic()
        await self._ask()
        asked_s = time.monotonic() - began
        live: dict[str, Any] = {}
        if self._pipe == "zenoh":
            began = time.monotonic()
            told = await self._ask("--live")
            live = {
                "ask_live_s": round(time.monotonic() - began, 2),
                "stale_live": sorted(site["swarm"] for site in told["sites"] if site["stale"]),
                "objects_live": _things(told),
            }
        return {
            "said": said,
            "readable": _things(answer),
            "lost": said - _things(answer),
            "duplicates": len(answer["objects"]) - _things(answer),
            "delay_s": {name: _part(delays, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
            "after_kill_s": {
                what: round(max((d for at, d in self._delays_at(answer) if at_s - 1 <= at <= at_s + 6), default=0.0), 2)
                for what, at_s in killed.items()
            },
            "sites": {site["swarm"]: site["objects"] for site in answer["sites"]},
            "dropped": sum(site["dropped"] for site in answer["sites"]),
            "stale": sorted(site["swarm"] for site in last["sites"] if site["stale"]),
            "objects_with_stale_sites": _things(last),
            "ask_s": round(asked_s, 2),
            **live,
            "gateway_adds_mb": round(added_mb, 1),
        }

    # --- Processes ----------------------------------------------------------------------------------------------------

    async def _start(self) -> list[Process]:
        key = (await self._swarmd("region", "init", str(self.region))).strip()
        for swarm in self._swarms:
            await self._swarmd("region", "pin", str(self.region), swarm, "--dev-fleet", str(self.folder / swarm))
        ports = [_free_port(), _free_port()]
        paths = [f"{self._pipe}://127.0.0.1:{port}" for port in ports]
        config = (self.region / "region.toml").read_text()
        (self.region / "region.toml").write_text(f"paths = {json.dumps(paths)}\nstale_s = {STALE_S}\n{config}")
        brokers = [await self._start_pipe(port) for port in ports]
        await self._spawn(
            Process("region", self.region), *(sys.executable, "-m", "swarmd", "region", "run", str(self.region))
        )
        self._others += brokers
        await asyncio.gather(*(self._start_swarm(swarm, key, paths) for swarm in self._swarms))
        await self._until(_has_two_gateways_everywhere, "two gateways of each swarm to be heard")
        return brokers

    async def _start_pipe(self, port: int) -> Process:
        file = self.folder / f"broker-{port}.conf"
        if self._pipe == "zenoh":
            words = ("region", "router", f"zenoh://?listen=127.0.0.1:{port}")
            return await self._spawn(Process(f"router-{port}", file), sys.executable, "-m", "swarmd", *words)
        mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if mosquitto is None:
            raise DaemonError("mosquitto is not installed: apt install mosquitto")
        file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        return await self._spawn(Process(f"broker-{port}", file), mosquitto, "-c", str(file))

    async def _start_swarm(self, swarm: str, key: str, paths: list[str]) -> None:
        file = self.folder / f"{swarm}.toml"
        file.write_text(
            '[node]\norigin = [47.39, 8.54]\n[log]\nlevel = "warning"\nformat = "text"\n[http]\nlisten = "off"\n'
        )
        join = ""
        for one in self.daemons[swarm]:
            is_gateway = one is not self.daemons[swarm][0]
            command = [
                *(sys.executable, "-m", "swarmd", "gateway" if is_gateway else "run", "-c", str(file)),
                *("--dev-fleet", str(self.folder / swarm), "--name", one.name, "--listen", "127.0.0.1:0"),
                *("--state", str(self.folder / one.name), "--control", str(one.control)),
                *(("--join", join) if join else ()),
            ]
            if is_gateway:
                command += ["--region-key", key, *(word for path in paths for word in ("--path", path))]
            await self._spawn(one, *command)
            status = await self._status(one)
            join = join or str(status["address"])
        await self._until_daemon(self.daemons[swarm][0], _is_whole, f"{swarm} to meet")

    async def _spawn(self, one: Process, *command: str) -> Process:
        one.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if one not in self._others:
            self._others.append(one)
        self._readers.append(asyncio.create_task(_listen(one)))
        return one

    async def _kill(self, one: Process) -> None:
        if one.process is not None and one.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGKILL)
            await one.process.wait()

    async def _stop(self) -> None:
        for one in self._others:
            await self._kill(one)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    # --- Asking -------------------------------------------------------------------------------------------------------

    async def _swarmd(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "swarmd", *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        if process.returncode != 0:
            raise DaemonError(f"swarmd {' '.join(words)}: {err.decode().strip()}")
        return out.decode()

    async def _ask(self, *more: str) -> dict[str, Any]:
        asked = ("fleet", "objects", "--region", str(self.region), "--label", "hot-spot", "--since", "1d", "--json")
        words = (*asked, *more)
        answer: dict[str, Any] = json.loads(await self._swarmd(*words))
        return answer

    async def _until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(DaemonError):
                answer = await self._ask()
                if holds(answer):
                    return answer
            self._look()
            if time.monotonic() > deadline:
                raise DaemonError(f"waited {WAIT_S:.0f} s for {what}; last words: {self._last_words()}")
            await asyncio.sleep(POLL_S)

    def _look(self) -> None:
        """Nothing is waited for where a program has ended by itself; those that the story kills end by a signal."""
        for one in self._others:
            if one.process is not None and one.process.returncode is not None and one.process.returncode >= 0:
                raise DaemonError(f"{one.name} has ended: {' '.join(one.words[-3:])}")

    def _last_words(self) -> str:
        return "; ".join(f"{one.name}: {one.words[-1]}" for one in self._others if one.words) or "none"

    async def _call(self, one: Process, verb: str, **arguments: object) -> Mapping[str, Any]:
        def call() -> Mapping[str, Any]:
            with ControlClient(one.control) as client:
                return client.call(verb, **arguments)

        return await asyncio.to_thread(call)

    async def _status(self, one: Process) -> Mapping[str, Any]:
        return await self._until_daemon(one, lambda status: bool(status["address"]), f"{one.name} to come up")

    async def _until_daemon(
        self, one: Process, holds: Callable[[Mapping[str, Any]], bool], what: str
    ) -> Mapping[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(ControlError, DaemonError, OSError):
                status = await self._call(one, "status")
                if holds(status):
                    return status
            self._look()
            if time.monotonic() > deadline:
                raise DaemonError(f"waited {WAIT_S:.0f} s for {what}; last words: {self._last_words()}")
            await asyncio.sleep(POLL_S)

    async def _see(self, swarm: str, number: int) -> None:
        """Two daemons see a new thing."""
        row = {
            "label": "hot-spot",
            "score": 0.9,
            "east_m": number * _APART_M,
            "north_m": 5.0,
            "covariance_m2": [0.04, 0, 0.04],
            "track": f"t{number}",
        }
        for one in (self.daemons[swarm][0], self.daemons[swarm][2]):
            await self._call(one, "observe", detections=[row])
        self._said[swarm, number] = time.time()

    # --- Figures ------------------------------------------------------------------------------------------------------

    def _delays_at(self, answer: Mapping[str, Any]) -> list[tuple[float, float]]:
        """(when it was seen, seconds from then until the region had the word that is shown) of each thing."""
        found = []
        for row in answer["objects"]:
            at = self._said[row["name"], round(row["east_m"] / _APART_M)]
            found.append((at, max(0.0, row["learned_ms"] / 1000 - at)))
        return found

    def _delays(self, answer: Mapping[str, Any]) -> list[float]:
        return sorted(delay for _, delay in self._delays_at(answer))


async def _listen(one: Process) -> None:
    assert one.process is not None
    assert one.process.stderr is not None
    async for line in one.process.stderr:
        one.words = [*one.words[-9:], line.decode(errors="replace").strip()]


def _is_whole(status: Mapping[str, Any]) -> bool:
    return list(status["members"].values()).count("alive") == 3


def _things(answer: Mapping[str, Any]) -> int:
    return len({(row["name"], round(row["east_m"] / _APART_M)) for row in answer["objects"]})


def _stale(answer: Mapping[str, Any]) -> int:
    return sum(site["stale"] for site in answer["sites"])


def _has_a_gateway_everywhere(answer: Mapping[str, Any]) -> bool:
    return bool(answer["sites"]) and all(site["gateways"] >= 1 for site in answer["sites"])


def _has_two_gateways_everywhere(answer: Mapping[str, Any]) -> bool:
    return bool(answer["sites"]) and all(site["gateways"] >= 2 for site in answer["sites"])


def _part(values: list[float], share: float) -> float:
    return round(values[min(len(values) - 1, int(share * len(values)))], 2) if values else 0.0


def _resident_mb(processes: Sequence[Process]) -> float:
    """Resident memory of a process, the mean of these, MB."""
    pages = []
    for one in processes:
        assert one.process is not None
        pages.append(int(Path(f"/proc/{one.process.pid}/statm").read_text().split()[1]))
    return sum(pages) / len(pages) * resource.getpagesize() / 1e6


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; exit 1 when the story did not end as it should."""
    parser = argparse.ArgumentParser(prog="make demo-federation", description=__doc__)
    parser.add_argument("--json", action="store_true", help="only the summary, one JSON object")
    parser.add_argument("--pipe", choices=["mqtt", "zenoh"], default="zenoh", help="what carries (%(default)s)")
    args = parser.parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        if not args.json:
            print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)  # noqa: T201  # A program's own output.

    try:
        summary = asyncio.run(FederationDemo(say, pipe=args.pipe).run())
    except DaemonError as error:
        print(f"demo-federation: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(summary))  # noqa: T201
    is_whole = not summary["lost"] and not summary["duplicates"] and not summary["dropped"]
    good = is_whole and len(summary["stale"]) == len(SWARMS) - 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
