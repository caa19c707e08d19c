"""What one certified node can do to releases with its own key, and the bound that holds: votes, reports, floods.

Every attack is a function that returns True when it was beaten off; `tests/mutants/test_release_hostile_mutants.py`
removes each bound in turn and sees the attack of its row succeed.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Alarm, Order
from swarmd_protocols.ids import NodeId, short
from swarmd_protocols.releases import messages, reports, requests, rollout
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import AskList, ChunkList, Have, Push, decode_message, encode_message
from swarmd_protocols.releases.peer_limits import FILES_MUTE_NS
from swarmd_protocols.releases.reports import Report, ReportBook, SignedReport, Verdict
from swarmd_protocols.releases.statements import Floor, Rollout
from swarmd_protocols.releases.stores import MemoryStore, carry_out, describe
from swarmd_protocols.releases.swarm_actions import Ask, Give, Tell
from swarmd_protocols.releases.swarming import BlobSwarm, SwarmingConfig
from swarmd_protocols.subprotocol import Send, SubEffect
from swarmd_protocols.trust.envelopes import Envelope, KeyId, key_id, signed_bytes
from tests.support.release_world import MODEL, World, make_release

pytestmark = pytest.mark.slow

DATA = [bytes([version]) * 9_000 for version in range(8)]


class CountingCrypto(ModelCrypto):
    """Counts what is verified."""

    def __init__(self) -> None:
        super().__init__()
        self.verified = 0

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        self.verified += 1
        return super().verify(public_key, message, signature)


def release(world: World, version: int, previous: bytes = b"") -> Envelope:
    return world.keys.sign("release", make_release(DATA[version], version, previous).payload(), "release")


def publish(world: World, envelope: Envelope, version: int) -> None:
    world.publish(0, [envelope], DATA[version])


def said(world: World, at: int, about: bytes, verdict: Verdict, sequence: int, model: str = MODEL) -> bytes:
    """A node's report, well signed with its own key, whatever is true."""
    public = world.crypto.public_key(world.seeds[at])
    payload = Report(public, model, sequence, b"", 0, 0, "failed", about, verdict, 1, 1, "x").payload()
    signature = world.crypto.sign(world.seeds[at], signed_bytes("health", payload))
    return Envelope("health", payload, ((KeyId(key_id(public)), signature),)).encode()


def give(world: World, thief: int, data: list[bytes]) -> None:
    """The thief pushes its reports to every other node, over half a minute."""
    for begin in range(0, len(data), 100):
        push = encode_message(Push((), (), tuple(data[begin : begin + 100])))
        for at in range(world.count):
            if at != thief:
                world.perform(at, world.nodes[at].on_message(world.ids[thief], push, world.now))
        world.run(0.3)


def ranked(world: World, digest: bytes) -> list[int]:
    """Nodes in the order in which they try a release."""
    order = rollout.ranks(digest, world.ids)
    return sorted(range(world.count), key=lambda at: order[world.ids[at]])


def promoted(count: int = 8) -> tuple[World, Envelope]:
    """A fleet that runs version 2, long promoted."""
    world = World(count, crypto=ModelCrypto())
    first = release(world, 1)
    publish(world, first, 1)
    world.run(120, lambda: world.versions() == [1] * count)
    second = release(world, 2, first.digest)
    publish(world, second, 2)
    world.run(120, lambda: world.versions() == [2] * count)
    world.run(20)
    assert world.versions() == [2] * count
    return world, second


# --- Votes ------------------------------------------------------------------------------------------------------------


def one_fail_vote() -> bool:
    """The first canary's key is stolen: one FAIL stops neither a rollout nor what runs."""
    world, second = promoted()
    third = release(world, 3, second.digest)
    thief = ranked(world, third.digest)[0]
    world.healthy = lambda at, digest: at != thief
    publish(world, third, 3)
    world.run(1)
    give(world, thief, [said(world, thief, third.digest, Verdict.FAIL, 10**6)])
    world.run(200)
    return [version for at, version in enumerate(world.versions()) if at != thief] == [3] * 7


