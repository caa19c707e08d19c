"""Attacks on the fleet's trust through the real node, releases and fleet folder: none has its effect."""

import contextlib
from itertools import permutations

import msgspec
import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.effects import Alarm, Command, MemberState
from swarmd_protocols.errors import IdentityError, StateError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases import versions
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.statements import Floor, Heartbeat, Revoke
from swarmd_protocols.swim.messages import PingReq, Statement
from swarmd_protocols.trust.envelopes import Envelope, decode_envelope, merge_signatures, sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds, enrol
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.requests import AddStatement
from swarmd_protocols.trust.roots import Root, RootChain, make_root, mark, next_root, root_digest
from swarmd_protocols.trust.trust import TRUST_JOURNAL, Trust
from tests.support.fleet_net import FleetNet, fleet_folder
from tests.support.release_world import MODEL, Keys, World, make_release
from tests.support.swim_net import SECRET, Net, S
from tests.support.swim_thief import Thief
from tests.support.trust_history import CRYPTO as MODEL_CRYPTO
from tests.support.trust_history import FIRST, NODES, SECOND, SWARM, Hearer, certificate, node, say

CRYPTO = NaClCrypto()
ALIVE = MemberState.ALIVE


def test_new_revoke_keys_let_nobody_in_again() -> None:
    """A stolen node stays out when the revoke keys are replaced, planned or stolen, also after every node restarted."""
    for stolen in (False, True):
        with fleet_folder() as fleet:
            net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(4)])
            net.run(5)
            thief = net.identities[3].node
            fleet.revoke("farm", [thief], "stolen")
            fleet.rotate("farm")
            net.push(0)
            net.run(5)
            fleet.change_role("revoke", 1, 2, stolen=stolen)
            net.push(0)
            net.run(5)
            assert [net.trust(index).root.version for index in range(3)] == [2, 2, 2]
            for index in range(3):
                net.restart(index)
                net.run(5)
            net.restart(3)
            net.run(10)
            newest = max(net.trust(0).group_keys)
            for index in range(3):
                assert net.trust(index).revoked == {thief}
                assert net.seen(index, "n003") is None
                assert [net.seen(index, f"n00{other}") for other in range(3)] == [ALIVE] * 3
            assert newest not in net.trust(3).group_keys


def test_new_enrol_keys_shut_out_whom_the_stolen_ones_let_in() -> None:
    """The next root names the certificates that are right: nobody has to be enrolled again, and the rogue is out."""
    with fleet_folder() as fleet:
        identities = [fleet.enrol(f"n{index:03d}", "farm") for index in range(3)]
        old = identities[0]
        stolen_key = fleet.seeds("enrol")
        rogue = enrol(b"R" * 32, "n003", "farm", old.roots, old.group_keys, stolen_key, CRYPTO)
        ghost = enrol(b"G" * 32, "n001", "farm", old.roots, old.group_keys, stolen_key, CRYPTO, counter=1 << 60)
        net = FleetNet(fleet, [*identities, rogue])
        net.run(5)
        assert [net.seen(index, "n003") for index in range(3)] == [ALIVE] * 3
        fleet.change_role("enrol", 1, 1, stolen=True)
        fleet.rotate("farm")
        net.push(0)
        net.run(30)
        for index in range(3):
            assert net.seen(index, "n003") is None
            assert [net.seen(index, f"n00{other}") for other in range(3)] == [ALIVE] * 3
            assert net.trust(index).certified(rogue.node) is None
            assert not net.trust(index).holds(ghost.certificate), "a certificate of the stolen key replaces nobody's"
        assert max(net.trust(0).group_keys) not in net.trust(3).group_keys
        for index in range(4):
            net.restart(index)
            net.run(5)
        assert [net.seen(index, "n003") for index in range(3)] == [None] * 3


