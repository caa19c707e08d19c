"""What broke between neighbouring swarms when somebody set out to break it, and does not any more."""

import random
from hashlib import blake2b
from pathlib import Path

import pytest

from swarmd.federation.border import begin_life
from swarmd_protocols.errors import IdentityError, StateError
from swarmd_protocols.federation.wire import Lock
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.hearing import GATEWAYS_MAX, REVOKED_MAX_BYTES, Hearing
from swarmd_protocols.neighbours.messages import GIVE_MAX_BYTES, Give, Have, decode, encode
from swarmd_protocols.neighbours.requests import Agree
from swarmd_protocols.neighbours.space import Holds
from swarmd_protocols.neighbours.words import INTRODUCTION, Introduction, read_agreement, read_introduction
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import DEV_ROLES, dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.roots import make_root
from tests.support.neighbour_laws import at_the_pole, lie, spoken, three
from tests.support.neighbour_world import CRYPTO, Fleet, Node, World, neighbours, seed_of

S = 1_000_000_000


def introduced(node: Node, to: Fleet, at_ms: int, *revoked: bytes, consent: bytes = b"") -> bytes:
    """A node of one swarm introduces itself to another."""
    fleet = node.fleet
    said = Introduction(fleet.key, to.key, at_ms, (fleet.root,), node.certificate, revoked, consent)
    return node.signs(INTRODUCTION, said)


def heard(world: World) -> Hearing:
    """What amber's gateway holds of blue."""
    return world.nodes["amber"][0].hearing(world.fleets["blue"])


def test_who_knows_both_roots_silences_nobody() -> None:
    """Crow, which both have agreed with, uses up the numbers of blue's gateway under the key that both roots make."""
    world = three()
    world.agree("blue", "crow")
    world.agree("crow", "blue")
    world.run(15)
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    gate, speaker = world.nodes["amber"][0], world.nodes["blue"][0]
    assert gate.border is not None
    lock = gate.border._talk(blue.key, gate.hearing(blue)).lock  # Crow makes the same one out of both roots.
    for at in range(60):
        frame = lock.seal(speaker.public, amber.key, 1 << 40, at, bytes(8), b"nothing" * 1_000)
        world.inject(amber.key, frame)
    before = gate.view(blue, world.now_ns).counts["words"]
    world.place("blue")
    world.run(20)
    assert gate.view(blue, world.now_ns).counts["words"] > before + 2, "a third swarm has silenced blue"
    assert gate.view(blue, world.now_ns).state == "agreed"


def test_what_nobody_can_open_keeps_no_introduction_away() -> None:
    """Anybody on the pipe says 25 kB a second: swarms meet all the same."""
    world = World(random.Random(7))
    amber = world.fleets["amber"]
    for second in range(120):
        if second == 60:
            world.agree("amber", "blue")
            world.agree("blue", "amber")
        if second % 4 == 0:
            frame = Lock(CRYPTO, bytes(32)).seal(seed_of(f"{second}"), amber.key, 1, 0, bytes(8), bytes(98_000))
            world.inject(amber.key, frame)
        world.step()
    assert world.nodes["amber"][0].view(world.fleets["blue"], world.now_ns).state == "agreed"


def test_an_old_introduction_of_one_gateway_too_many_is_no_news() -> None:
    """Who is put out for want of room at once was passed on by everybody to everybody, for ever."""
    world = neighbours()
    blue, amber = world.fleets["blue"], world.fleets["amber"]
    hearing = heard(world)
    gates = [Node(blue, f"gate-{at}", is_gateway=True, rng=world.rng) for at in range(GATEWAYS_MAX + 2)]
    statements = [introduced(gate, amber, world.now_ms + at) for at, gate in enumerate(gates)]
    for statement in statements[1:]:
        hearing.introduce(statement, world.now_ms, given=True)
    held = set(hearing.gateways)
    assert not hearing.introduce(statements[0], world.now_ms, given=True)
    assert set(hearing.gateways) == held
    assert len(held) == GATEWAYS_MAX


