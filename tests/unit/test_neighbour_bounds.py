"""What one neighbour may cost and keep away, and what is told of a swarm with many members."""

import pytest

from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.hearing import GATEWAYS_MAX, PLACES_KEPT, WORD_BYTES_S
from swarmd_protocols.neighbours.messages import Give, encode
from swarmd_protocols.neighbours.neighbours import JOURNAL, KEPT_MAX
from swarmd_protocols.neighbours.news import KEYS_MAX, NEWS_BURST_BYTES, NEWS_BYTES_S, News
from swarmd_protocols.neighbours.requests import Agree, Bring
from swarmd_protocols.neighbours.words import CLAIMS_MAX, INTRODUCTION, PLACES_MAX, WORD, ClaimRow, PlaceRow, Word
from swarmd_protocols.state.positions import Located, Place
from swarmd_protocols.subprotocol import Send
from tests.support.neighbour_world import Fleet, Node, World, neighbours
from tests.unit.test_neighbour_attacks import introduced

S = 1_000_000_000
MEMBERS = 150


def fly(world: World, count: int) -> None:
    """So many members of blue say where they are."""
    gate = world.nodes["blue"][0]
    for number in range(count):
        node = NodeId(number.to_bytes(16, "big"))
        gate.places[node] = Located(node, Place(470_000_000 + number, 80_000_000, 3_000, None, 150, 900), world.now_ns)


def shown(world: World) -> list[int]:
    """Latitudes of blue's members, as amber's drone knows them."""
    return [row.latitude_e7 for row, _ in world.nodes["amber"][1].view(world.fleets["blue"], world.now_ns).places]


def test_all_members_of_a_large_swarm_are_told_in_turn() -> None:
    world = neighbours()
    world.nodes["blue"][0].places.clear()
    for _ in range(20):
        fly(world, MEMBERS)
        world.run(1)
    assert PLACES_MAX < MEMBERS
    assert len({latitude for latitude in shown(world) if latitude > 470_000_000}) == MEMBERS - 1
    for _ in range(70):
        fly(world, 3)
        world.run(1)
    assert len(shown(world)) <= 3, "who has not been heard for a minute is still shown"


def largest(world: World, speaker: Node, number: int, ahead_ms: int = 0) -> bytes:
    """A word of all that one holds, of members that nobody has seen before."""
    blue, amber = world.fleets["blue"], world.fleets["amber"]
    alias = [(number * PLACES_MAX + at).to_bytes(4, "big") for at in range(PLACES_MAX)]
    places = tuple(PlaceRow(one, 900_000_000, 1_700_000_000, 9_000_000, 60_000, 1) for one in alias)
    claims = tuple(
        ClaimRow(one, 900_000_000, 1_700_000_000, 900_000, 9_000_000, 9_000_000, True, 60_000)
        for one in alias[:CLAIMS_MAX]
    )
    return speaker.signs(WORD, Word(blue.key, amber.key, world.now_ms + ahead_ms, places, claims))


def passed_on(world: World, kind: str, statement: bytes) -> int:
    """Bytes that each member of amber gets of what its gateway is brought."""
    gate = world.nodes["amber"][0]
    effects = gate.neighbours.on_command(Bring(world.fleets["blue"].key, kind, statement), world.now_ns)
    world.perform("amber", gate, effects)
    return max([len(effect.payload) for effect in effects if isinstance(effect, Send)], default=0)


def test_a_neighbour_that_says_all_it_can_costs_each_member_little() -> None:
    world = neighbours()
    speaker, total, seconds = world.nodes["blue"][0], 0, 60
    for number in range(10 * seconds):
        world.now_ns += S // 10
        total += passed_on(world, WORD, largest(world, speaker, number))
    assert total > 0
    assert total <= WORD_BYTES_S * seconds + 2 * 5_000
    assert len(shown(world)) <= PLACES_KEPT


def test_a_neighbour_that_introduces_itself_anew_all_the_time_costs_each_member_little() -> None:
    world = neighbours()
    amber, blue, speaker = world.fleets["amber"], world.fleets["blue"], world.nodes["blue"][0]
    total, seconds = 0, 200
    for number in range(10 * seconds):
        world.now_ns += S // 10
        yes = blue.agreement(amber, world.now_ms, 2 + number)
        total += passed_on(world, INTRODUCTION, introduced(speaker, amber, world.now_ms, consent=yes))
    assert total > 0
    assert total <= NEWS_BURST_BYTES + NEWS_BYTES_S * seconds + 5_000