def test_a_stolen_enrol_key_that_outdoes_every_certificate_leaves_nobody_alone() -> None:
    """It signs each member's own key anew, under a number far ahead; with the key that falls, and what it replaced is
    back, on nodes that went on running too."""
    with fleet_folder() as fleet:
        identities = [fleet.enrol(f"n{index:03d}", "farm") for index in range(3)]
        stolen_key = fleet.seeds("enrol")
        net = FleetNet(fleet, identities)
        net.run(5)
        for identity in identities:
            far = msgspec.structs.replace(identity.claims(), counter=1 << 60)
            net.feed(0, Command("node", AddStatement("node", sign_statement("node", far, stolen_key, CRYPTO))))
        net.run(5)
        assert net.trust(1).certified(identities[2].node).counter == 1 << 60  # type: ignore[union-attr]
        fleet.change_role("enrol", 1, 1, stolen=True)
        fleet.rotate("farm")
        net.push(0)
        net.run(120)
        for index in range(3):
            assert net.trust(index).why_out(identities[index].node) == ""
            assert [net.seen(index, f"n00{other}") for other in range(3)] == [ALIVE] * 3
            assert net.trust(index).root.version == 2


def test_a_removal_that_the_root_names_is_not_displaced_by_one_that_falls() -> None:
    """Holders of replaced keys sign beside the new ones: when those are replaced too, the first is still there."""
    keys = Keys("fleet", ModelCrypto())
    release = keys.sign("release", make_release(b"a" * 5000, 1).payload(), "release")
    first = keys.sign("model-revoke", Revoke(MODEL, 1, release.digest, "bad", 0).payload(), "revoke")
    texts = (Revoke(MODEL, 1, release.digest, "bad", at).payload() for at in range(1, 100))
    second = next(
        one for text in texts if (one := keys.sign("model-revoke", text, "revoke", generation=1)).digest > first.digest
    )
    by_old_keys = keys.sign("model-revoke", second.payload, "revoke", 3)

    def stands(*statements: Envelope) -> bool:
        chain = keys.chain()
        state: dict[bytes, versions.Entry] = {}
        for generation in (1, 2):
            link = chain.current.envelope.digest
            chain.extend(keys.root(generation + 1, 1, link, {"revoke": generation}, kept=[mark(first)]))
            state = versions.judged(state, chain)
            for one in statements if generation == 1 else ():
                state = versions.join(state, {one.digest: versions.admit(one, chain)}, chain.current.kept)
        return first.digest in state

    assert stands(release, first, second)
    assert stands(release, first, merge_signatures(second, by_old_keys))


def test_a_name_enrolled_again_leaves_its_old_key_nowhere() -> None:
    with fleet_folder() as fleet:
        base, old, new = (fleet.enrol(name, "farm") for name in ("base", "drone-1", "drone-1"))
        net = FleetNet(fleet, [base, old, new])
        net.run(10)
        held = [(view.name, view.node) for view in net.hosts[0].node.members()]
        assert held == [("base", base.node), ("drone-1", new.node)]
        assert net.trust(0).certified(old.node) is None
        net.restart(0)
        net.run(10)
        assert [(view.name, view.node) for view in net.hosts[0].node.members()] == held


def test_a_member_cannot_take_signatures_away() -> None:
    """Each signature zeroed once, pushed by a member: floor, revocation and release stay as they were signed."""
    world = World(5, crypto=ModelCrypto())
    first = world.keys.sign("release", make_release(b"\x01" * 9000, 1).payload(), "release")
    world.publish(0, [first], b"\x01" * 9000)
    world.run(120)
    second = world.keys.sign("release", make_release(b"\x02" * 9000, 2, first.digest).payload(), "release", 3)
    world.publish(0, [second], b"\x02" * 9000)
    world.run(200)
    floor = world.keys.sign("floor", Floor(MODEL, 1, 2).payload(), "floor", 3)
    revoked = world.keys.sign("model-revoke", Revoke(MODEL, 1, first.digest, "vulnerable", 5).payload(), "revoke", 2)
    world.publish(0, [floor, revoked])
    world.run(20)
    before = [dict(node.statements.entries) for node in world.nodes]
    for envelope in (floor, revoked, second):
        for at in range(len(envelope.signatures)):
            pairs = tuple((key, bytes(64) if i == at else one) for i, (key, one) in enumerate(envelope.signatures))
            push = encode_message(Push((), (Envelope(envelope.kind, envelope.payload, pairs).encode(),), ()))
            world.perform(0, world.nodes[0].on_message(world.ids[4], push, world.now))
            world.run(1)
    assert [dict(node.statements.entries) for node in world.nodes] == before
    assert world.versions() == [2] * 5