def fails_after_promotion() -> bool:
    """Keys enough to halt a rollout that is under way take back nothing that is promoted, also after a restart."""
    world, second = promoted()
    thieves = ranked(world, second.digest)[:3]
    victim = next(at for at in range(8) if at not in thieves)
    world.nodes[victim] = world.build(victim)
    world.due[victim].clear()
    world.perform(victim, world.nodes[victim].start(world.now))
    world.meet()
    world.command(victim, requests.Running(MODEL, second.digest))
    for thief in thieves:
        give(world, thief, [said(world, thief, second.digest, Verdict.FAIL, 10**6)])
    world.run(30)
    return world.versions() == [2] * 8


def fails_at_the_floor() -> bool:
    """A node that has seen no rollout trusts the floor keys: no verdict touches what stands at the floor."""
    world, second = promoted()
    publish_floor = world.keys.sign("floor", Floor(MODEL, 1, 2).payload(), "floor")
    world.publish(0, [publish_floor])
    world.run(5)
    thieves = ranked(world, second.digest)[:3]
    for thief in thieves:
        give(world, thief, [said(world, thief, second.digest, Verdict.FAIL, 10**6)])
    newcomer = next(node for at, node in enumerate(world.nodes) if at not in thieves)
    newcomer.policy._promoted.clear()  # It has seen no promotion with its own eyes.
    newcomer.policy._standings.clear()
    return not newcomer.halted(MODEL)


def fails_of_those_not_due() -> bool:
    """Nodes whose turn is not near have nothing to say about a stage that is open."""
    nodes = [NodeId(bytes([at]) * 16) for at in range(40)]
    order = rollout.ranks(b"r" * 32, nodes)
    verdicts = {node: Verdict.FAIL for node in nodes if order[node] >= 4}
    return not rollout.standing(b"r" * 32, Rollout(), nodes, verdicts).halted


def a_bad_release_is_halted() -> bool:
    """The other side: when the canaries really fail, the fleet stays as it is, though a thief says PASS."""
    world, second = promoted()
    third = release(world, 3, second.digest)
    world.healthy = lambda at, digest: digest != third.digest
    thief = ranked(world, third.digest)[2]
    publish(world, third, 3)
    world.run(1)
    give(world, thief, [said(world, thief, third.digest, Verdict.PASS, 10**6)])
    world.run(120)
    tried = sum(third.digest in tries for tries in world.tried)
    return world.versions() == [2] * 8 and tried <= 4 and all(node.halted(MODEL) for node in world.nodes)


def vote_table_full() -> bool:
    """Verdicts on what nobody published fill nothing: the real ones find their place, a bad release is halted."""
    world = World(6, crypto=ModelCrypto())
    thief = 5
    give(world, thief, [said(world, thief, at.to_bytes(32, "big"), Verdict.PASS, at) for at in range(1, 2_000)])
    rows = max(len(node.book.votes) for node in world.nodes)
    first = release(world, 1)
    world.healthy = lambda at, digest: False
    publish(world, first, 1)
    world.run(200)
    return rows == 0 and all(node.halted(MODEL) for node in world.nodes) and not any(world.versions())


def models_nobody_has() -> bool:
    """Reports on invented models take an author's own few rows, and no other's."""
    world = World(4, crypto=ModelCrypto())
    give(world, 3, [said(world, 3, b"", Verdict.NONE, at, f"invented-{at}") for at in range(600)])
    books = [node.book for node in world.nodes[:3]]
    mine = max(sum(node == world.ids[3] for node, _ in book.statuses) for book in books)
    return mine <= 4 and all(len(book.participants(MODEL)) >= 3 for book in books)


def verdicts_without_end() -> bool:
    """One author's rows are bounded although every release counts."""
    book, world = ReportBook(), World(1, crypto=ModelCrypto())
    known = {at.to_bytes(32, "big") for at in range(600)}
    for at, digest in enumerate(sorted(known)):
        envelope = reports.decode_report(said(world, 0, digest, Verdict.PASS, at + 1), world.crypto.verify)
        book.add(envelope, known)
    return len(book.votes) <= 256


# --- Floods -----------------------------------------------------------------------------------------------------------