def test_a_stolen_gateway_that_varies_its_introduction_keeps_its_revocation_from_nobody() -> None:
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    honest, stolen = world.nodes["blue"][0], Node(blue, "gate-2", is_gateway=True, rng=world.rng)
    yes = blue.agreement(amber, world.now_ms, 1)
    heard = total = 0
    seconds = 200
    for number in range(10 * seconds):
        world.now_ns += S // 10
        varied = introduced(stolen, amber, world.now_ms, consent=yes if number % 2 else b"")
        passed = passed_on(world, INTRODUCTION, varied)
        heard, total = heard + (passed > 0), total + passed
    assert heard > 10, "the stolen one was not heard"
    assert total <= NEWS_BURST_BYTES // GATEWAYS_MAX + NEWS_BYTES_S // GATEWAYS_MAX * seconds + 5_000
    shut = introduced(honest, amber, world.now_ms, blue.revoke(stolen.id), consent=yes)
    assert passed_on(world, INTRODUCTION, shut) > 0, "the word that it was stolen waits behind what it says"
    for node in world.nodes["amber"]:
        assert stolen.public not in node.hearing(blue).keys(world.now_ms)


def test_keys_that_come_and_go_have_no_reserve_anew() -> None:
    news, passed = News(), 0
    for _ in range(3):
        for number in range(4 * KEYS_MAX):
            key = number.to_bytes(32, "big")
            while not news.pause_ms(key, S):
                news.spend(key, 1_000, S)
                passed += 1_000
                if passed > 10 * NEWS_BURST_BYTES * KEYS_MAX:
                    break
    assert len(news._left) == KEYS_MAX
    # One more statement of each that is not known is looked at before it is charged.
    assert passed <= KEYS_MAX * NEWS_BURST_BYTES // GATEWAYS_MAX + 3 * 4 * KEYS_MAX * 1_000
    assert not news.pause_ms(bytes(32), 600 * S), "what was used up never comes back"


def test_a_gateway_that_dates_its_words_ahead_keeps_no_others_away() -> None:
    """A stolen one says what it likes until it is revoked, and so does the other."""
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    honest, stolen = world.nodes["blue"][0], Node(blue, "gate-2", is_gateway=True, rng=world.rng)
    yes = blue.agreement(amber, world.now_ms, 1)
    passed_on(world, INTRODUCTION, introduced(stolen, amber, world.now_ms, consent=yes))
    before = world.nodes["amber"][0].hearing(blue).gateways[honest.id].word_ms
    for second in range(30):
        world.place("blue")
        for part in range(4):
            passed_on(world, WORD, largest(world, stolen, 4 * second + part, ahead_ms=9_900))
            world.now_ns += S // 4
        world.step(0)
    for node in world.nodes["amber"]:
        hearing = node.hearing(blue)
        assert hearing.gateways[stolen.id].word_ms > world.now_ms, "the stolen one was not heard"
        assert hearing.gateways[honest.id].word_ms >= before + 15_000, "the other was silenced"
        ages = [age for row, age in hearing.places(world.now_ms) if row.latitude_e7 == 470_000_000]
        assert ages
        assert min(ages) <= 10_000


def kept(node: Node) -> set[bytes]:
    return {key for key in node.disk if key.startswith(JOURNAL)}


def test_one_agreement_too_many_is_refused() -> None:
    world = World(neighbours().rng)
    amber, gate = world.fleets["amber"], world.nodes["amber"][0]
    others = [Fleet(f"fleet-{number}") for number in range(KEPT_MAX + 2)]

    def agree(other: Fleet, revision: int = 1, **bounds: int) -> None:
        statement = amber.agreement(other, world.now_ms, revision, **bounds)
        world.perform("amber", gate, gate.neighbours.on_command(Agree(statement), world.now_ns))

    for other in others[:KEPT_MAX]:
        agree(other)
        world.now_ns += S
    agree(others[0], 2, until_ms=0)
    before = kept(gate)
    with pytest.raises(StateError, match="16 agreements are kept"):
        agree(others[KEPT_MAX])
    assert kept(gate) == before, "an agreement went for one that was not taken"
    # Of what is known a higher revision is taken, also one that runs out; that makes room.
    agree(others[3], 2, until_ms=world.now_ms + 60_000)
    world.now_ns += 120 * S
    agree(others[KEPT_MAX])
    assert kept(gate) == (before - {JOURNAL + others[3].key}) | {JOURNAL + others[KEPT_MAX].key}
    # A member that learnt of another elsewhere gives it: then all come to hold the same ones.
    drone = world.nodes["amber"][1]
    late = amber.agreement(others[-1], world.now_ms)
    world.perform("amber", gate, gate.neighbours.on_message(drone.id, encode(Give((late,))), world.now_ns))
    assert JOURNAL + others[-1].key in kept(gate)
    assert len(kept(gate)) == KEPT_MAX