class Desk:
    """Statements of one fleet as one node holds them."""

    def __init__(self, *roots: tuple[int, int, dict[str, int]]) -> None:
        self.keys = Keys("fleet", ModelCrypto())
        self.chain: RootChain = self.keys.chain()
        for version, epoch, generations in roots:
            self.chain.extend(self.keys.root(version, epoch, self.chain.current.envelope.digest, generations))
        self.state: dict[bytes, versions.Entry] = {}

    def add(self, envelope: Envelope) -> bool:
        try:
            entry = versions.admit(envelope, self.chain, self.state.get(envelope.digest))
        except IdentityError:
            return False
        self.state = versions.join(self.state, {envelope.digest: entry})
        return True

    @property
    def desired(self) -> int | None:
        found = versions.desired(versions.view_of(self.state, self.chain), MODEL)
        return found and found[1].version


def test_replaced_floor_keys_erase_no_floor() -> None:
    desk = Desk((2, 2, {"release": 1, "floor": 1}))
    previous = b""
    for version in (1, 2, 3):
        release = make_release(bytes([version]) * 5000, version, previous, epoch=2)
        envelope = desk.keys.sign("release", release.payload(), "release", generation=1)
        previous = envelope.digest
        assert desk.add(envelope)
    assert desk.add(desk.keys.sign("floor", Floor(MODEL, 2, 3).payload(), "floor", generation=1))
    assert desk.add(desk.keys.sign("model-revoke", Revoke(MODEL, 2, previous).payload(), "revoke"))
    assert desk.desired is None
    assert not desk.add(desk.keys.sign("floor", Floor(MODEL, 2, 1 << 60).payload(), "floor", generation=0))
    assert desk.desired is None


def test_a_flood_of_one_revoke_key_lets_nothing_in_again() -> None:
    desk = Desk()
    first = desk.keys.sign("release", make_release(b"a" * 5000, 1).payload(), "release")
    bad = desk.keys.sign("release", make_release(b"bad" * 5000, 2, first.digest).payload(), "release")
    genuine = desk.keys.sign("model-revoke", Revoke(MODEL, 1, bad.digest, "bad", 1).payload(), "revoke")
    assert all(map(desk.add, (first, bad, genuine)))
    greater = 0
    for number in range(1_000):
        flood = Revoke(MODEL, 1, number.to_bytes(32, "big"), "", 1).payload()
        signed = desk.keys.sign("model-revoke", flood, "revoke", 1)
        if signed.digest > genuine.digest and greater < 70:
            greater += desk.add(signed)
    assert desk.desired == 1
    for number in range(70):  # Invented models push no real one out.
        flood = Revoke(f"0{number:02}", 1, bytes(32)).payload()
        desk.add(desk.keys.sign("model-revoke", flood, "revoke", 1))
    assert desk.desired == 1


def test_replaced_revoke_keys_push_no_model_out() -> None:
    desk = Desk((2, 2, {"release": 1, "floor": 1, "revoke": 1}))
    release = make_release(b"a" * 5000, 1, epoch=2)
    assert desk.add(desk.keys.sign("release", release.payload(), "release", generation=1))
    for number in range(64):
        flood = Revoke(f"0{number:02}", 2, bytes(32)).payload()
        assert not desk.add(desk.keys.sign("model-revoke", flood, "revoke", 1, generation=0))
    assert desk.desired == 1
    assert list(versions.view_of(desk.state, desk.chain).models) == [MODEL]


def test_two_group_keys_of_one_number_are_chosen_alike() -> None:
    """Two desks drew one number: every node ends with the same key, and the operator of the other is told."""
    one, other = (say("group", GroupKey(SWARM, 5, bytes([key]) * 32), 0) for key in (1, 2))
    nodes = [Hearer().hear(order) for order in ((one, other), (other, one))]
    assert nodes[0].trust.group_keys == nodes[1].trust.group_keys
    lower = next(item for item in (one, other) if item[1] not in dict(nodes[0].trust.statements()).values())
    with pytest.raises(IdentityError, match="draw a new one"):
        nodes[0].trust.add(*lower)