def report_flood() -> bool:
    """What a push costs is bounded for one event and for a second, and the peer that costs more is named."""
    crypto = CountingCrypto()
    world = World(3, crypto=crypto)
    world.run(2)
    flood = [said(world, 2, b"", Verdict.NONE, at + 10) for at in range(2_000)]
    pushes = [encode_message(Push((), (), tuple(flood)))]
    pushes += [encode_message(Push((), (), tuple(flood[at : at + 60]))) for at in range(0, 1_800, 60)] * 5
    most = total = 0
    for push in pushes:
        before = crypto.verified
        world.perform(0, world.nodes[0].on_message(world.ids[2], push, world.now))
        most, total = max(most, crypto.verified - before), total + crypto.verified - before
        world.now += 2_000_000_000 if push is pushes[0] else 10_000_000
    named = [alarm for at, alarm in world.alarms if at == 0 and short(world.ids[2]) in alarm.text]
    return most <= 64 and total <= 4_096 + 4 * 400 and len(named) == 1


def question_flood() -> bool:
    """A question of 20 bytes is not answered with the whole catalogue for ever."""
    world, _ = promoted()
    question = encode_message(Have(0, b"", b"", reply=True))
    answered = sum(
        len(effect.payload)
        for _ in range(5_000)
        for effect in world.nodes[0].on_message(world.ids[1], question, world.now)
        if isinstance(effect, Send)
    )
    return 0 < answered <= 100_000


def swarm_of(data: bytes = bytes(range(256)) * 256) -> BlobSwarm:
    blob, hashes = describe(data, 4_096)
    parts = tuple(hashes[at : at + 32] for at in range(0, len(hashes), 32))
    return BlobSwarm(blob, parts, (1 << blob.chunk_count) - 1, random.Random(1))


def chunk_asked_again_and_again() -> bool:
    """One chunk is on its way to a neighbour at a time; asking a thousand times sends no second."""
    swarm, peer = swarm_of(), NodeId(b"p" * 16)
    swarm.on_tell(peer, 0, 0)
    gives = [
        action for at in range(1_000) for action in swarm.on_ask(peer, at % 3, at * 1_000) if isinstance(action, Give)
    ]
    return len(gives) == 1


def takers_that_give_nothing() -> bool:
    """Two members take a chunk of a super-seeder and pass it on to nobody: the third is shown it all the same."""
    swarm = swarm_of()
    swarm.super_seed = True
    takers, honest = (NodeId(b"p" * 16), NodeId(b"q" * 16)), NodeId(b"r" * 16)
    shown = {honest: 0}
    for node in (*takers, honest):
        for action in swarm.on_tell(node, 0, 0):
            if isinstance(action, Tell):
                shown[action.to] = action.mask
    taken = shown[takers[0]]
    for taker in takers:
        swarm.on_tell(taker, swarm.everything, 1)
    swarm.on_tell(honest, swarm.everything & ~taken, 2)
    for tick in range(1, 100):
        for action in swarm.on_tick(tick * 100_000_000):
            if isinstance(action, Tell):
                shown[action.to] = action.mask
    return taken.bit_count() == 1 and bool(shown[honest] & taken)


def chunks_told_and_taken_back() -> bool:
    """A neighbour that shows everything, then nothing, then everything costs one such change in ten seconds."""
    return all(_told_and_taken_back(held) for held in (1, 250))


def _told_and_taken_back(held: int) -> bool:
    """It shows everything once, and then `held` times nothing, a millisecond each."""
    swarm, peer = swarm_of(), NodeId(b"p" * 16)
    swarm.have = 0
    said: list[object] = []
    for at in range(1_000):
        mask = 0 if at % (held + 1) else swarm.everything
        said += swarm.on_tell(peer, mask, at * 1_000_000)
    asked = sum(isinstance(one, Ask) for one in said)
    return asked <= 2 and len(said) <= 6 and swarm.useless > 900 - 1_000 // (held + 1)


def flooded(message: messages.BlobMessage, count: int) -> tuple[Fetcher, NodeId, list[SubEffect]]:
    store, peer = MemoryStore(), NodeId(b"p" * 16)
    fetcher = Fetcher(random.Random(1), SwarmingConfig())
    for order in fetcher.provide(store.put_blob(b"model" * 100_000), False):
        assert isinstance(order, Order)
        for answer in carry_out(store, order.request):  # type: ignore[arg-type]
            if isinstance(answer, requests.BlobOpened):
                fetcher.on_opened(answer, 0)
    fetcher.on_peers([peer], 0)
    effects = [effect for at in range(count) for effect in fetcher.on_message(peer, message, at * 100_000)]
    return fetcher, peer, effects


