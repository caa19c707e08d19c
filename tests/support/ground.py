"""A made-up swarm for the ground view, and a server of it in this process or beside a real browser."""

import asyncio
import contextlib
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from swarmd.errors import DaemonError
from swarmd.ground.rows import (
    Alert,
    Asset,
    Cell,
    Event,
    Evidence,
    Mark,
    Member,
    Object,
    Position,
    Prepared,
    Release,
    Signed,
    Site,
    Vote,
)
from swarmd.ground.server import GroundServer, bound_socket
from swarmd.ground.view import Ground
from swarmd_protocols.thumbs.form import name_of
from swarmd_sim.run.thumbs import picture_of
from tests.support.daemons import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_CHROMIUM = "no chromium here (apt-get install chromium)"
LABELS = ("hot-spot", "cracking", "soiling", "diode", "shadowing")
ROW_M, COLUMN_M = 2.0, 6.0


def node_id(number: int) -> str:
    """Of the member of that number."""
    return f"{number + 1:032x}"


def assets(count: int) -> list[Asset]:
    """Columns of forty modules."""
    return [
        Asset(f"t{i // 40:02}-m{i % 40:02}", COLUMN_M * (i // 40), ROW_M * (i % 40), 3.6, 1.7) for i in range(count)
    ]


def site(count: int = 400) -> Site:
    """A plant, seen by a laptop."""
    return Site("live", "farm", "laptop", "0.1.0", 48.0, 11.0, assets(count))


def member(number: int, state: str = "alive", name: str = "", **changed: object) -> Member:
    """One drone; number -1 is the laptop."""
    fields: dict[str, object] = {
        "id": node_id(number),
        "name": name or ("laptop" if number < 0 else f"drone-{number}"),
        "state": state,
        "since_s": None,
        "is_self": number < 0,
        "rtt_ms": None if number < 0 else 4.2,
        "loss": 0.0,
        "quality": "self" if number < 0 else "good",
        "broken": [],
        "capability": "observer" if number < 0 else "eye",
        "version": "0.1.0",
        "address": "10.0.0.1:7946",
        "root": 1,
        "group_key": 1,
        "certificate": "00112233",
    }
    return Member(**(fields | changed))  # type: ignore[arg-type]


def position(number: int, east_m: float, north_m: float, at_s: float, name: str = "") -> Position:
    """Of one drone."""
    return Position(
        node_id(number), name or f"drone-{number}", True, east_m, north_m, 48.0, 11.0, 12.0, 90.0, 0.3, 0.8, at_s
    )


def thing(number: int, east_m: float, north_m: float, at_s: float, label: str = "hot-spot", asset: str = "") -> Object:
    """One object; every second one is confirmed."""
    is_confirmed = number % 2 == 1
    return Object(
        id=f"{number:016x}",
        label=label,
        score=0.9,
        tier="confirmed" if is_confirmed else "candidate",
        east_m=east_m,
        north_m=north_m,
        covariance_m2=[0.2, 0.05, 0.1],
        asset=asset,
        observers=["drone-0", "drone-1"] if is_confirmed else ["drone-0"],
        reports=3,
        first_seen_s=at_s,
        last_seen_s=at_s,
    )


RELEASE_DIGEST = "ab" * 32
RELEASE = f"eye {RELEASE_DIGEST[:16]}"


def release(*statements: Signed, **changed: object) -> Release:
    """One on trial at two canaries."""
    fields: dict[str, object] = {
        "id": RELEASE, "model": "eye", "digest": RELEASE_DIGEST, "version": 7, "epoch": 1, "state": "stage 1 of 3",
        "since_s": None, "is_desired": True, "stages_percent": [5, 50, 100], "stage": 0, "nodes": 4, "cohort": 2,
        "passes": 1, "needed": 2, "fails": 1, "fails_to_halt": 2, "issued_s": 1_790_000_000.0,
        "signers": ["01020304", "05060708"], "statements": list(statements), "chunks": (3, 3),
    }  # fmt: skip
    return Release(**(fields | changed))  # type: ignore[arg-type]


def vote(number: int, turn: str = "later", **changed: object) -> Vote:
    """What a drone says of that release."""
    fields: dict[str, object] = {
        "id": f"{RELEASE} {node_id(number)}", "release": RELEASE, "node": node_id(number), "name": f"drone-{number}",
        "rank": number, "turn": turn, "runs": 6, "phase": "", "verdict": "NONE", "reason": "", "soak_s": 0,
        "samples": 0, "heard_s": None,
    }  # fmt: skip
    return Vote(**(fields | changed))  # type: ignore[arg-type]


THUMB = picture_of(1)


async def thumb(name: str, wait_s: float) -> bytes:
    """The one picture that there is."""
    if name != name_of(THUMB).hex():
        raise DaemonError("its author keeps it no more")
    return THUMB


async def prepare(arguments: Mapping[str, object]) -> Prepared:
    """An order that says what was asked for."""
    what, reason = str(arguments["what"]), str(arguments["reason"])
    name = f"{what}-eye-7-abababab.prepared"
    return Prepared(
        name, f"the file of {what}: {reason}", what, 1_790_000_100.0, [f"{what}s release eye 7", f"reason: {reason!r}"],
        ["it opens whatever the canaries say"] if what == "force" else [], "revoke", 2, ["0a0b0c0d", "0e0f1011"],
        [f"swarmd keys sign {name}.1 --key KEY", f"swarmd keys submit {name}.1 {name}.2 --fleet F --control SOCKET"],
    )  # fmt: skip


def fill(ground: Ground, drones: int, objects: int, seed: int = 7) -> None:
    """A swarm at work."""
    rng, now_s, picture = random.Random(seed), time.time(), ground.picture
    wide_m = max((one.east_m for one in ground.site.assets), default=100.0)
    picture.put("member", member(-1), now_s)
    for i in range(drones):
        picture.put("member", member(i), now_s)
        picture.put("position", position(i, rng.uniform(0, wide_m), rng.uniform(0, 80), now_s), now_s)
    for i in range(objects):
        asset = rng.choice(ground.site.assets)
        one = thing(i, asset.east_m, asset.north_m, now_s, rng.choice(LABELS), asset.id)
        picture.put("object", one, now_s)
    for i in range(8):
        state = ("open", "claimed", "done")[i % 3]
        cell = Cell(
            f"c{i:02}", 7.5 + 15 * (i // 2), 20 + 40 * (i % 2), state, "drone-0" if state == "claimed" else "", []
        )
        picture.put("cell", cell, now_s)
    picture.put("release", release(), now_s)
    for i in range(drones):
        turns = {0: ("canary", "PASS", "all gates held"), 1: ("canary", "FAIL", "recall 0.61 is below 0.8")}
        turn, verdict, reason = turns.get(i, ("later", "NONE", ""))
        picture.put("vote", vote(i, turn, verdict=verdict, reason=reason), now_s)
    picture.put("event", Event("e1", now_s, "laptop", "joined", "info", "drone-0", "", ""), now_s)
    ground.mark(Mark(now_s, "events", "info", "laptop joined drone-0"))
    picture.put(
        "alert",
        Alert("clock-wrong", "clock-wrong", "", "warning", "12 s ahead", "the clock is off", "Set the clock.", now_s),
        now_s,
    )


async def evidence(object_id: str) -> list[Evidence]:
    """Two sightings of anything."""
    now_s = time.time()
    return [
        Evidence(f"{node}-1", node, "hot-spot", 0.9, 1.0, 2.0, [0.1, 0.0, 0.1], "ab" * 8, 2, now_s, now_s)
        for node in ("drone-0", "drone-1")
    ]


class Served:
    """A server in a thread of its own, whose loop the test reaches by `do`."""

    def __init__(self, folder: Path, port: int = 0, site: Site | None = None) -> None:
        self._folder = folder
        self._site = site
        self._loop = asyncio.new_event_loop()
        self._socket = bound_socket(f"127.0.0.1:{port}")
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def do(self, work: Callable[[Ground], object]) -> None:
        """Do something to what is shown, on the server's loop."""
        done = threading.Event()

        def run() -> None:
            work(self.ground)
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(PATIENCE_S)

    def close(self) -> None:
        """End it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        # What is still connected or at work at the end is ended before the loop goes.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(self._run_until_closed())

    async def _run_until_closed(self) -> None:
        self._task = asyncio.ensure_future(self._live())
        await self._task

    async def _live(self) -> None:
        self.ground = Ground(self._site or site(), self._folder / "history.sqlite")
        self.ground.evidence = evidence
        self.ground.prepare = prepare
        self.ground.thumb = thumb
        self.ground.past.begin(time.time())
        ticking = asyncio.create_task(self._tick())
        try:
            server = GroundServer(self.ground, self._socket)
            self._loop.call_soon(self._ready.set)
            await server.run()
        finally:
            ticking.cancel()
            self.ground.past.close()

    async def _tick(self) -> None:
        while True:
            self.ground.past.tick(time.time())
            await asyncio.sleep(0.5)


@contextlib.contextmanager
def serving(folder: Path, drones: int = 4, objects: int = 12, **options: object) -> Iterator[Served]:
    """A server with a swarm at work."""
    served = Served(folder, **options)  # type: ignore[arg-type]
    try:
        served.do(lambda ground: fill(ground, drones, objects))
        yield served
    finally:
        served.close()