def test_an_operator_is_told_of_a_group_key_that_does_not_win() -> None:
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol("a", "farm")])
        counter = 1 + max(net.trust(0).group_keys)
        drawn = [GroupKey("farm", counter, bytes([key]) * 32) for key in (1, 2)]
        signed = [sign_statement("group", key, fleet.seeds("enrol"), CRYPTO) for key in drawn]
        lower, higher = sorted(signed, key=lambda one: decode_envelope(one).digest)
        net.feed(0, Command("node", AddStatement("group", higher)))
        with pytest.raises(StateError, match="two desks"):
            net.feed(0, Command("node", AddStatement("group", lower)))
        assert len(net.trust(0).group_keys) == 2


def test_a_release_withheld_beside_a_passed_heartbeat_is_missed() -> None:
    """A heartbeat names the newest release of every model: who passes it on cannot keep one of them back unseen."""
    world = World(2, crypto=ModelCrypto())
    here = world.keys.sign("release", make_release(b"\x01" * 9000, 1).payload(), "release")
    other = make_release(b"\x02" * 9000, 1, model="other")
    kept_back = world.keys.sign("release", other.payload(), "release")
    world.publish(0, [here], b"\x01" * 9000)
    for number, named in enumerate(([here], [here, kept_back])):
        beat = Heartbeat(1, number + 1, 0, tuple(sorted(map(mark, named)))).payload()
        world.publish(0, [world.keys.sign("heartbeat", beat, "heartbeat")])
        world.run(900)
        missed = [alarm for _, alarm in world.alarms if alarm.code == "releases-withheld"]
        assert len(missed) == (2 if kept_back in named else 0), "one alarm of each node, once"
    world.publish(0, [kept_back], b"\x02" * 9000)
    world.run(60)
    assert not any(node.view.withheld for node in world.nodes)


def test_a_fallen_heartbeat_key_uses_no_number_up() -> None:
    """Replaced keys count no more, so the numbers that they leapt to are free again, without a new epoch."""
    desk = Desk()
    assert desk.add(desk.keys.sign("heartbeat", Heartbeat(1, (1 << 63) - 1).payload(), "heartbeat"))
    desk.chain.extend(desk.keys.root(2, 1, desk.chain.current.envelope.digest, {"heartbeat": 1}))
    desk.state = versions.judged(desk.state, desk.chain)
    assert desk.add(desk.keys.sign("heartbeat", Heartbeat(1, 5).payload(), "heartbeat", generation=1))
    assert not desk.add(desk.keys.sign("heartbeat", Heartbeat(1, (1 << 63) - 1).payload(), "heartbeat"))
    assert versions.view_of(desk.state, desk.chain).heartbeat == (1, 5)


def test_a_group_key_that_outruns_its_revocation_reaches_no_thief() -> None:
    """Gossip has no order: a node that has heard of the new key alone does not take it, and so cannot hand it on."""
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(4)])
        net.run(5)
        fleet.revoke("farm", [net.identities[3].node], "stolen")
        key = fleet.rotate("farm")
        with pytest.raises(StateError, match="not known here; hand it over first"):
            net.feed(0, Command("node", AddStatement("group", key.data)))
        net.run(5)
        assert [len(net.trust(index).group_keys) for index in range(4)] == [1] * 4
        net.push(0)
        net.run(5)
        assert [len(net.trust(index).group_keys) for index in range(4)] == [2, 2, 2, 1]


def test_an_answer_that_falls_due_after_a_thief_was_shut_out_takes_it_no_group_key() -> None:
    """A thief asks a member to ping a silent one: by the time of the nack, the new key rides in the member's frames."""
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(4)])
        net.run(5)
        thief = net.hosts[3].node
        asked = thief._core.table.by_node[net.identities[0].node]
        net.kill(1)
        for sequence in (1, 2):
            thief._wire.effects = []
            thief._wire.push(asked, [encode(PingReq(sequence, net.identities[1].node))])
            net.perform(net.hosts[3], thief._wire.effects)
        net.run(0.15)  # The nacks fall due in 10 ms, while the key waits for its turn among the news.
        fleet.revoke("farm", [net.identities[3].node], "stolen")
        fleet.rotate("farm")
        net.push(0)
        net.run(5)
        assert [len(net.trust(index).group_keys) for index in (0, 2, 3)] == [2, 2, 1]