def list_flood() -> bool:
    """The list of a file's chunks is sent once a second, and who floods is named, not heard, and heard again later."""
    tag = describe(b"model" * 100_000)[0].sha256[:8]
    fetcher, peer, effects = flooded(AskList(tag), 2_000)
    lists = [one for one in effects if isinstance(one, Send) and isinstance(decode_message(one.payload), ChunkList)]
    named = [one for one in effects if isinstance(one, Alarm) and short(peer) in one.text]
    again = fetcher.on_message(peer, AskList(tag), 2 * FILES_MUTE_NS)
    return len(lists) == 1 and len(named) == 1 and len(again) == 1


def words_about_unknown_files() -> bool:
    """Words about files that nobody here knows are dropped, and who sends only those is not heard for a while."""
    fetcher, peer, effects = flooded(AskList(b"unknown!"), 2_000)
    return len([one for one in effects if isinstance(one, Alarm)]) == 1 and fetcher._limits.is_muted(peer, 200_000_000)


ATTACKS: dict[str, Callable[[], bool]] = {
    function.__name__: function
    for function in (
        one_fail_vote,
        fails_after_promotion,
        fails_at_the_floor,
        fails_of_those_not_due,
        a_bad_release_is_halted,
        vote_table_full,
        models_nobody_has,
        verdicts_without_end,
        report_flood,
        question_flood,
        chunk_asked_again_and_again,
        takers_that_give_nothing,
        chunks_told_and_taken_back,
        list_flood,
        words_about_unknown_files,
    )
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_beaten_off(attack: str) -> None:
    assert ATTACKS[attack]()


# --- Laws -------------------------------------------------------------------------------------------------------------

verdicts = st.sampled_from(list(Verdict))


@settings(max_examples=200, deadline=None)
@given(st.integers(3, 60), st.data())
def test_one_node_alone_halts_nothing_whatever_it_and_the_others_say(count: int, data: st.DataObject) -> None:
    nodes = [NodeId(bytes([at]) * 16) for at in range(count)]
    thief = data.draw(st.sampled_from(nodes))
    honest = {node: data.draw(st.sampled_from([Verdict.NONE, Verdict.PASS])) for node in nodes}
    rules = Rollout((5, 25, 100), 2, data.draw(st.integers(0, 3)))
    for word in Verdict:
        assert not rollout.standing(b"d" * 32, rules, nodes, {**honest, thief: word}).halted


@settings(max_examples=200, deadline=None)
@given(st.integers(3, 60), st.data())
def test_a_halt_stands_whatever_else_is_said(count: int, data: st.DataObject) -> None:
    nodes = [NodeId(bytes([at]) * 16) for at in range(count)]
    said_of = {node: data.draw(verdicts) for node in nodes}
    more = {node: max(word, data.draw(verdicts)) for node, word in said_of.items()}
    if rollout.standing(b"d" * 32, Rollout(), nodes, said_of).halted:
        assert rollout.standing(b"d" * 32, Rollout(), nodes, more).halted


def _signed(node: int, sequence: int, verdict: Verdict, about: int, model: int) -> SignedReport:
    crypto = ModelCrypto()
    public = crypto.public_key(bytes([node]) * 32)
    digest = about.to_bytes(32, "big")
    payload = Report(public, f"model-{model}", sequence, b"", 0, 0, "idle", digest, verdict, 1, 1, "").payload()
    signature = crypto.sign(bytes([node]) * 32, signed_bytes("health", payload))
    return reports.decode_report(Envelope("health", payload, ((key_id(public), signature),)).encode(), crypto.verify)


words = st.builds(_signed, st.integers(1, 3), st.integers(1, 5), verdicts, st.integers(0, 8), st.integers(0, 7))


@settings(max_examples=150, deadline=None)
@given(st.lists(words, max_size=40), st.sets(st.integers(0, 8)), st.randoms(use_true_random=False))
def test_the_book_is_the_same_whatever_the_order_also_where_it_is_cut(
    all_words: list[SignedReport], counting: set[int], rng: random.Random
) -> None:
    known = {about.to_bytes(32, "big") for about in counting}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "MAX_VOTES_PER_NODE", 3)
        patch.setattr(reports, "MAX_STATUSES_PER_NODE", 2)
        one, other = ReportBook(), ReportBook()
        for word in all_words:
            one.add(word, known)
        shuffled = [*all_words, *all_words]
        rng.shuffle(shuffled)
        for word in shuffled:
            other.add(word, known)
    assert one.statuses == other.statuses
    assert one.votes == other.votes
