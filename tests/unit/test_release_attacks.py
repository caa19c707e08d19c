"""One named test for each row of the attack table; `tests/mutants/test_release_mutants.py` removes each check in turn
and sees the test of its row fail. Every attack is a function that returns True when it was beaten off."""

import random
from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest
from msgspec.structs import replace

from swarmd.release.delta import child, codec
from swarmd.release.errors import DeltaError
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Order
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import releases, reports, requests, rollout, statements, versions
from swarmd_protocols.releases.casting import PIECE_BYTES
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import Piece
from swarmd_protocols.releases.reports import Report, ReportBook, SignedReport, Verdict
from swarmd_protocols.releases.statements import Floor, Heartbeat, Release, Revoke, Rollout, Targets, parse_release
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.releases.swarm_actions import Ask, Blame
from swarmd_protocols.releases.swarming import BlobSwarm, SwarmingConfig
from swarmd_protocols.releases.versions import NodeFacts
from swarmd_protocols.trust import roots
from swarmd_protocols.trust.envelopes import Envelope, KeyId, key_id, signed_bytes
from tests.support.release_world import MODEL, Keys, World, make_release

KEYS = Keys("fleet", ModelCrypto())
FACTS = NodeFacts(
    hardware="pi5", arch="aarch64", runtimes={"litert": (2, 3)}, free_ram_kib=1 << 20, free_flash_kib=1 << 20
)


class State:
    """What one node knows, and what it would run."""

    def __init__(self) -> None:
        self.chain = KEYS.chain()
        self.entries: dict[bytes, versions.Entry] = {}

    def add(self, envelope: Envelope) -> bytes:
        self.entries = versions.join(self.entries, {envelope.digest: versions.admit(envelope, self.chain)})
        return envelope.digest

    def desired(self, facts: NodeFacts | None = None) -> int:
        found = versions.desired(versions.view_of(self.entries, self.chain), MODEL, facts)
        return found[1].version if found else 0


def signed(release: Release, count: int = 2, generation: int = 0) -> Envelope:
    return KEYS.sign("release", release.payload(), "release", count, generation)


def signed_by(world: World, release: Release) -> Envelope:
    return world.keys.sign("release", release.payload(), "release")


def chain_of(state: State, count: int) -> list[bytes]:
    """Releases 1..count, each after the other."""
    digests: list[bytes] = []
    for version in range(1, count + 1):
        previous = digests[-1] if digests else b""
        digests.append(state.add(signed(make_release(bytes([version]) * 5_000, version, previous))))
    return digests


# --- The rows ---


def arbitrary_software() -> bool:
    state = State()
    forged = Envelope(
        "release",
        make_release().payload(),
        tuple(sorted((key_id(KEYS.crypto.public_key(seed)), bytes(64)) for seed in KEYS.seeds("release"))),
    )
    try:
        state.add(forged)
    except IdentityError:
        return True
    return False


def threshold_by_one_key_twice() -> bool:
    """Two signatures of one key are one key."""
    payload = make_release().payload()
    seed = KEYS.seeds("release")[0]
    pair = (key_id(KEYS.crypto.public_key(seed)), KEYS.crypto.sign(seed, signed_bytes("release", payload)))
    doubled = Envelope("release", payload, (pair, pair))
    state = State()
    try:
        state.add(doubled)
    except IdentityError:
        return True
    return False


def rollback() -> bool:
    """An old release, replayed for years, stays below the floor."""
    state = State()
    digests = chain_of(state, 3)
    state.add(KEYS.sign("floor", Floor(MODEL, 1, 3).payload(), "floor"))
    revoked = KEYS.sign("model-revoke", Revoke(MODEL, 1, digests[2]).payload(), "revoke")
    state.add(revoked)
    return state.desired() == 0


