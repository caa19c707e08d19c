"""The driver's order, the supervisor's patience, what is shared, the demo's truth, the brain's footprint."""

import asyncio
import contextlib
import io
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from swarmd.api.bus import Bus
from swarmd.api.metrics import Metrics
from swarmd.brain import supervise
from swarmd.brain.driver import Driver
from swarmd.brain.journal import Journal
from swarmd.brain.supervise import Supervisor
from swarmd.demo.truth import compare
from swarmd.errors import JournalError
from swarmd.logs import Logger
from swarmd.transports.base import REFUSED
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.geo.sitemap import Asset, SiteMap
from swarmd_protocols.effects import (
    Alarm,
    CancelTimer,
    DatagramReceived,
    Effect,
    Event,
    Persist,
    SendDatagram,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from swarmd_protocols.errors import StateError
from swarmd_protocols.state.observations import LocalDetection


def quiet() -> Logger:
    return Logger("n", stream=io.StringIO())


@dataclass
class ScriptedNode:
    """Answers events from a function, and remembers them."""

    answer: Callable[[Event], list[Effect]]
    seen: list[tuple[Event, int]] = field(default_factory=list)

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        self.seen.append((event, now_ns))
        return self.answer(event)


@dataclass
class WatchingTransport:
    """Notes, at each send, what the journal already holds; refuses on the spot, as a kernel may."""

    store: Journal
    driver: Driver
    sends: list[tuple[bytes, int]] = field(default_factory=list)

    def send_datagram(self, destination: str, data: bytes) -> None:
        self.sends.append((data, self.store.commits))
        if data == b"refused":
            self.driver.handlers().send_failed(destination, REFUSED)


def make(
    tmp_path: Path, answer: Callable[[Event], list[Effect]]
) -> tuple[Driver, ScriptedNode, WatchingTransport, Journal]:
    store = Journal(tmp_path)
    driver = Driver(store, Bus(quiet()), quiet(), Metrics())
    node, transport = ScriptedNode(answer), WatchingTransport(store, driver)
    driver.attach(node, transport)  # type: ignore[arg-type]
    return driver, node, transport, store


async def test_facts_are_durable_before_any_send_of_the_same_call(tmp_path: Path) -> None:
    effects = [Persist(b"a", b"1"), SendDatagram("x", b"1"), Persist(b"b", b"2"), SendDatagram("x", b"2")]
    driver, _, transport, store = make(tmp_path, lambda event: list(effects))
    driver.request(Started())
    assert transport.sends == [(b"1", 1), (b"2", 1)]  # One commit, before both.
    store.close()
    again = Journal(tmp_path)
    assert again.records == {b"a": b"1", b"b": b"2"}
    again.close()


async def test_a_refusal_during_a_send_waits_until_all_effects_are_performed(tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        return [SendDatagram("x", b"refused"), SendDatagram("x", b"after")] if isinstance(event, Started) else []

    driver, node, transport, store = make(tmp_path, answer)
    driver.request(Started())
    assert [data for data, _ in transport.sends] == [b"refused", b"after"]
    assert [event for event, _ in node.seen] == [Started(), SendFailed("x", REFUSED)]
    store.close()


async def test_timers_replace_cancel_and_never_fire_early(tmp_path: Path) -> None:
    import time

    fired: list[tuple[Any, int]] = []

    def answer(event: Event) -> list[Effect]:
        now = time.monotonic_ns()
        if isinstance(event, Started):
            return [
                SetTimer(("t", 1), now + 5_000_000),
                SetTimer(("t", 2), now + 10_000_000),
                SetTimer(("t", 3), now + 5_000_000),
                SetTimer(("t", 1), now + 20_000_000),
                CancelTimer(("t", 3)),
            ]
        return []

    driver, node, _, store = make(tmp_path, answer)
    began = time.monotonic_ns()
    driver.request(Started())
    while len(node.seen) < 3:
        await asyncio.sleep(0)
    fired = [(event.key, at - began) for event, at in node.seen[1:] if isinstance(event, TimerFired)]
    assert [key for key, _ in fired] == [("t", 2), ("t", 1)]
    assert fired[0][1] >= 10_000_000
    assert fired[1][1] >= 20_000_000
    driver.close()
    store.close()


async def test_a_cancelled_timer_wakes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soon, later = ("swim", "soon"), ("swim", "later")
    answers: dict[bytes, list[Effect]] = {
        b"ping": [SetTimer(soon, time.monotonic_ns() + 20_000_000), SetTimer(later, time.monotonic_ns() + 120_000_000)],
        b"ack": [CancelTimer(soon)],
    }
    driver, node, _, _ = make(tmp_path, lambda e: answers[e.data] if isinstance(e, DatagramReceived) else [])
    wakes: list[int] = []
    on_wake = driver._on_wake

    def counted() -> None:
        wakes.append(time.monotonic_ns())
        on_wake()

    monkeypatch.setattr(driver, "_on_wake", counted)
    for data in answers:
        driver.post(DatagramReceived("a:1", data))
    while TimerFired(later) not in [event for event, _ in node.seen]:
        await asyncio.sleep(0.01)
    assert len(wakes) == 1
    driver.close()


async def test_a_thousand_replaced_timers_leave_no_heap(tmp_path: Path) -> None:
    far = 1 << 62

    def answer(event: Event) -> list[Effect]:
        return [SetTimer(("t", n % 10), far - n) for n in range(1000)]

    driver, _, _, store = make(tmp_path, answer)
    for _ in range(20):
        driver.request(Started())
    assert len(driver._heap) <= 64 + 4 * 10 + 1
    driver.close()
    store.close()


async def test_a_crash_is_counted_a_refusal_is_raised(tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        if isinstance(event, DatagramReceived):
            raise ZeroDivisionError
        raise StateError("no")

    driver, _, _, store = make(tmp_path, answer)
    driver.handlers().datagram("x", b"")
    assert driver.counts["crashes"] == 1
    with pytest.raises(StateError):
        driver.request(Started())
    driver.close()
    store.close()


async def test_tasks_start_again_until_they_return() -> None:
    supervisor, runs = Supervisor(quiet()), 0

    async def flaky() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise JournalError("x")
        if runs == 2:
            raise KeyError("bug")

    await supervisor.keep("flaky", flaky, pause_s=0.0)
    assert runs == 3
    assert supervisor.restarts == {"flaky": 2}
    endless = supervisor.keep("endless", lambda: asyncio.sleep(3600))
    await asyncio.sleep(0)
    await supervisor.close()
    assert endless.cancelled()


async def test_a_task_is_not_lost_where_what_it_waits_for_is_cancelled() -> None:
    """By a library, or another task: a bridge was gone for good, with no word in the log."""
    supervisor, runs = Supervisor(quiet()), 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            waited_for: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waited_for.cancel()
            await waited_for

    await supervisor.keep("bridge", run, pause_s=0.0)
    assert (runs, supervisor.restarts) == (2, {"bridge": 1})


async def test_a_task_whose_good_bye_fails_does_not_begin_again() -> None:
    """It was told to end: a daemon hung at its end as often as a bridge failed there, and began it anew each time."""
    supervisor, runs = Supervisor(quiet()), 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.sleep(3_600)
        finally:
            raise JournalError("the good-bye was not taken")

    task = supervisor.keep("bridge", run, pause_s=0.0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=1.0)
    assert task.done()
    assert runs == 1
    await supervisor.close()


# --- What is shared of what is seen -----------------------------------------------------------------------------

LOOK = LocalDetection("new", 1, "hot", 900, 0, 500, (100, 0, 100), "p5", False, 0, bytes(8))


def sightings() -> SightingFilter[LocalDetection]:
    panels = SiteMap([Asset(f"p{i}", 0.0, float(i), 2.2, 0.99) for i in range(20)])
    return SightingFilter(LocalDetection, Plane(0.0, 0.0), panels, 0.95)


def test_a_track_is_held_back_until_its_asset_is_sure() -> None:
    see = sightings()
    unsure = replace(LOOK, asset="", north_cm=550)
    assert see.take([unsure]) == []
    (shared,) = see.take([replace(LOOK, kind="update", captured_ns=1)])
    assert (shared.kind, shared.asset) == ("new", "p5")
    assert see.take([replace(unsure, kind="update", captured_ns=2)]) == []
    (end,) = see.take([replace(unsure, kind="end", captured_ns=3)])
    assert (end.kind, end.asset, end.north_cm) == ("end", "p5", 500)
    assert see.take([replace(unsure, kind="end", captured_ns=4)]) == []


def test_a_track_that_never_settles_is_shared_without_an_asset_when_it_ends() -> None:
    see = sightings()
    unsure = replace(LOOK, asset="", north_cm=550)
    see.take([unsure])
    assert [d.kind for d in see.take([replace(unsure, kind="end", captured_ns=9)])] == ["new", "end"]
    assert see.counts["ambiguous"] == 1


def test_what_is_on_no_asset_is_shared_at_once() -> None:
    far = replace(LOOK, asset="", east_cm=5000)
    assert sightings().take([far]) == [far]
    assert sightings().take([replace(far, east_cm=None, north_cm=None, covariance_cm2=None)])[0].kind == "new"


def test_updates_pass_when_they_say_something() -> None:
    see = SightingFilter(LocalDetection, Plane(0.0, 0.0), None, 0.95)
    look = replace(LOOK, asset="")
    see.take([look])
    assert see.take([replace(look, kind="update", captured_ns=1)]) == []
    assert see.take([replace(look, kind="update", captured_ns=2, east_cm=30)])
    assert see.take([replace(look, kind="update", captured_ns=2_000_000_000, east_cm=30)])


def test_a_dead_eyes_tracks_end_once() -> None:
    see = sightings()
    see.take([LOOK, replace(LOOK, track_id=2, asset="", north_cm=550)])
    assert sorted((d.track_id, d.kind) for d in see.forget_all(99)) == [(1, "end"), (2, "end"), (2, "new")]
    assert see.forget_all(100) == []


def test_memory_of_tracks_is_bounded() -> None:
    see = SightingFilter(LocalDetection, None, None, 0.95)
    rng = random.Random(1)
    for _ in range(6000):
        see.take(
            [replace(LOOK, track_id=rng.getrandbits(40), asset="", east_cm=None, north_cm=None, covariance_cm2=None)]
        )
    assert len(see._tracks) <= 4096


# --- The demo's judgement ----------------------------------------------------------------------------------------


def test_truth_counts_finds_false_ones_duplicates_and_swallowed_neighbours() -> None:
    from swarmd_sim.world.farm import Farm

    farm = Farm.build(seed=7, tables=24, modules=40, faults=0.025, cell_m=20.0)
    faults = farm.truth()

    def row(fault: Any, asset: bool = True, east: float = 0.0, reports: int = 1) -> dict[str, Any]:
        name = fault.asset if asset else ""
        return {"asset": name, "east_m": fault.east_m + east, "north_m": fault.north_m, "reports": reports}

    everything = [row(fault) for fault in faults]
    assert compare(farm, everything) == {
        "faults": 24, "found": 24, "missed": 0, "false": 0, "duplicates": 0, "distinct_lost": 0,
    }  # fmt: skip
    assert compare(farm, everything[1:])["missed"] == 1
    assert compare(farm, [*everything, row(faults[0], asset=False, east=0.5)])["duplicates"] == 1
    assert compare(farm, [*everything, row(faults[0], asset=False, east=3.0)])["false"] == 1
    near = next(
        (a, b)
        for a in faults
        for b in faults
        if a is not b and abs(a.north_m - b.north_m) < 1.5 and a.east_m == b.east_m
    )
    merged = [row(fault, reports=2) for fault in faults if fault is not near[1]]
    assert compare(farm, merged)["distinct_lost"] == 1


# --- Footprint ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_brain_never_loads_what_belongs_to_the_eye() -> None:
    program = (
        "import sys; import swarmd.brain.brain, swarmd.brain.node_metrics, swarmd.api.node_verbs\n"
        "import swarmd.api.pages, swarmd.brain.eyelink\n"
        "import swarmd_models.bundle\n"
        "heavy = {'numpy', 'cv2', 'ai_edge_litert', 'prometheus_client', 'paho', 'cyclonedds', 'zeroconf'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_running_brain_needs_no_openssl() -> None:
    program = (
        "import sys; from swarmd.cli.main import main\n"
        "main(['run', '--listen', 'nowhere'])\n"
        "import asyncio, hashlib\n"
        "assert not {'ssl', '_hashlib', 'typing_extensions'} & sys.modules.keys()\n"
        "import ssl; print(ssl.OPENSSL_VERSION[:7], hashlib.sha256(b'').hexdigest()[:8])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "OpenSSL e3b0c442\n"


def test_alarms_reach_the_bus(tmp_path: Path) -> None:
    store, bus, heard = Journal(tmp_path), Bus(quiet()), []
    bus.subscribe(heard.append)
    driver = Driver(store, bus, quiet(), Metrics())
    transport = WatchingTransport(store, driver)
    driver.attach(ScriptedNode(lambda event: [Alarm("code", "text")]), transport)  # type: ignore[arg-type]
    driver.request(Started())
    assert heard == [Alarm("code", "text")]
    store.close()


async def test_a_task_that_lost_its_cancellation_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait_for` of Python 3.11 swallows a cancellation that comes with what it waits for: a daemon hung at its end."""
    monkeypatch.setattr(supervise, "AGAIN_S", 0.05)
    supervisor, due, swallowed = Supervisor(quiet()), asyncio.Event(), []

    async def deaf() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await due.wait()
                return
            swallowed.append(True)
            await asyncio.sleep(3_600)

    task = supervisor.keep("deaf", deaf)
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await supervisor.close()
    assert swallowed
    assert task.cancelled()