def test_members_come_to_hold_the_same_gateways_in_any_order() -> None:
    """Else they would give each other what the other has just put out, at each probe."""
    world = neighbours()
    blue, amber = world.fleets["blue"], world.fleets["amber"]
    gates = [Node(blue, f"gate-{at}", is_gateway=True, rng=world.rng) for at in range(GATEWAYS_MAX + 3)]
    statements = [introduced(gate, amber, world.now_ms + 10 * at) for at, gate in enumerate(gates)]
    rng, found = random.Random(4), set()
    for _ in range(12):
        hearing = Hearing(amber.key, amber.digest, amber.name, heard(world).agreement, CRYPTO)
        for statement in rng.sample(statements, len(statements)) + rng.choices(statements, k=5):
            hearing.introduce(statement, world.now_ms, given=True)
        found.add(frozenset(hearing.gateways))
    assert len(found) == 1


def test_what_was_ended_does_not_come_back_behind_four_others() -> None:
    """A member that missed the end hands the old yes over again, while four other neighbours count."""
    world = World(random.Random(1), ("amber", "blue", "crow", "dove", "elk", "fox"))
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    gate = world.nodes["amber"][0]
    old = amber.agreement(blue, world.now_ms, 1, until_ms=world.now_ms + 90 * 86_400_000)
    world.perform("amber", gate, gate.neighbours.on_command(Agree(old), world.now_ns))
    world.agree("amber", "blue", 2, until_ms=0)
    for other in ("crow", "dove", "elk", "fox"):
        world.agree("amber", other)
    with pytest.raises(StateError):
        gate.neighbours.on_command(Agree(old), world.now_ns)
    drone = world.nodes["amber"][1]
    world.perform("amber", gate, gate.neighbours.on_message(drone.id, encode(Give((old,))), world.now_ns))
    assert blue.key not in gate.neighbours.hearings()
    assert all(read_agreement(one)[1].until_ms == 0 for key, one in gate.disk.items() if key.endswith(blue.key))


def given(node: Node, to: Node, now_ns: int) -> list[Give]:
    """What a node gives to one that has nothing."""
    effects = node.neighbours.on_message(to.id, encode(Have(())), now_ns)
    said = [decode(one.payload) for one in effects if isinstance(one, Send)]
    return [one for one in said if isinstance(one, Give)]


def revocations(fleet: Fleet, count: int) -> list[bytes]:
    """Large ones that hold."""
    found = []
    for at in range(count):
        nodes = tuple(NodeId(seed_of(f"{at}/{one}")[:16]) for one in range(1_000))
        said = Revocation(fleet.name, at + 1, nodes, "gone")
        found.append(sign_statement("revoke", said, dev_role_seeds(fleet.secret, "revoke")[:1], CRYPTO))
    return found


def test_a_neighbour_with_much_to_say_keeps_no_other_from_whoever_comes_new() -> None:
    """Introductions of crow and dove fill more than a message takes: what is blue's is given all the same."""
    world = World(random.Random(3), ("amber", "blue", "crow", "dove"))
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    for other in ("blue", "crow", "dove"):
        world.agree("amber", other)
        world.agree(other, "amber")
    world.place("blue")
    world.run(15)
    gate, drone = world.nodes["amber"]
    for name in ("crow", "dove"):
        large = revocations(world.fleets[name], 3)
        for at in range(GATEWAYS_MAX):
            fat = Node(world.fleets[name], f"fat-{at}", is_gateway=True, rng=world.rng)
            statement = introduced(fat, amber, world.now_ms + at, *large)
            gate.hearing(world.fleets[name]).introduce(statement, world.now_ms, given=True)
    world.now_ns += S
    found = given(gate, drone, world.now_ns)
    assert found, "nothing at all was given"
    assert len(encode(found[0])) <= GIVE_MAX_BYTES
    assert len(found[0].agreements) == 3
    assert found[0].words
    assert any(read_introduction(one)[1].sender == blue.key for one in found[0].introductions)


