"""Attacks of members on others' state and membership, of strangers, and of a broker's client."""

import statistics
import tempfile
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

from swarmd.bridges.mqtt.bridge import MqttBridge
from swarmd.bridges.mqtt.link import Incoming
from swarmd.config.bridges import MqttConfig
from swarmd.release.audit import AuditLog
from swarmd.release.refusals import RefusalLog
from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.effects import DatagramReceived, MemberState, SendDatagram, Started, StateChanged
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.state.claims.claims import cell_hash
from swarmd_protocols.state.crdt.facts import Done, Facts
from swarmd_protocols.state.crdt.messages import Batches, Certificates, Proof
from swarmd_protocols.state.observations import CellAssigned, DefineCells, WantCell
from tests.bench import hostile_state
from tests.bench.attacks.seen import Seen
from tests.support.release_world import World
from tests.support.state_mesh import CRYPTO, Mesh, detection
from tests.support.swim_net import MS, SECRET, Net, S
from tests.support.swim_thief import Thief
from tests.unit.test_state_attacks import forged_certificate, ghost, invented, say

CELLS = [(f"c{i}", (i % 10) * 1_000, (i // 10) * 1_000) for i in range(100)]


def _cells_done(mesh: Mesh, index: int) -> int:
    replica = mesh.members[index].replica
    assert replica is not None
    return sum(cell.state == "done" for cell in replica.views.cells())


def _phantoms(mesh: Mesh, index: int) -> int:
    replica = mesh.members[index].replica
    assert replica is not None
    return sum(one.label == "person" for one in replica.views.objects())


def invented_origins() -> Seen:
    """Three invented authors finish all cells and see a phantom; 4,096 more; a newcomer comes; all reboot."""
    mesh = Mesh(4, seed=3)
    mesh.run(5)
    for index in range(3):
        mesh.command(index, DefineCells(CELLS))
    mesh.see(0, detection(mesh.now_ns, 1, 500, 500))
    mesh.run(5)
    dones = [Done(cell_hash(cell[0]), 1_000) for cell in CELLS]
    for number in range(3):
        pen = invented(number)
        batch = pen.write(Facts([ghost("hot-spot", 500, 500), ghost("person", 90_000, 0)], [], dones))
        say(mesh, 0, 3, Batches((batch.raw,)))
        say(mesh, 0, 3, Certificates((forged_certificate(pen), CRYPTO.public_key(pen.seed))))
    mesh.run(10)
    done = [_cells_done(mesh, index) for index in range(3)]
    phantoms = [_phantoms(mesh, index) for index in range(3)]
    mesh.command(0, WantCell(0, 0, 1_000))
    mesh.run(20)
    assigned = any(isinstance(one, CellAssigned) for one in mesh.members[0].details)
    pens = [invented(10 + number) for number in range(4_096)]
    raws = [pen.write(Facts([], [], [Done(b"\0" * 6, 1)])).raw for pen in pens]
    for at in range(0, len(raws), 64):
        say(mesh, 0, 3, Batches(tuple(raws[at : at + 64])))
        for part in range(at, at + 64, 16):
            keys = tuple(CRYPTO.public_key(pen.seed) for pen in pens[part : part + 16])
            say(mesh, 0, 3, Certificates(keys))
    mesh.run(60)
    late = mesh.newcomer(9)
    mesh.see(len(mesh.members) - 1, detection(late.local_ns(mesh.now_ns), 1, 70_000, 70_000))
    mesh.run(5)
    heard = [any(one.east_cm == 70_000 for one in mesh.members[index].replica.views.objects()) for index in range(3)]
    for index in range(3):
        mesh.crash(index)
        mesh.run(2)
        mesh.boot(index)
        mesh.run(20)
    origins = [mesh.members[index].replica.views.health()["origins"] for index in range(3)]
    later = [_phantoms(mesh, index) for index in range(3)]
    return Seen(
        "100 of 100 cells done for ever, a phantom confirmed for ever; the origins table full, an honest newcomer's "
        "sightings refused; all of it outlives revocation and reboots",
        any(done) or any(phantoms) or any(later) or not assigned or not all(heard) or max(origins) > 5,
        f"cells done {done}, phantoms {phantoms}; work is given: {assigned}; a newcomer's sighting is at {sum(heard)} "
        f"of 3; origins after reboots {origins}",
    )


def decoded_rows_memory() -> Seen:
    """A member's own rows that cost more memory than bytes, for a minute: far beyond its quota of the time."""
    row = hostile_state.measure(hostile_state.decoded_rows)
    return Seen(
        "0.42 MB of batches: +144 MB; its 4 MiB quota: 1.4 GB; comes back from the journal",
        float(str(row["memory_mb"])) > 32 or float(str(row["restart_s"])) > 10 or not row["named"],
        f"{row['sent_mb']} MB sent: +{row['memory_mb']} MB; restart {row['restart_s']} s; named: {row['named']}",
    )


def dedup_stall() -> Seen:
    """8,000 sightings on one spot that may not merge; then one row of the best rank moves, again and again."""
    row = hostile_state.measure(hostile_state.dedup_stall)
    return Seen(
        "one 250-byte batch stops the event loop for 16 s",
        float(str(row["longest_ms"])) > 100,
        f"the longest event takes {row['longest_ms']} ms (20 on an idle machine), {row['cpu_share']:.1%} of a core",
    )


def quarantine_storm() -> Seen:
    """Among 12 members, 200 invented authors convicted by invented proofs; then the thief goes."""
    mesh = Mesh(12, seed=3)
    mesh.run(5)
    for number in range(200):
        first, second = (invented(number).write(Facts([], [], [Done(bytes([n]) * 6, 1)])) for n in (1, 2))
        for message in (Batches((first.raw,)), Certificates((CRYPTO.public_key(invented(number).seed),))):
            say(mesh, 0, 11, message)
        say(mesh, 0, 11, Proof(first.raw, second.raw))
        mesh.run(0.01)
    mesh.run(30)
    mesh.crash(11)
    mesh.tell_peers()
    messages, sent = mesh.messages, mesh.bytes_sent
    mesh.run(60)
    rate, bytes_s = (mesh.messages - messages) / 60, (mesh.bytes_sent - sent) / 60
    convicted = [member.replica.views.health()["quarantined"] for member in mesh.members[:11]]
    return Seen(
        "410 messages/s and 2.4 MB/s among honest nodes for ever after the thief has gone",
        rate > 30 or any(convicted),
        f"the next minute: {rate:.0f} messages/s and {bytes_s / 1000:.1f} kB/s among 11; convicted {max(convicted)}",
    )


def _accused(seed: int, count: int = 8, *, attack: bool) -> tuple[float, float, float]:
    net = Net(count, seed=seed)
    net.run_until(net.formed, 5)
    net.run(3)
    thief, rng, is_on = Thief(SECRET, net.crypto), Random(seed), [True]
    for _ in range(2):
        for host in net.hosts:
            net.perform(host, thief.meet(host.node, net.now))
        net.run(0.1)

    def tick() -> None:
        if not is_on[0]:
            return
        for host in net.hosts:
            if not host.up or host.node.node not in thief.sessions:
                continue
            for subject in rng.sample(range(count), 2):
                own = net.hosts[subject].node._core.own
                for level in (0, 1):
                    word = thief.accusation(own.node, own.incarnation, level)
                    net.perform(host, thief.say(host.node, [word], net.now))
        net.at(net.now + 100 * MS, tick)

    if attack:
        tick()
    before, bad, pairs = sum(host.bytes_out for host in net.hosts), 0, 0
    for _ in range(200):
        net.run(0.1)
        for index in range(count):
            for name, state in net.states(index).items():
                if name.startswith("n") and name != f"n{index:03d}":
                    pairs += 1
                    bad += state in (MemberState.SUSPECT, MemberState.DEGRADED)
    rate = (sum(host.bytes_out for host in net.hosts) - before) / 20 / count
    net.hosts[3].dark = True
    others = [index for index in range(count) if index != 3]
    known = net.run_until(lambda: all(net.states(i).get("n003") is MemberState.FAILED for i in others), 60, 0.05)
    is_on[0] = False
    return bad / pairs * 100, rate, 60.0 if known is None else known


def accuse_again() -> Seen:
    """One member calls everybody suspect or degraded at everybody, as fast as it is heard; then one goes dark."""
    quiet, loud = ([_accused(seed, attack=attack) for seed in range(5)] for attack in (False, True))
    doubted = statistics.mean(row[0] for row in loud)
    rates = [statistics.mean(row[1] for row in rows) for rows in (quiet, loud)]
    known = [statistics.mean(row[2] for row in rows) for rows in (quiet, loud)]
    return Seen(
        "14 % of pairs SUSPECT or DEGRADED; 1.8 to 14.7 kB/s; a real blackout known after 10 to 22 s",
        doubted > 1 or known[1] > 1.2 * known[0] or rates[1] - rates[0] > 2_000,
        f"{doubted:.2f} % of pairs; {rates[0]:.0f} to {rates[1]:.0f} B/s; a blackout known after {known[1]:.1f} s "
        f"({known[0]:.1f} without)",
    )


def audit_flood() -> Seen:
    """One message of 1.5 kB with 512 statements that are none, as often as pushed out the whole history."""
    world = World(3, crypto=ModelCrypto())
    push = encode_message(Push((), tuple(b"\x00" for _ in range(512)), ()))
    effects = world.nodes[0].on_message(world.ids[2], push, world.now)
    heard = [one.detail for one in effects if isinstance(one, StateChanged) and isinstance(one.detail, requests.Heard)]
    with tempfile.TemporaryDirectory() as name:
        folder, now_ns = Path(name), [0]
        history = AuditLog(folder)
        history.add("accepted", 0, kind="release", digest="ab" * 32, source="op", reason="the line worth keeping")
        named: list[str] = []
        log = RefusalLog(folder, lambda source, count: named.append(source), lambda: now_ns[0])
        longest = 0
        for _ in range(600):
            now_ns[0] += S // 10
            for one in heard:
                log.note(one.kind, one.digest.hex(), one.source, one.reason)
            longest = max(longest, log.pending_count)
        log.close()
        lines = sum(len(path.read_text().splitlines()) for path in folder.glob("refus*"))
        is_kept = "the line worth keeping" in (folder / "audit.jsonl").read_text()
    return Seen(
        "1.5 kB: 512 synced lines in an unbounded queue; 770 kB push out the whole history",
        not is_kept or longest > 1_024 or lines > 200,
        f"600 such messages ({600 * len(push) / 1e3:.0f} kB) in a minute: {lines} lines, at most {longest} waiting; "
        f"the history keeps its line: {is_kept}; named: {bool(named)}",
    )


def _joined_s(rate: int, *, cold: bool) -> float | None:
    net = Net(8, seed=5, crypto=NaClCrypto(), start=False)
    rng, up, number = Random(9), set[int](), [0]

    def flood() -> None:
        for victim in sorted(up):
            for _ in range(max(1, rate // 200)):
                number[0] += 1
                source = f"10.9.{number[0] // 60_000 % 250}.9:{number[0] % 60_000 + 1}"
                net.feed(victim, DatagramReceived(source, b"\x11" + rng.randbytes(24)))
        net.at(net.now + 5 * MS, flood)

    for index in range(8 if cold else 7):
        net.feed(index, Started())
        up.add(index)
    if not cold:
        net.run(5)
    if rate:
        flood()
    if not cold:
        net.run(2)
        net.feed(7, Started())
        up.add(7)
    return net.run_until(net.formed, 30, 0.1)


def hello_flood() -> Seen:
    """25-byte frames of a stranger: what is answered, and whether a newcomer and a cold start join under them."""
    net = Net(2, crypto=NaClCrypto())
    net.run(3)
    rng, out = Random(1), 0
    for number in range(1_000):
        net.now += S // 1_000
        junk = DatagramReceived(f"192.0.2.{number % 250 + 1}:{1_000 + number}", b"\x11" + rng.randbytes(24))
        effects = net.hosts[0].node.handle(junk, net.now)
        out += sum(len(one.data) for one in effects if isinstance(one, SendDatagram))
    factor = out / 25_000
    joins = {rate: (_joined_s(rate, cold=False), _joined_s(rate, cold=True)) for rate in (0, 400, 1_000, 2_000, 5_000)}
    late = [one is None or one > 5 for pair in joins.values() for one in pair]
    text = ", ".join(f"{rate}/s {one} and {cold} s" for rate, (one, cold) in joins.items())
    return Seen(
        "a 25-byte datagram earns an answer 28 times as large",
        factor > 1 or any(late),
        f"{factor:.2f} bytes answered for one; a newcomer and a cold start of 8 under {text}",
    )


def mqtt_response_topic() -> Seen:
    """A client that may write commands alone names topics for the answers, and asks all for much."""
    calls, out = [0], list[tuple[str, int]]()

    class Daemon:
        name, swarm = "drone-1", "farm"

        def command(self, verb: str, _arguments: object, _by: str = "") -> dict[str, object]:
            calls[0] += 1
            return {"objects": [{"id": "x" * 40}] * 5_000} if verb == "objects" else {"ok": 1}

    bridge = MqttBridge(MqttConfig())
    bridge._daemon = Daemon()  # type: ignore[assignment]
    wire = SimpleNamespace(publish=lambda topic, body, **_: out.append((topic, len(body))))
    bridge._link = wire  # type: ignore[assignment]
    wanted = ("node/drone-1/state", "cmd/all/objects", "other/actuator/set")
    for topic in ("homeassistant/device/swarmd_x/config", "$SYS/x", *(f"swarm/v1/farm/{one}" for one in wanted)):
        bridge._on_command(Incoming("swarm/v1/farm/cmd/all/objects", b"", topic, None))
    replies = list(out)
    begun = time.monotonic()
    for _ in range(2_000):
        message = Incoming("swarm/v1/farm/cmd/all/event", b'{"name":"x","payload":"y"}', "", None)
        bridge._on_command(message)
    took = calls[0]
    return Seen(
        "260 kB to any topic that the device may write; 2,000 commands taken",
        bool(replies) or took > 200,
        f"{len(replies)} replies to {len(wanted) + 2} topics of its choice; of 2,000 commands {took} run in "
        f"{time.monotonic() - begun:.1f} s",
    )
