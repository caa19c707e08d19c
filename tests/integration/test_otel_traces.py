"""One trace from a sighting at one daemon to the object at its neighbour, read as OTLP by a collector of our own."""

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from swarmd.api.daemon import LendingSpan, Look
from swarmd.bridges.otel.bridge import OF_OBJECT_MAX, OtelBridge
from swarmd.bridges.trace import trace_of, trace_of_request, trace_of_view
from swarmd.config.bridges import OtelConfig
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.state.observations import DetectionLearned, DetectionView, ObjectChanged
from tests.support.bridge_world import (
    ALICE,
    BOB,
    World,
    broker,
    happened,
    mosquitto_binary,
    object_view,
    own_detection,
)
from tests.support.daemons import PATIENCE_S, Daemon, alive_members, wait_for
from tests.support.exclusive import own_port
from tests.support.otlp import collector  # Skips where the extra `otel` is not installed.


def view(first_hlc: int = 7, object_id: str = "o1") -> DetectionView:
    covariance = (400, 0, 400)
    return DetectionView(BOB, object_id, "hot-spot", 900, 1, 2, covariance, "", False, first_hlc, 9, 1, b"\1" * 8, "k")


async def spans_of(world: World, config: OtelConfig, *events: object) -> dict[str, int]:
    bridge = OtelBridge(config)
    task = asyncio.create_task(bridge.run(world))
    async with asyncio.timeout(PATIENCE_S):
        while not world.callbacks:
            await asyncio.sleep(0.01)
    for event in events:
        world.say(event)  # type: ignore[arg-type]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return bridge.counters()


def test_sightings_that_wait_for_one_object_are_bounded() -> None:
    """A member whose sightings name an object that nothing changes any more filled a list without end."""
    bridge, world = OtelBridge(OtelConfig(enabled=True)), World("alice")
    bridge._daemon = world
    for number in range(10 * OF_OBJECT_MAX):
        bridge._on_event(StateChanged("state", DetectionLearned(view(number), "new")))
    assert len(bridge._objects["o1"]) == OF_OBJECT_MAX
    spans = []
    bridge._span = lambda trace, name, *rest: spans.append(name)  # type: ignore[assignment,method-assign]
    bridge._on_event(StateChanged("state", ObjectChanged("update", object_view("o1"), "")))
    assert spans == ["object"] * OF_OBJECT_MAX
    assert bridge._objects == {}


def test_a_trace_is_named_by_what_all_nodes_know() -> None:
    one = trace_of_view(view())
    assert one == trace_of(BOB, "k", 7)
    assert one != trace_of(BOB, "k", 8)
    assert one != trace_of(ALICE, "k", 7)
    assert one.span_id("learn", ALICE) != one.span_id("learn", BOB)
    assert one.traceparent(ALICE, 1.0) == f"00-{one.trace_id:032x}-{one.span_id('learn', ALICE):016x}-01"
    assert one.traceparent(BOB, 0.0) == f"00-{one.trace_id:032x}-{one.span_id('share', BOB):016x}-00"


async def test_a_neighbour_learns_within_the_origins_trace_once() -> None:
    learned, shown = StateChanged("state", DetectionLearned(view())), object_view("o1")
    with collector() as server:
        counts = await spans_of(
            World(), OtelConfig(endpoint=server.endpoint),
            learned, StateChanged("state", ObjectChanged("new", shown, "")), learned,
        )  # fmt: skip
        assert (counts["spans"], counts["exported"], counts["failed"]) == (2, 2, 0)
        by = {span.name: span for span in server.spans}
        trace = trace_of_view(view())
        assert {span.trace for span in server.spans} == {trace.trace_id.to_bytes(16, "big")}
        assert by["learn"].parent == trace.span_id("share", BOB).to_bytes(8, "big")
        assert by["object"].parent == by["learn"].id


