"""The engine apart from the daemon's protocols: order, choices, clocks, disk, hosts, network, digest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarmd_protocols.effects import Command, Effect, Event, Persist, SendStream, Started, UserEventDelivered
from swarmd_protocols.ids import NodeId
from swarmd_sim.faults.clocks import NodeClock
from swarmd_sim.faults.disk import ModelledDisk
from swarmd_sim.faults.faults import FAULT_KINDS, Fault, draw_script, fault_from_row, simpler
from swarmd_sim.faults.links import LinkFault, LinkFaults, group_of
from swarmd_sim.radio.network import Network
from swarmd_sim.radio.radio import Radio, RadioConfig
from swarmd_sim.run.choices import MILLION, Choices, derived_seed
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.support.small_node import SmallMaker

ROOT = Path(__file__).resolve().parents[2]
S = 1_000_000_000
QUIET = {"workload.user_events_per_min": 0, "workload.notes_per_min": 0, "drones.work": "none"}


def small(
    seed: int = 3, name: str = "partition-heal", options: Options | None = None, **overrides: object
) -> Simulation:
    scenario = load_scenario(name, {**QUIET, **overrides})
    chosen = options or Options()
    chosen.maker = SmallMaker
    return Simulation(scenario, seed, chosen)


def test_engine_runs_in_order_of_time_then_of_scheduling() -> None:
    engine, seen = Engine(), []
    for due, name in ((5, "c"), (1, "a"), (5, "d"), (2, "b"), (-9, "now")):
        engine.at(due, seen.append, name)
    engine.run_until(5)
    assert seen == ["now", "a", "b", "c", "d"]
    assert engine.now_ns == 5


def test_engine_keeps_its_order_across_spans_and_pauses() -> None:
    """The queue's lists and its heap together are one order: time, then scheduling."""
    draw = Choices(11).stream("at")
    engine, seen, wanted = Engine(), [], []

    def note(entry: tuple[int, int]) -> None:
        seen.append(entry)
        if draw(3) == 0:
            plan(engine.now_ns + draw(60_000_000))

    def plan(due_ns: int) -> None:
        entry = (max(due_ns, engine.now_ns), len(wanted))
        wanted.append(entry)
        engine.at(due_ns, note, entry)

    for pause in range(40):
        for _ in range(30):
            plan(engine.now_ns + draw(90_000_000) - 10_000_000)
        engine.run_until(engine.now_ns + (draw(50_000_000) if pause % 3 else 1_000))
        assert engine.scheduled == len(wanted) - len(seen)
    engine.run_until(engine.now_ns + 10_000_000_000)
    assert seen == sorted(wanted)


def test_engine_sweep_keeps_what_lives() -> None:
    engine, seen = Engine(), []
    for number in range(100):
        engine.at(number, seen.append, number)
    engine.sweep(lambda _call, number: number % 2 == 1)
    engine.run_until(1_000)
    assert seen == list(range(0, 100, 2))


def test_choices_are_streams_that_do_not_disturb_each_other() -> None:
    one, two = Choices(7), Choices(7)
    one.choose("other", 10)
    assert [one.choose("a", 1000) for _ in range(5)] == [two.choose("a", 1000) for _ in range(5)]


def test_choices_have_the_same_values_on_every_machine() -> None:
    """Fixed numbers: a change here makes every recorded seed mean something else."""
    choices = Choices(4711)
    assert [choices.choose("radio.loss", MILLION) for _ in range(4)] == [521448, 895846, 751622, 584235]
    assert derived_seed(1, "x") == 0xD0D8C4ADB353643BA0E2DA1FDEE9B7F3


def test_recorded_choices_replay_and_zeroed_ones_are_benign() -> None:
    recorded = Choices(3, record=True)
    draws = [recorded.choose("k", 100) for _ in range(20)]
    replayed = Choices(999, given=recorded.recorded())
    assert [replayed.choose("k", 100) for _ in range(20)] == draws
    assert replayed.choose("k", 100) == 0
    silent = Choices(3, zeroed=("link.", "radio.loss"))
    assert {silent.choose("link.loss", 50) for _ in range(9)} == {0}
    assert not any(silent.chance("radio.loss", 999_999) for _ in range(9))
    assert silent.choose("radio.lossy", 1 << 40) != 0