def test_a_journal_forgets_what_no_longer_counts() -> None:
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(3)])
        net.run(5)
        fleet.revoke("farm", [net.identities[2].node], "stolen")
        net.push(0)
        net.run(2)
        net.restart(0)
        net.run(2)
        kept = [key for key in net.hosts[0].journal if key.startswith(TRUST_JOURNAL + b"seen/")]
        assert len(kept) == 2, "of the other two; its own comes with its identity"
        assert sum(key.startswith(TRUST_JOURNAL + b"revoke/") for key in net.hosts[0].journal) == 1
        for _ in range(3):
            fleet.change_role("enrol", 1, 1, stolen=True)
        net.push(0)
        net.run(2)
        net.restart(0)
        net.run(2)
        assert sum(key.startswith(TRUST_JOURNAL) for key in net.hosts[0].journal) <= 3 + 1 + 2 + 3


def test_a_revoked_key_leaves_its_name_to_whoever_is_enrolled_later_and_to_nobody_before() -> None:
    """To free the name for any number would bring the key back that the revoked one had replaced."""
    keys = {word: NodeId(node_id_of(MODEL_CRYPTO.public_key(node(word)))) for word in ("old", "lost", "new")}
    told = {
        word: say("node", certificate("drone", node(word), number), 0)
        for word, number in (("old", 5), ("lost", 6), ("new", 7))
    }
    out = say("revoke", Revocation(SWARM, 1, (keys["lost"],), "lost"), 0)
    for order in permutations((told["old"], told["lost"], out)):
        trust = Trust(SWARM, [FIRST[1]], MODEL_CRYPTO)
        for statement in order:
            trust.add(*statement)
        assert [trust.certified(key) for key in keys.values()] == [None, None, None]
        trust.add(*told["new"])
        assert trust.certified(keys["new"]) is not None
        assert trust.certified(keys["old"]) is None


def test_a_number_far_ahead_blocks_a_name_until_its_enrol_key_is_replaced() -> None:
    """Only whoever holds the enrol keys can say it, in any order; then the name is its owner's again."""
    keys = {word: NodeId(node_id_of(MODEL_CRYPTO.public_key(node(word)))) for word in ("a", "rogue", "again")}
    far = say("node", certificate("a", node("rogue"), (1 << 63) - 1), 0)
    later = [say("node", certificate("a", node("again"), 11), generation) for generation in (0, 1)]
    for order in permutations((NODES[0], far, later[0])):
        trust = Trust(SWARM, [FIRST[1]], MODEL_CRYPTO)
        for statement in order:
            trust.add(*statement)
        assert [trust.certified(key) is not None for key in keys.values()] == [False, True, False]
        trust.add(*SECOND)
        assert [trust.certified(key) is not None for key in keys.values()] == [True, False, False]
        trust.add(*later[1])
        assert [trust.certified(key) is not None for key in keys.values()] == [False, False, True]
        with pytest.raises(IdentityError):
            trust.add(*far)


def test_what_is_read_out_of_a_damaged_record_is_written_again() -> None:
    """A revocation with one signature spoilt still counts: it must not be deleted as damaged and then be gone."""
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol("a", "farm")])
        net.run(1)
        fleet.revoke("farm", [NodeId(b"x" * 16)], "stolen")
        path = next((fleet.folder / "swarms" / "farm").glob("revoke-*"))
        envelope = decode_envelope(path.read_bytes())
        spoilt = Envelope("revoke", envelope.payload, tuple(sorted([*envelope.signatures, (b"k" * 16, bytes(64))])))
        net.hosts[0].journal[TRUST_JOURNAL + b"revoke/damaged"] = spoilt.encode()
        for _ in range(3):
            net.restart(0)
            net.run(1)
            assert net.trust(0).revoked == {b"x" * 16}
        kept = [one for key, one in net.hosts[0].journal.items() if key.startswith(TRUST_JOURNAL + b"revoke/")]
        assert kept == [envelope.encode()]