def test_a_member_that_asks_all_the_time_is_given_once_a_second() -> None:
    world = neighbours()
    gate, drone = world.nodes["amber"]
    world.now_ns += 5 * S
    assert sum(len(given(gate, drone, world.now_ns + at)) for at in range(15)) == 1
    assert given(gate, drone, world.now_ns + 2 * S)


@pytest.mark.parametrize("pulse_s", [(5, 5), (1, 5), (2, 9), (30, 4)])
def test_a_neighbour_that_comes_and_goes_keeps_no_place_for_longer(pulse_s: tuple[int, int]) -> None:
    """Shorter than an own claim takes to stand: nobody could begin, and the account never rose."""
    holds, free_s, longest_s = Holds(60_000), 0, 0
    for second in range(600):
        is_covered = second % sum(pulse_s) < pulse_s[0]
        counts = holds.count({b"cell": True} if is_covered else {}, second * 1_000)
        free_s = 0 if counts else free_s + 1
        longest_s = max(longest_s, free_s)
    assert longest_s >= 20


def test_a_yes_ends_with_the_operator_who_gave_it() -> None:
    """Blue's root names another operator: the old one's word counts no more."""
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    roles = {
        role: (need, [CRYPTO.public_key(seed) for seed in dev_role_seeds(blue.secret, role)])
        for role, (need, _) in DEV_ROLES.items()
    }
    roles["operator"] = (1, [CRYPTO.public_key(seed_of("another"))])
    seeds = dev_role_seeds(blue.secret, "root")
    after = make_root("blue", roles, version=2, previous=blue.digest)
    root = sign_statement("root", after, seeds, CRYPTO)
    said = Introduction(
        blue.key, amber.key, world.now_ms + 1, (blue.root, root), world.nodes["blue"][0].certificate, (), b""
    )
    hearing = heard(world)
    assert hearing.agrees(world.now_ms)
    hearing.introduce(world.nodes["blue"][0].signs(INTRODUCTION, said), world.now_ms)
    assert not hearing.agrees(world.now_ms), "an operator whom the newest root does not name has said yes"


def test_a_gateway_that_was_replaced_is_told_by_who_never_knew_it() -> None:
    """The usual story: stolen, shut out, and a new one enrolled, which has never seen the old one's certificate."""
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    stolen, drone = world.nodes["blue"]
    second = Node(blue, "gate-2", is_gateway=True, rng=world.rng)
    second.trust.admit_certificate(drone.certificate)
    world.nodes["blue"][0] = second
    world.meet("blue", second)
    for at in range(20):  # Of many the newest are told.
        old = Node(blue, f"former-{at}", is_gateway=True, rng=world.rng)
        second.trust.add("revoke", blue.revoke(old.id))
    said = Revocation("blue", 99, (stolen.id,), "stolen")
    second.trust.add("revoke", sign_statement("revoke", said, dev_role_seeds(blue.secret, "revoke")[:1], CRYPTO))
    world.agree("blue", "amber", 2)
    world.run(15)
    gate = world.nodes["amber"][0]
    assert second.public in gate.hearing(blue).keys(world.now_ms)
    assert stolen.public not in gate.hearing(blue).keys(world.now_ms), "the neighbour was not told who was shut out"
    world.inject(amber.key, spoken(stolen, gate, lie(blue.key, amber.key, world.now_ms + 2_000), 1))
    assert not at_the_pole(world, "amber", "blue")


def test_who_shuts_out_many_at_once_is_heard_all_the_same() -> None:
    """What an introduction has no room for is left out of it."""
    world = neighbours()
    blue = world.fleets["blue"]
    speaker = world.nodes["blue"][0]
    for statement in revocations(blue, 6):
        speaker.trust.add("revoke", statement)
    world.run(90)
    assert world.nodes["amber"][0].view(blue, world.now_ns).state == "agreed"