@pytest.mark.parametrize("drift", [0, 15_000_000, -15_000_000, 50_000, -1])
def test_a_timer_never_fires_before_the_local_clock_says_so(drift: int) -> None:
    clock = NodeClock(123, 10**15, drift, 0)
    for local in (10**15, 10**15 + 1, 10**15 + 999_999_937, 10**15 + 3_600 * 10**9):
        due = clock.virtual_ns(local)
        assert clock.local_ns(due) >= local
        assert clock.local_ns(due - 1) < local or due == 123


def test_a_change_of_drift_makes_no_jump() -> None:
    clock = NodeClock(0, 500, 20_000, 0)
    before = clock.local_ns(10**10)
    clock.set_drift(10**10, -9_000_000)
    assert clock.local_ns(10**10) == before


def test_disk_full_keeps_only_in_memory() -> None:
    disk = ModelledDisk(0)
    assert disk.write(b"a", b"1")
    disk.full = True
    assert not disk.write(b"a", b"2")
    assert not disk.write(b"b", b"3")
    assert disk.get(b"a") == b"2"
    disk.crash()
    assert disk.records() == {b"a": b"1"}


def test_corrupt_disk_flips_one_bit() -> None:
    disk = ModelledDisk(0)
    disk.write(b"a", bytes(32))
    assert disk.corrupt(Choices(1)) == b"a"
    assert sum(byte.bit_count() for byte in disk.records()[b"a"]) == 1
    disk.lose()
    assert disk.corrupt(Choices(1)) is None


def test_link_faults_partition_block_and_one_way() -> None:
    faults = LinkFaults(Choices(1))
    assert faults.quiet
    faults.groups[1] = group_of([[0, 1], [2]])
    assert faults.cut(0, 2)
    assert not faults.cut(0, 1)
    faults.groups.clear()
    faults.active[2] = LinkFault(frozenset((0,)), frozenset((1,)), blocked=True)
    assert faults.cut(0, 1)
    assert not faults.cut(1, 0)
    assert faults.judge(0, 1).blocked


def test_scripts_are_drawn_within_their_bounds_and_survive_json() -> None:
    for seed in range(60):
        script = draw_script(Choices(seed), ["all"], 9, 20, 5 * 10**9, 60 * 10**9, 20 * 10**9)
        for fault in script:
            assert fault.kind in FAULT_KINDS
            assert 5 * 10**9 <= fault.at_ns <= fault.end_ns <= 60 * 10**9
            assert len(set(fault.nodes)) == len(fault.nodes) > 0
            assert set(fault.nodes) <= set(range(9))
            assert fault_from_row(json.loads(json.dumps(fault.to_row()))) == fault
            assert all(other != fault for other in simpler(fault))


@pytest.mark.parametrize("row", [[], [1, "nope", [0], 1, 0], [-1, "kill", [0], 1, 0], [1, "kill", ["x"], 1, 0], None])
def test_damaged_fault_rows_are_refused(row: object) -> None:
    with pytest.raises(ValueError):
        fault_from_row(row)


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    first, again, other = small(3).run(), small(3).run(), small(4).run()
    assert first.figures["trace_digest"] == again.figures["trace_digest"]
    assert first.figures["trace_digest"] != other.figures["trace_digest"]


def test_the_digest_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.sim.test_sim_engine import small\n"
        "print(small(11, **{'swarm.seconds': 40, 'checks.settle_s': 10, 'fault': []}).run().figures['trace_digest'])"
    )
    digests = set()
    for hash_seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_all_zero_choices_lose_nothing() -> None:
    result = small(3, options=Options(zeroed=("radio.",), script=())).run()
    assert result.figures["lost"] == 0


def test_a_dead_process_answers_refused_and_a_dead_machine_nothing() -> None:
    run = small(3)
    run.run()
    kinds = {fault.kind for fault in run.script}
    assert kinds == {"partition", "kill"}
    assert run.hosts[9].boots == 2


def test_a_machine_without_power_is_sent_to_ever_less_often() -> None:
    """No acknowledgement comes: 0.2, 0.6, 1.4, 3 and every 3 s after that, until the deadline."""
    run = small(3, options=Options(script=[Fault(20 * S, "power_loss", (5,), 30 * S, 0)]))
    sender, target, network = run.hosts[2], run.hosts[5], run.network
    frame = SendStream(target.address, bytes(2_000), 0)
    before: list[int] = []

    def send(_argument: object) -> None:
        before.append(network.sent_bytes[sender.index])
        network.stream(sender, frame, 31 * S)

    def quiet(_argument: object) -> None:
        before.append(network.sent_bytes[sender.index])

    run.engine.at(21 * S, send, None)
    run.engine.at(31 * S, quiet, None)
    run.run()
    assert 3 * len(frame.data) <= before[1] - before[0] <= 8 * len(frame.data)