def indefinite_freeze() -> bool:
    """No heartbeat for long: stale, and said so; the running model flies on."""
    world = World(2, crypto=ModelCrypto())
    node = world.nodes[0]
    world.publish(
        0,
        [
            KEYS.sign("heartbeat", Heartbeat(1, 1).payload(), "heartbeat"),
            KEYS.sign("floor", Floor(MODEL, 1, 1).payload(), "floor"),
        ],
    )
    later = world.now + 8 * 86_400_000_000_000
    effects = node.on_timer(("releases", "slow"), later)
    return node.is_stale(later) and any(getattr(one, "code", "") == "releases-stale" for one in effects)


def freeze_over_reboots() -> bool:
    """A robot that is switched off every night and fed old news only still comes to know that they are old."""
    world = World(2, crypto=ModelCrypto())
    day_s = 86_400
    beat = world.keys.sign("heartbeat", Heartbeat(1, 1, 1_000_000_000).payload(), "heartbeat")
    world.publish(0, [signed_by(world, make_release())], b"model-bytes" * 1000)
    world.command(0, requests.Publish((beat.encode(),)))
    fresh = world.nodes[0].is_stale(world.now)
    for _ in range(20):  # Ten hours of flight a day, each life with a clock that begins anew.
        node, now_ns = world.build(0), 0
        world.perform(0, node.start(now_ns))
        while now_ns < 10 * 3_600 * 1_000_000_000:
            now_ns += 300 * 1_000_000_000
            world.perform(0, node.on_timer((releases.NAME, "slow"), now_ns))
    low_s = node.time_low_s(now_ns)
    return not fresh and node.is_stale(now_ns) and 1_000_000_000 + 7 * day_s < low_s < 1_000_000_000 + 9 * day_s


def revoked_voter() -> bool:
    """What a node has said of a release counts no more once it is revoked, and it is not heard again."""
    world = World(8, crypto=ModelCrypto())
    data = b"voted" * 2_000
    world.react = lambda at, detail: None  # type: ignore[method-assign]
    envelope = world.keys.sign("release", make_release(data).payload(), "release")
    order = rollout.ranks(envelope.digest, world.ids)
    liars = [at for at, node in enumerate(world.ids) if order[node] < 2]  # Its two canaries: enough to halt.
    world.publish(0, [envelope], data)
    world.run(5)
    lie = requests.TrialEnded(MODEL, envelope.digest, Verdict.FAIL, 5, 50, "lies")
    for at in liars:
        world.perform(at, world.nodes[at].on_command(lie, world.now))
    world.run(5)
    honest = [node for at, node in enumerate(world.nodes) if at not in liars]
    halted = [bool(node.halted(MODEL)) for node in honest]
    gone = frozenset(bytes(world.ids[at]) for at in liars)
    for at in range(world.count):
        if at not in liars:
            world.revoke(gone, at)
    world.run(10)
    after = [bool(node.halted(MODEL)) for node in honest]
    return all(halted) and not any(after) and not any(gone & set(node.book.participants(MODEL)) for node in honest)


def endless_data() -> bool:
    """A chunk longer than the manifest says is refused at once and blames its sender."""
    data = bytes(range(256)) * 64
    blob, hashes = describe(data, 4_096)
    parts = tuple(hashes[at : at + 32] for at in range(0, len(hashes), 32))
    swarm = BlobSwarm(blob, parts, 0, random.Random(1))
    peer = NodeId(b"p" * 16)
    asked = [one for one in swarm.on_tell(peer, swarm.everything, 0) if hasattr(one, "index")]
    index = asked[0].index  # type: ignore[union-attr]
    good, actions = swarm.on_chunk(peer, index, data[index * 4_096 :][:4_096] + b"more", 1)
    return not good and any(isinstance(one, Blame) for one in actions)


def fast_forward_by_leap() -> bool:
    """A version far above the floor would use the counter up; it never becomes the desired one."""
    state = State()
    chain_of(state, 2)
    state.add(signed(make_release(b"leap" * 2_000, 1 << 62, b"x" * 32)))
    return state.desired() == 2


def fast_forward_by_chain() -> bool:
    """A release must follow the one it names by exactly one."""
    state = State()
    digests = chain_of(state, 2)
    state.add(signed(make_release(b"skip" * 2_000, 900, digests[1])))
    return state.desired() == 2