def test_a_neighbour_that_revokes_without_end_fills_nothing() -> None:
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    speaker, hearing = world.nodes["blue"][0], heard(world)
    for at, one in enumerate(revocations(blue, 30)):
        hearing.introduce(introduced(speaker, amber, world.now_ms + at, one), world.now_ms)
    assert hearing.trust is not None
    held = sum(len(statement) for kind, statement in hearing.trust.statements() if kind == "revoke")
    assert held <= REVOKED_MAX_BYTES + 65_536
    assert hearing.keys(world.now_ms) == [speaker.public]


def test_a_plain_member_of_a_neighbours_silences_none_of_its_gateways() -> None:
    """It shows its own certificate until what is known of its fleet is built anew."""
    world = neighbours()
    amber = world.fleets["amber"]
    hearing, drone = heard(world), world.nodes["blue"][1]
    for at in range(200):
        with pytest.raises(IdentityError):
            hearing.introduce(introduced(drone, amber, world.now_ms + at), world.now_ms)
    assert hearing.keys(world.now_ms) == [world.nodes["blue"][0].public]
    before = hearing.counts["words"]
    world.place("blue")
    world.run(12)
    assert hearing.counts["words"] > before


def test_an_alias_cannot_be_made_by_who_knows_the_node() -> None:
    """A neighbour that hears node ids on the air, or reads them in certificates, finds none of them in a word."""
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    gate, drone = world.nodes["amber"]
    word = world.nodes["blue"][0].hearing(amber).word
    assert word is not None
    for known in (amber.key, blue.key, amber.key + blue.key, blue.key + amber.key, amber.digest):
        for named in (drone.id, blue.key + drone.id):
            guess = blake2b(named, key=known, digest_size=4, person=b"swarmd-alias").digest()
            assert guess not in {row.alias for row in word.places}
    assert gate.border is not None
    said = gate.border._places(blue.key, gate.border._talk(blue.key, gate.hearing(blue)), world.now_ns)
    assert {row.alias for row in word.places} <= {row.alias for row in said}, "an alias lasts"


def test_peers_pass_on_in_a_crowd_what_is_news_once() -> None:
    """In a partial view news is passed on: three members, five gateways of blue, and the storm ends."""
    world = neighbours()
    blue, amber = world.fleets["blue"], world.fleets["amber"]
    third = Node(amber, "third", is_gateway=False, rng=world.rng)
    members = [*world.nodes["amber"], third]
    for one in members:
        for other in members:
            one.trust.admit_certificate(other.certificate)
    held = world.nodes["amber"][0].neighbours.hearings()[blue.key][1]
    third.neighbours.on_command(Agree(held), world.now_ns)
    for one in members:
        one.neighbours.on_peers(
            [Peer(other.id, other.name, other.public, True, swarm=40) for other in members if other is not one],
            world.now_ns,
        )
    gates = [Node(blue, f"gate-{at}", is_gateway=True, rng=world.rng) for at in range(GATEWAYS_MAX + 1)]
    statements = [introduced(gate, amber, world.now_ms + at) for at, gate in enumerate(gates)]
    for one in members:
        for statement in statements[1:]:
            one.neighbours._beside[blue.key].hearing.introduce(statement, world.now_ms, given=True)
    flying = [(members[1], members[0].id, encode(Give(introductions=(statements[0],))))]
    sent = 0
    while flying and sent < 500:
        to, sender, payload = flying.pop()
        for effect in to.neighbours.on_message(sender, payload, world.now_ns + sent * S):
            if isinstance(effect, Send):
                sent += 1
                flying.append((next(one for one in members if one.id == effect.to), to.id, effect.payload))
    assert sent < 20, "members pass the same introduction on for ever"


def test_a_start_has_a_higher_number_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """A device without a battery for its clock: neighbours took all that it said for copies."""
    file = tmp_path / "life"
    lives = [begin_life(file, now_s) for now_s in (1_000, 400, 400, 2_000)]
    assert lives == sorted(set(lives))
    file.write_bytes(b"")
    assert begin_life(file, 3_000) == 3_000