async def test_a_borrowed_request_is_one_trace_at_borrower_and_lender() -> None:
    cause, at_ns = f"00-{'ab' * 16}-{'cd' * 8}-01", time.monotonic_ns()
    root = LendingSpan("borrow", ALICE, 7, 1, at_ns - 9_000_000, at_ns, {"swarmd.answered": True}, cause)
    below = LendingSpan("lend", BOB, 7, 1, at_ns - 5_000_000, at_ns, {"swarmd.answered": True})
    with collector() as server:
        # The world's node is Alice: she borrows, and lends to Bob, and tells of nobody's root but her own.
        events = root, below, replace(root, borrower=BOB), replace(below, borrower=ALICE)
        assert (await spans_of(World(), OtelConfig(endpoint=server.endpoint), *events))["spans"] == 2
        by = {span.name: span for span in server.spans}
    mine, bobs = trace_of_request(ALICE, 7), trace_of_request(BOB, 7)
    assert (by["borrow"].trace, by["borrow"].parent) == (mine.trace_id.to_bytes(16, "big"), b"")
    assert (by["lend"].trace, by["lend"].parent) == (
        bobs.trace_id.to_bytes(16, "big"), bobs.span_id("borrow", BOB).to_bytes(8, "big"),
    )  # fmt: skip
    assert by["lend"].took_ns >= 4_000_000
    assert by["borrow"].links == [bytes.fromhex("cd" * 8)]


async def test_nothing_is_sent_for_what_is_not_sampled() -> None:
    with collector() as server:
        counts = await spans_of(
            World(),
            OtelConfig(endpoint=server.endpoint, sample_ratio=0.0),
            StateChanged("state", DetectionLearned(view())),
        )
        assert "spans" not in counts
        assert server.spans == []


@pytest.mark.parametrize("status", [None, 400, 503])
async def test_a_collector_that_is_away_or_refuses_is_counted(status: int | None) -> None:
    learned = StateChanged("state", DetectionLearned(view()))
    if status is None:
        counts = await spans_of(World(), OtelConfig(endpoint=f"http://127.0.0.1:{own_port()}/v1/traces"), learned)
    else:
        with collector(status) as server:
            counts = await spans_of(World(), OtelConfig(endpoint=server.endpoint), learned)
    assert (counts["spans"], counts["exported"], counts["failed"]) == (1, 0, 1)


async def test_events_are_logs_with_their_kind_and_severity() -> None:
    with collector() as server:
        counts = await spans_of(
            World(), OtelConfig(endpoint=server.endpoint), happened(1), happened(2, "release-halted", BOB)
        )
        assert (counts["logs_exported"], counts["logs_failed"]) == (2, 0)
        first, second = server.logs
    assert (first.event_name, first.severity_text, first.severity_number) == ("failed", "WARNING", 13)
    assert first.body.string_value == "failed: drone-3 no answer"
    assert first.time_unix_nano == 1_790_000_000_123_000_000
    told = {pair.key: pair.value.string_value for pair in second.attributes}
    assert (second.severity_number, told["swarmd.event.origin"]) == (17, "bob")
    assert told["swarmd.event.id"] == happened(2, "release-halted", BOB).record.event_id


async def test_an_own_sighting_is_traced_from_its_frame_on() -> None:
    world = World()
    world.looks[7] = Look(None, {"infer": 2_000_000}, 1)
    with collector() as server:
        counts = await spans_of(world, OtelConfig(endpoint=server.endpoint), own_detection(7), own_detection(7, "end"))
        assert counts["spans"] == 3
        assert sorted(span.name for span in server.spans) == ["capture", "infer", "share"]


def test_one_trace_spans_two_daemons(tmp_path: Path) -> None:
    config = tmp_path / "swarmd.toml"
    with collector() as server:
        config.write_text(
            f'[node]\norigin = [-18.88, -70.11]\n[otel]\nenabled = true\nendpoint = "{server.endpoint}"\n'
        )
        a = Daemon(tmp_path, "a", "--config", str(config)).up()
        b = Daemon(tmp_path, "b", "--config", str(config), join=a.status()["address"]).up()
        try:
            wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
            seen = {"label": "hot-spot", "score": 0.9, "east_m": 10.0, "north_m": 5.0, "covariance_m2": [0.01, 0, 0.01]}
            a.ask("observe", detections=[seen])
            wanted = {("a", "capture"), ("a", "share"), ("b", "learn"), ("b", "object")}
            wait_for(lambda: {(span.node, span.name) for span in server.spans} >= wanted, f"{wanted}\n{a.log()}")
            assert len({span.trace for span in server.spans}) == 1
            by = {span.name: span for span in server.spans}
            assert by["capture"].parent == b""
            assert by["share"].parent == by["capture"].id
            assert by["learn"].parent == by["share"].id
            assert by["object"].parent == by["learn"].id
            assert server.endpoint in [row["topic"] for row in b.ask("topics")["topics"]]
        finally:
            a.close()
            b.close()


@pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")
async def test_a_trace_begins_in_a_real_eye_and_goes_on_over_mqtt_and_dds(tmp_path: Path, dds_domain: int) -> None:
    """The eye of one daemon, and at its neighbour: spans, the MQTT property and the DDS topic all name one trace."""
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")
    from swarmd.bridges.ros2 import messages as m
    from swarmd.bridges.ros2.participant import Ros2Participant

    told: dict[str, str] = {}

    def take(sample: m.DiagnosticArray) -> None:
        told.update({one.values[0].value: one.name for one in sample.status})

    reader = Ros2Participant(dds_domain, "traces_reader", "lo")
    reader.reader("rt/swarm/detections/traces", m.DiagnosticArray, take, depth=100)
    reader.start(asyncio.get_running_loop(), lambda text: None)
    running: list[Daemon] = []
    with collector() as server, broker(tmp_path) as mqtt:
        origin = "[node]\norigin = [-18.8856864, -70.1124341]\n"
        common = f'{origin}[otel]\nenabled = true\nendpoint = "{server.endpoint}"\n'
        (tmp_path / "a.toml").write_text(common)
        (tmp_path / "b.toml").write_text(
            f"{common}[mqtt]\nenabled = true\nport = {mqtt.port}\n[dds]\nenabled = true\ndomain = {dds_domain}\n"
        )
        command = ["mosquitto_sub", "-V", "5", "-p", str(mqtt.port), "-F", "%P %p", "-t", "swarm/v1/dev/detections"]
        heard = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert heard.stdout is not None
        try:
            b = await asyncio.to_thread(Daemon(tmp_path, "b", "--config", str(tmp_path / "b.toml")).up)
            running.append(b)
            eye = ["--source", "sim://farm?seed=7&tables=4&fly=lanes&laps=0", "--model", "zoo:small-320"]
            join = b.status()["address"]
            a = Daemon(tmp_path, "a", "--config", str(tmp_path / "a.toml"), *eye, join=join)
            running.append(a)

            def whole() -> list[bytes]:
                """Traces that all five spans are in."""
                names: dict[bytes, set[tuple[str, str]]] = {}
                for span in server.spans:
                    names.setdefault(span.trace, set()).add((span.node, span.name))
                wanted = {("a", "capture"), ("a", "infer"), ("a", "share"), ("b", "learn"), ("b", "object")}
                return [trace for trace, found in names.items() if found >= wanted]

            await asyncio.to_thread(wait_for, whole, "a whole trace", 120)
            over_mqtt: set[str] = set()
            while not any(trace.hex() in text for text in over_mqtt for trace in whole()):
                line = await asyncio.wait_for(heard.stdout.readline(), 60)
                over_mqtt.add(line.decode().split()[0].removeprefix("traceparent:"))
            deadline = asyncio.get_running_loop().time() + 60
            while not any(trace.hex() in text for text in told for trace in whole()):
                assert asyncio.get_running_loop().time() < deadline, (told, over_mqtt, line, b.ask("counters")["own"])
                await asyncio.sleep(0.05)
        finally:
            heard.kill()
            await heard.wait()
            for daemon in running:
                daemon.close()
            reader.close()
        trace = whole()[0]
        by = {span.name: span for span in server.spans if span.trace == trace}
        assert by["infer"].parent == by["share"].parent == by["capture"].id
        assert by["learn"].parent == by["share"].id
        assert by["object"].parent == by["learn"].id
        assert 0 < by["infer"].took_ns <= by["capture"].took_ns
        # What leaves the neighbour names the neighbour's own span.
        learned = {span.trace: span.id for span in server.spans if span.name == "learn"}
        for text in [*over_mqtt, *told]:
            _, its_trace, its_span, _ = text.split("-")
            if bytes.fromhex(its_trace) in learned:
                assert bytes.fromhex(its_span) == learned[bytes.fromhex(its_trace)]
        assert all(re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{16}", name) for name in told.values())
        assert len({name[:16] for name in told.values()}) == 1, "all of it is of the one node that sees"