def test_a_slow_disk_holds_back_the_effects_behind_it() -> None:
    run = small(5, **{"device.fsync_ms": 40, "fault": [], "swarm.seconds": 60})
    run.run()
    # 40 ms a write every 200 ms; the ping goes out only after the write.
    assert all(host.disk.writes > 100 for host in run.hosts)
    assert run.network.counters.datagrams > 0


class _Noting:
    """Writes something and arms a timer for every event, and notes what its driver does with that."""

    def __init__(self) -> None:
        self.events = 0

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        self.events += 1
        return [Persist(b"key", b"value"), UserEventDelivered(NodeId(b"n" * 16), "n", str(self.events), b"")]


class _Told:
    """An observer that notes the order in which effects are performed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_effect(self, host: Host, effect: Effect) -> None:
        assert isinstance(effect, UserEventDelivered)
        self.names.append(effect.name)

    def on_event(self, host: Host, event: Event) -> None: ...

    def on_crash(self, host: Host, reason: str) -> None: ...

    def on_boot(self, host: Host) -> None: ...


def test_an_event_at_the_end_of_a_write_does_not_overtake_the_effects_that_wait_for_it() -> None:
    """Neither a frame nor a request, whichever of them and the end of the write was scheduled first."""
    fsync_ns = 5_000_000
    engine, told = Engine(), _Told()
    choices = Choices(1)
    network = Network(engine, Radio(RadioConfig(), choices), LinkFaults(choices), choices)
    host = Host(0, "n0", "here", engine, network, told, fsync_ns, 0, 0)
    network.attach(host)
    engine.at(fsync_ns, lambda _: host.receive_datagram("there", b"frame"), None)
    engine.at(fsync_ns, lambda _: host.command("state", "request"), None)
    host.boot(lambda _: _Noting(), NodeClock(0, 0, 0, 0))
    engine.run_until(10 * fsync_ns)
    assert told.names == ["1", "2", "3"]


def test_a_crash_can_hit_between_any_two_effects() -> None:
    boundaries = set()
    for effects in (1, 2, 3):
        run = small(5, options=Options(script=()), fault=[])
        run.engine.run_until(0)
        host = run.hosts[0]
        run.boot(host)
        host.crash_within(effects, "test")
        run.engine.run_until(10**9)
        assert not host.process_up
        boundaries.add((host.disk.writes, run.network.counters.datagrams))
    # After SetTimer of Started; after Persist; after the datagram.
    assert len(boundaries) >= 2


def test_requests_to_a_stalled_host_wait_and_die_with_it() -> None:
    run = small(5, options=Options(script=()), fault=[])
    host = run.hosts[0]
    run.boot(host)
    answers: list[str] = []
    host.stall(10**9)
    host.command("state", "later", answers.append)
    assert answers == []
    run.engine.run_until(2 * 10**9)
    assert answers == [""]
    host.stall(10**9)
    host.command("state", "never", answers.append)
    host.crash("test", power=False)
    run.engine.run_until(4 * 10**9)
    assert answers == [""]


def test_streams_arrive_whole_in_order_and_across_losses() -> None:
    run = small(5, options=Options(script=()), **{"fault": [], "radio.loss": 0.3})
    a, b = run.hosts[0], run.hosts[1]
    run.boot(a)
    run.boot(b)
    frames = [bytes([number]) * size for number, size in enumerate((10, 70_000, 5, 200_000, 1))]
    for frame in frames:
        a.handle(Command("send", (b.address, frame)))
    run.engine.run_until(60 * 10**9)
    assert b.node.heard == frames


def test_a_stream_past_its_deadline_is_dropped_and_reported() -> None:
    run = small(5, options=Options(script=()), fault=[])
    a, b = run.hosts[0], run.hosts[1]
    run.boot(a)
    run.boot(b)
    run.network.faults.groups[1] = group_of([[0], [1]])
    a.handle(Command("send", (b.address, b"late")))
    run.engine.run_until(20 * 10**9)
    assert b.node.heard == []
    assert run.network.counters.expired == 1


def test_persist_and_started_are_the_daemons_own_effects() -> None:
    assert Persist.__module__ == Started.__module__ == "swarmd_protocols.effects"