def test_old_certificates_said_again_are_no_news() -> None:
    """Whoever shows replaced certificates again and again makes nobody judge, journal or spread anything."""
    trust = Trust(SWARM, [FIRST[1]], MODEL_CRYPTO)
    keys = enumerate(("k1", "k2", "k3"), 1)
    shown = [say("node", certificate("a", node(key), counter), 0)[1] for counter, key in keys]
    for statement in shown:
        trust.admit_certificate(statement)
    for rounds in range(3):
        known = trust.news.take(), trust.revision, trust.statements()
        for statement in shown[:2]:
            with contextlib.suppress(IdentityError):
                trust.admit_certificate(statement)
            assert (trust.revision, trust.statements(), bool(trust.news)) == (*known[1:], False)
        for statement in shown[:2]:
            with contextlib.suppress(IdentityError):
                trust.add("node", statement)
        assert rounds == 0 or not trust.news, "as a statement of its own each is passed on once, and never again"
    ids = [NodeId(node_id_of(MODEL_CRYPTO.public_key(node(key)))) for key in ("k1", "k2", "k3")]
    assert [trust.certified(one) is None for one in ids] == [True, True, False]


def test_replaced_root_keys_take_nobody_back():
    """Whoever holds a threshold of root keys that were replaced cannot fork the chain below the newest root."""

    def seed(word: str) -> bytes:
        return (word.encode() * 32)[:32]

    def public(word: str) -> bytes:
        return MODEL_CRYPTO.public_key(seed(word))

    def roles(key: str) -> dict[str, tuple[int, list[bytes]]]:
        rest = {role: (1, [public(role + key)]) for role in ("enrol", "revoke", "release", "floor", "heartbeat")}
        return {"root": (2, [public(f"root{key}{number}") for number in range(3)]), **rest}

    def signed(root: Root, *words: str) -> bytes:
        return sign_statement("root", root, [seed(word) for word in words], MODEL_CRYPTO)

    old = ("rootA0", "rootA1")
    first = signed(make_root("f", roles("A")), *old)
    link = root_digest(first)
    second = signed(make_root("f", roles("B"), version=2, epoch=2, previous=link), *old, "rootB0", "rootB1")
    trust = Trust("farm", [first, second], MODEL_CRYPTO)
    shut_out = Certificate(node_id_of(public("thief")), public("thief"), "thief", (), "farm", 1)
    trust.add(
        "revoke",
        sign_statement("revoke", Revocation("farm", 1, (shut_out.node,), ""), [seed("revokeB")], MODEL_CRYPTO),
    )
    for rival in (roles("A"), roles("C")):
        evil = signed(make_root("f", rival, version=2, previous=link), *old, "rootC0", "rootC1")
        with pytest.raises(IdentityError, match="replaced since"):
            trust.add("root", evil)
    with pytest.raises(IdentityError):
        trust.admit_certificate(sign_statement("node", shut_out, [seed("enrolA")], MODEL_CRYPTO))
    assert trust.root.version == 2
    assert trust.revoked == {shut_out.node}


def test_a_rival_of_replaced_root_keys_is_shown_to_people_and_moves_nobody() -> None:
    """Whoever holds the chain refuses it and raises an alarm, once a minute; nothing else changes."""
    net = Net(3, 5)
    assert net.run_until(net.formed, 15) is not None
    old = dev_role_seeds(SECRET, "root")
    chain = net.hosts[0].node._core.trust.chain

    def successor(word: str) -> bytes:
        own = [(word.encode() * 32)[:32], (word.encode() * 33)[1:33]]
        roles = {"root": (len(own), [net.crypto.public_key(seed) for seed in own])}
        return sign_statement("root", next_root(chain, roles), [*old, *own], net.crypto)

    planned, rival = successor("officers "), successor("thief ")
    net.feed(0, Command("node", AddStatement("root", planned)))
    net.run(3)
    thief = Thief(SECRET, net.crypto)
    for host in net.hosts:
        net.perform(host, thief.meet(host.node, net.now))
    digests = [host.node.view_digest() for host in net.hosts]
    raised = []
    for second in range(130):
        for index, host in enumerate(net.hosts):
            effects = thief.say(host.node, [Statement("root", rival)], net.now + second * S)
            raised += [(index, one.text) for one in effects if isinstance(one, Alarm) and one.code == "root-rival"]
    assert [index for index, _ in raised] == [0, 1, 2] * 3
    assert "another root 2" in raised[0][1]
    assert all(host.node._core.trust.root.version == 2 for host in net.hosts)
    assert [host.node.view_digest() for host in net.hosts] == digests