def recovery_from_stolen_keys() -> bool:
    """A new epoch: what the stolen keys signed counts no more; the same bytes, signed anew, count again."""
    state = State()
    good = make_release(b"good" * 2_000, 1)
    state.add(signed(good))
    state.add(signed(make_release(b"evil" * 2_000, 2, signed(good).digest)))
    poisoned = KEYS.sign("floor", Floor(MODEL, 1, 1 << 60).payload(), "floor")
    state.add(poisoned)
    generations = {"release": 1, "floor": 1}
    second = KEYS.root(2, 2, roots.root_digest(state.chain.statements[0]), generations)
    state.chain.extend(second)
    state.entries = versions.judged(state.entries, state.chain)
    if state.desired() != 0:
        return False
    state.add(signed(good, generation=1))
    return state.desired() == 1


def mix_and_match() -> bool:
    """A bundle is all or nothing: with one file missing nothing is prepared."""
    world = World(2, crypto=ModelCrypto())
    first, second = b"model" * 2_000, b"labels" * 2_000
    one, _ = describe(first)
    two, _ = describe(second)
    bundle = (statements.BundleFile("labels.txt", "labels", two), statements.BundleFile("model.tflite", "model", one))
    release = replace(make_release(first), bundle=bundle)
    world.publish(0, [world.keys.sign("release", release.payload(), "release")], first)
    world.run(10)
    return not any(isinstance(detail, requests.Prepare) for _, detail in world.details)


def wrong_target() -> bool:
    """A release for other hardware or another runtime is not desired here, though it is newer."""
    state = State()
    digests = chain_of(state, 1)
    state.add(signed(make_release(b"orin" * 2_000, 2, digests[0], targets=Targets(arch=("x86_64",)))))
    return state.desired(FACTS) == 1


def key_below_threshold() -> bool:
    """One stolen release key of two signs nothing that counts."""
    state = State()
    try:
        state.add(signed(make_release(), count=1))
    except IdentityError:
        return state.desired() == 0
    return False


def revoke_key_only_removes() -> bool:
    """A stolen revoke key cannot sign a release."""
    state = State()
    try:
        state.add(KEYS.sign("release", make_release().payload(), "revoke", 3))
    except IdentityError:
        return True
    return False


def malicious_peer() -> bool:
    """A bad chunk blames exactly its sender, who is not asked again and still given what it lacks."""
    data = bytes(range(256)) * 64
    blob, hashes = describe(data, 4_096)
    parts = tuple(hashes[at : at + 32] for at in range(0, len(hashes), 32))
    swarm = BlobSwarm(blob, parts, 0, random.Random(1))
    liar, honest = NodeId(b"l" * 16), NodeId(b"h" * 16)
    actions = [*swarm.on_tell(liar, swarm.everything, 0), *swarm.on_tell(honest, swarm.everything, 0)]
    index = next(one.index for one in actions if getattr(one, "to", None) == liar and hasattr(one, "index"))
    good, after = swarm.on_chunk(liar, index, bytes(4_096), 1)
    blamed = [one.peer for one in after if isinstance(one, Blame)]
    after += swarm.on_tell(liar, swarm.everything, 2)
    for at_ns in range(3, 40 * 10**9, 10**9):
        after += swarm.on_tick(at_ns)
    return not good and blamed == [liar] and {one.to for one in after if isinstance(one, Ask)} == {honest}


def poisoned_cast() -> bool:
    """Pieces that any member may cast become no chunk unless they hash, and after a few such casts are not believed."""
    blob, hashes = describe(b"model" * 4_000)
    fetcher = Fetcher(random.Random(1), SwarmingConfig())
    fetcher.want(blob)
    fetcher.on_opened(requests.BlobOpened(blob, hashes, 0, False), 1)
    kept = []
    for number in range(blob.size // PIECE_BYTES):
        effects = fetcher.on_cast(Piece(blob.sha256[:8], number, bytes(PIECE_BYTES)), 1)
        kept += [one for one in effects if isinstance(one, Order)]
    return not kept and not fetcher.swarms[0].have and fetcher.casts.counts["bad_chunks"] > 0


def extraneous_dependency() -> bool:
    """The manifest is a closed world: unknown keys, paths out of the folder, a second model are refused."""
    value = msgspec.msgpack.decode(make_release().payload())
    value["plugin"] = "evil.so"
    try:
        parse_release(msgspec.msgpack.encode(value))
    except WireError:
        pass
    else:
        return False
    bad = replace(make_release(), bundle=(replace(make_release().bundle[0], path="../evil"),))
    try:
        parse_release(bad.payload())
    except WireError:
        return True
    return False


def replayed_manifest() -> bool:
    """The same statement again changes nothing."""
    state = State()
    envelope = signed(make_release())
    state.add(envelope)
    before = dict(state.entries)
    state.add(envelope)
    return state.entries == before


def poisoned_delta() -> bool:
    """A delta that makes something else than the signed digest is refused in the child."""
    old = bytes(range(256)) * 40
    new, evil = old[:5_000] + b"good" + old[5_000:], old[:5_000] + b"evil" + old[5_000:]
    delta = codec.make_all(old, evil)["blocks"]
    try:
        child.apply_in_child(old, delta, len(new), sha256(new).digest())
    except DeltaError:
        return True
    return False


def wrong_base() -> bool:
    """A delta for another base is refused before anything is made."""
    old, new = bytes(range(256)) * 40, bytes(range(255, -1, -1)) * 40
    delta = codec.make_all(old, new)["blocks"]
    try:
        codec.apply_delta(new, delta, len(new))
    except DeltaError as error:
        return "another base" in str(error)
    return False


def decompression_bomb() -> bool:
    """A few hundred bytes that would unpack to 200 MiB are refused within the child's limits."""
    import brotli

    old = bytes(1_000)
    bomb = brotli.compress(bytes(200 << 20), quality=5, lgwin=22)
    delta = codec._file("blocks", old, bytes(1_000), bomb)
    try:
        child.apply_in_child(old, delta, 1_000, sha256(bytes(1_000)).digest())
    except DeltaError as error:
        return "more than its signed" in str(error)
    return False


def publisher_equivocation() -> bool:
    """Two releases of one version: both blocked, on both sides of a healed partition, with an alarm."""
    world = World(4, crypto=ModelCrypto())
    world.partition({0, 1}, {2, 3})
    for at, data in ((0, b"left" * 2_000), (2, b"right" * 2_000)):
        world.publish(at, [world.keys.sign("release", make_release(data).payload(), "release")], data)
    world.run(1)
    world.partition()
    world.run(20)
    alarmed = {at for at, alarm in world.alarms if alarm.code == "release-equivocation"}
    return all(node.desired(MODEL) is None for node in world.nodes) and alarmed == {0, 1, 2, 3}


def root_equivocation() -> bool:
    """Two valid roots 2: stay with root 1, raise the alarm, never pick."""
    chain = KEYS.chain()
    previous = roots.root_digest(chain.statements[0])
    chain.extend(KEYS.root(2, 1, previous, {"release": 1}))
    chain.extend(KEYS.root(2, 1, previous, {"release": 2}))
    return chain.current.version == 1 and chain.is_forked


def root_by_new_keys_alone() -> bool:
    """Root N+1 needs the threshold of N and of N+1."""
    chain = KEYS.chain()
    previous = roots.root_digest(chain.statements[0])
    rotated = KEYS.root(2, 1, previous, {"root": 1}, signers=KEYS.seeds("root", 1)[:3])
    try:
        chain.extend(rotated)
    except IdentityError:
        return chain.current.version == 1
    return False


def sybil_votes() -> bool:
    """Votes of keys that nobody enrolled do not promote; one node has one vote."""
    crypto = ModelCrypto()
    nodes = [NodeId(bytes([index]) * 16) for index in range(4)]
    strangers = {NodeId(bytes([100 + index]) * 16): Verdict.PASS for index in range(50)}
    counted = rollout.standing(b"r" * 32, Rollout(), nodes, strangers)
    book = ReportBook()
    seed = b"s" * 32
    for sequence in range(1, 6):
        report = Report(
            crypto.public_key(seed), MODEL, sequence, b"", 0, 0, "passed", b"r" * 32, Verdict.PASS, 1, 1, ""
        )
        payload = report.payload()
        signature = crypto.sign(seed, signed_bytes("health", payload))
        envelope = Envelope("health", payload, ((key_id(crypto.public_key(seed)), signature),))
        book.add(SignedReport(envelope, reports.admit_report(envelope, crypto.verify)), {b"r" * 32})
    return not counted.promoted and counted.passes == 0 and len(book.verdicts(b"r" * 32)) == 1


def clock_push() -> bool:
    """A signed time far in the future moves the lower bound not at all."""
    return versions.advance_time_s(1_000_000, 60, 1 << 50) == 1_000_060


def report_suppression() -> bool:
    """Canaries that say nothing promote nothing, however long it takes."""
    world = World(8, crypto=ModelCrypto())
    world.react = lambda at, detail: None  # type: ignore[method-assign]
    data = b"quiet" * 2_000
    envelope = world.keys.sign("release", make_release(data).payload(), "release")
    world.publish(0, [envelope], data)
    world.run(60)
    release = world.nodes[0].view.models[MODEL].releases[envelope.digest]
    return not world.nodes[0].standing(MODEL, envelope.digest, release).promoted


def forged_report() -> bool:
    """A report is its node's own or nothing."""
    crypto = ModelCrypto()
    victim = crypto.public_key(b"v" * 32)
    report = Report(victim, MODEL, 1, b"", 0, 0, "failed", b"r" * 32, Verdict.FAIL, 1, 1, "")
    payload = report.payload()
    liar = crypto.sign(b"l" * 32, signed_bytes("health", payload))
    envelope = Envelope("health", payload, ((KeyId(key_id(victim)), liar),))
    try:
        reports.admit_report(envelope, crypto.verify)
    except IdentityError:
        return True
    return False


ATTACKS: dict[str, Callable[[], bool]] = {
    function.__name__: function
    for function in (
        arbitrary_software,
        threshold_by_one_key_twice,
        rollback,
        indefinite_freeze,
        freeze_over_reboots,
        endless_data,
        fast_forward_by_leap,
        fast_forward_by_chain,
        recovery_from_stolen_keys,
        mix_and_match,
        wrong_target,
        key_below_threshold,
        revoke_key_only_removes,
        malicious_peer,
        poisoned_cast,
        extraneous_dependency,
        replayed_manifest,
        poisoned_delta,
        wrong_base,
        decompression_bomb,
        publisher_equivocation,
        root_equivocation,
        root_by_new_keys_alone,
        sybil_votes,
        revoked_voter,
        clock_push,
        report_suppression,
        forged_report,
    )
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_beaten_off(attack: str) -> None:
    assert ATTACKS[attack]()


def test_roots_rotate_and_old_robots_walk_the_chain() -> None:
    chain = KEYS.chain()
    for version in range(2, 6):
        before = roots.root_digest(chain.statements[-1])
        generations = {"root": version // 2, "release": version}
        signers = KEYS.seeds("root", (version - 1) // 2)[:3] + KEYS.seeds("root", version // 2)[:3]
        if version == 2:
            signers = KEYS.seeds("root", 0)[:3] + KEYS.seeds("root", 1)[:3]
        chain.extend(KEYS.root(version, 1, before, generations, list(dict.fromkeys(signers))))
    sleeper = KEYS.chain()
    for statement in chain.statements[1:]:
        assert sleeper.extend(statement)
    assert sleeper.current.version == 5
    with pytest.raises(IdentityError, match="does not follow"):
        KEYS.chain().extend(chain.statements[3])


def test_a_root_of_another_fleet_is_refused() -> None:
    with pytest.raises(IdentityError, match="another fleet"):
        KEYS.chain().extend(Keys("others", ModelCrypto()).root())
    with pytest.raises(IdentityError):
        KEYS.chain().extend(b"nonsense")
