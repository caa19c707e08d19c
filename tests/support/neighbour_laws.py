"""What neighbouring swarms can do to each other, and what they cannot: each a story that ends in assertions.

`tests/unit/test_neighbours.py` and `tests/property/test_neighbours.py` hold the protocol to them,
`tests/mutants/test_neighbours_mutants.py` holds them to their mutants.
"""

import random
from collections.abc import Callable

from swarmd_protocols.errors import IdentityError
from swarmd_protocols.federation.wire import Lock, Pair, Way
from swarmd_protocols.neighbours.border import QUOTA_BURST_BYTES, QUOTA_BYTES_S
from swarmd_protocols.neighbours.hearing import CONSENT_MS
from swarmd_protocols.neighbours.messages import Give, encode
from swarmd_protocols.neighbours.requests import Bring
from swarmd_protocols.neighbours.words import (
    INTRODUCTION,
    PLACES_MAX,
    WORD,
    ClaimRow,
    Introduction,
    PlaceRow,
    Word,
    read_introduction,
    sign,
)
from tests.support.neighbour_world import CRYPTO, ORIGIN, Node, World, neighbours, seed_of

LATITUDE_E7, LONGITUDE_E7 = round(ORIGIN[0] * 1e7), round(ORIGIN[1] * 1e7)


def three(**bounds: int) -> World:
    """Amber has agreed with blue and with crow, and they with it; crow turns bad."""
    world = World(random.Random(3), ("amber", "blue", "crow"))
    for one, other in (("amber", "blue"), ("blue", "amber"), ("crow", "amber")):
        world.agree(one, other)
    world.agree("amber", "crow", **bounds)
    world.place("amber")
    world.place("blue")
    world.run(15)
    return world


def lie(sender: bytes, to: bytes, at_ms: int, claims: tuple[ClaimRow, ...] = (), places: int = 1) -> Word:
    """Somebody is at the north pole."""
    row = PlaceRow(b"liar", 900_000_000, 0, 0, 1, 0)
    return Word(sender, to, at_ms, (row,) * places, claims)


def spoken(node: Node, to: Node, said: Word, number: int, life: int = 1 << 40) -> bytes:
    """A frame to one gateway, with the key of a node that says anything."""
    statement = node.signs(WORD, said)
    return Pair(CRYPTO, node.seed, to.public).seal(Way.BESIDE, to.fleet.key, life, number, bytes(8), statement)


def at_the_pole(world: World, one: str, other: str) -> list[PlaceRow]:
    return [
        row
        for node in world.nodes[one]
        for row, _ in node.view(world.fleets[other], world.now_ns).places
        if row.latitude_e7 == 900_000_000
    ]


def write_as_another() -> None:
    """Crow's gateway, a drone of blue, a signature of nobody's, a word for somebody else: none speaks as blue."""
    world = three()
    amber, blue, crow = (world.fleets[name] for name in ("amber", "blue", "crow"))
    gate, bad = world.nodes["amber"][0], world.nodes["crow"][0]
    drone = world.nodes["blue"][1]
    said = lie(blue.key, amber.key, world.now_ms + 2_000)
    for at, liar in enumerate((bad, drone)):
        world.inject(amber.key, spoken(liar, gate, said, at))
        statement = liar.signs(WORD, said)
        # It even got into the swarm: by a gateway of amber that does not look, or by a member that turned bad.
        for node in world.nodes["amber"]:
            world.perform("amber", node, node.neighbours.on_command(Bring(blue.key, WORD, statement), world.now_ns))
    forged = sign(WORD, said, world.nodes["blue"][0].public, lambda message: bytes(64))
    world.perform("amber", gate, gate.neighbours.on_command(Bring(blue.key, WORD, forged), world.now_ns))
    # What blue says to crow is not what it says to amber.
    world.agree("blue", "crow")
    world.agree("crow", "blue")
    other = lie(blue.key, crow.key, world.now_ms + 3_000)
    honest = world.nodes["blue"][0]
    statement = honest.signs(WORD, other)
    world.perform("amber", gate, gate.neighbours.on_command(Bring(blue.key, WORD, statement), world.now_ns))
    assert not at_the_pole(world, "amber", "blue"), "somebody has spoken as a neighbour"
    assert not at_the_pole(world, "amber", "crow")
    world.run(12)
    assert world.nodes["amber"][1].view(blue, world.now_ns).state == "agreed"


def speak_after_revocation() -> None:
    """A gateway that its own fleet has shut out is heard by no neighbour that was told so."""
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    stolen = world.nodes["blue"][0]
    second = Node(blue, "gate-2", is_gateway=True, rng=world.rng)
    for node in (*world.nodes["blue"], second):
        second.trust.admit_certificate(node.certificate)
    world.nodes["blue"].insert(0, second)
    world.meet("blue", second)
    world.agree("blue", "amber", 2)
    world.run(15)
    second.trust.add("revoke", blue.revoke(stolen.id))
    world.run(15)
    gate = world.nodes["amber"][0]
    assert stolen.public not in gate.hearing(blue).keys(world.now_ms), "a gateway that was shut out is still told"
    world.inject(amber.key, spoken(stolen, gate, lie(blue.key, amber.key, world.now_ms + 2_000), 1))
    assert not at_the_pole(world, "amber", "blue"), "a gateway that was shut out has spoken"
    assert gate.view(blue, world.now_ns).state == "agreed"


def flood() -> None:
    """Crow says far more than its quota, and strangers as much: blue's words come as ever, little of the flood is read,
    and of what crow claims no more counts than was agreed."""
    world = three(claims=3, area_m2=1_000)
    amber, blue, crow = (world.fleets[name] for name in ("amber", "blue", "crow"))
    gate, bad = world.nodes["amber"][0], world.nodes["crow"][0]
    heard = gate.view(blue, world.now_ns).counts["words"]
    assert gate.border is not None
    taken = gate.border.counts["taken"]
    row = ClaimRow(b"mine", LATITUDE_E7, LONGITUDE_E7, 900, 0, 100, True, 60_000)
    size = 0
    for second in range(20):
        for at in range(100):
            said = lie(crow.key, amber.key, world.now_ms + 10 * at, (row,) * 64, PLACES_MAX)
            frame = spoken(bad, gate, said, 1_000 * second + at)
            size = len(frame)
            world.inject(amber.key, frame)
            stranger = Lock(CRYPTO, bytes(32)).seal(seed_of(f"{second}/{at}"), amber.key, 1, at, bytes(8), bytes(3_000))
            world.inject(amber.key, stranger)
        world.place("blue")
        world.step()
    most = (QUOTA_BURST_BYTES + 21 * QUOTA_BYTES_S) // size + 30
    assert gate.border.counts["taken"] - taken <= most, "a flood was read beyond its quota"
    assert gate.view(crow, world.now_ns).counts["words"] <= 60, "more than a word each half second was taken"
    for node in world.nodes["amber"]:
        assert len(node.view(crow, world.now_ns).claims) <= 3, "more claims count than were agreed"
        assert sum(claim.area_m2 for claim, _ in node.view(crow, world.now_ns).claims) <= 1_000
    assert gate.view(blue, world.now_ns).counts["words"] >= heard + 3, "a flood has kept another neighbour's words away"


def play_back() -> None:
    """What was recorded is played back a hundred times: nothing of it counts, and it uses up nobody's quota."""
    world = neighbours()
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    gate = world.nodes["amber"][0]
    recorded = [one for one in world.recorded if one[0] == amber.key]
    assert gate.border is not None
    taken = gate.border.counts["taken"]
    for _ in range(100):
        for swarm, frame in recorded:
            world.inject(swarm, frame)
    # The one that introduced the key was not counted as a frame of a known key.
    assert gate.border.counts["taken"] - taken <= 1, "frames that were played back were read"
    world.agree("blue", "amber", 2, until_ms=0)
    world.run(CONSENT_MS // 1_000 + 20)
    for swarm, frame in recorded:
        world.inject(swarm, frame)
    world.run(3)
    assert gate.view(blue, world.now_ns).state == "refused", "an old yes was played back"
    assert not gate.view(blue, world.now_ns).places


def read_what_is_not_shared() -> None:
    """Who carries everything reads nothing of it; and who may read finds neither a name nor a node in it."""
    world = three()
    amber, blue, crow = (world.fleets[name] for name in ("amber", "blue", "crow"))
    world.survey("amber")
    world.want("amber")
    world.run(20)
    frames = [frame for swarm, frame in world.recorded if swarm == blue.key]
    assert len(frames) > 5
    bad = world.nodes["crow"][0]
    assert bad.border is not None
    locks = [Lock(CRYPTO, bytes(32))]
    locks += [bad.border._talk(key, one).lock for key, (one, _) in bad.neighbours.hearings().items()]
    for frame in frames:
        assert not any(lock.open(frame) for lock in locks), "a third swarm has read an introduction"
        for speaker in (*world.nodes["amber"], *world.nodes["blue"]):
            try:
                Pair(CRYPTO, bad.seed, speaker.public).open(frame)
            except IdentityError:
                continue
            raise AssertionError("a third swarm has read a word")
    drone = world.nodes["amber"][1]
    for node in world.nodes["blue"]:
        hearing = node.hearing(amber)
        assert hearing.word is not None
        assert hearing.word.places
        assert hearing.word.claims
        told = hearing.statement + b"".join(one.introduction for one in hearing.gateways.values())
        for secret in (drone.id, drone.id[:4], drone.public, b"drone", b"amber-", crow.key, crow.digest):
            assert secret not in told, f"a neighbour was told {secret!r}"
    # The same member has another name towards another neighbour.
    world.place("amber")
    world.run(6)
    to_blue, to_crow = (world.nodes[name][0].hearing(amber).word for name in ("blue", "crow"))
    assert to_blue is not None
    assert to_crow is not None
    assert not {row.alias for row in to_blue.places} & {row.alias for row in to_crow.places}


def both_must_agree(rng: random.Random) -> None:
    """Nothing is said before both have said yes, nor a minute after either has said no, whatever the pipe does."""
    world = World(rng)
    world.survey("amber")
    world.place("amber")
    first, second = rng.sample(world.names, 2)
    pair = {name: world.fleets[other] for name, other in ((first, second), (second, first))}

    def told(name: str) -> int:
        border = world.nodes[name][0].border
        assert border is not None
        return border.counts["words"]

    world.agree(first, second)
    world.run(rng.randrange(12, 40))
    assert told("amber") == told("blue") == 0, "a swarm has spoken to one that has not said yes"
    world.agree(second, first)
    world.place("amber")
    world.run(25)
    assert min(told("amber"), told("blue")) > 0, "both have said yes and nothing is said"
    ends = rng.choice(world.names)
    stays = second if ends == first else first
    world.is_cut = rng.random() < 0.5
    world.agree(ends, stays, 2, until_ms=0)
    before = told(ends)
    world.run(CONSENT_MS // 1_000 + 12)
    assert told(ends) == before, "who has ended it goes on speaking"
    before = told(stays)
    world.is_cut = False
    world.run(20)
    assert told(stays) == before, "a swarm goes on speaking to one that has ended it"
    for name in world.names:
        for node in world.nodes[name]:
            view = node.view(pair[name], world.now_ns)
            assert (*view.places, *view.claims) == (), "what was shared outlasts the agreement"
            assert view.state in ("ended", "refused", "silent")
    world.agree(ends, stays, 3)
    world.run(25)
    assert told(ends) > 0
    assert world.nodes[stays][0].view(pair[stays], world.now_ns).state == "agreed"


def keep_clear(rng: random.Random) -> None:
    """Two swarms survey one ground: while they hear each other, none begins where the other works."""
    world = neighbours(rng.randrange(1 << 20))
    pitch_cm, count = 2_000, rng.randrange(12, 24)
    for name in world.names:
        world.survey(name, count, pitch_cm)
    working: dict[str, dict[int, int]] = {name: {} for name in world.names}
    heal_ns, seen = world.now_ns, dict.fromkeys(world.names, 0)
    finished = 0
    for _ in range(420):
        if rng.random() < 0.01:
            world.is_cut = not world.is_cut
            heal_ns = world.now_ns
        if rng.random() < 0.2:
            where = rng.randrange(count) * pitch_cm
            for name in rng.sample(world.names, rng.randrange(1, 3)):
                if not working[name]:
                    world.want(name, 0, where)
        for name, cells in working.items():
            for cell, since_ns in list(cells.items()):
                if world.now_ns - since_ns > rng.randrange(10, 40) * 1_000_000_000:
                    world.done(name, f"{name}-{cell}")
                    del cells[cell]
                    finished += 1
                    break
        world.step()
        in_touch = not world.is_cut and world.now_ns - heal_ns > 15 * 1_000_000_000
        for name, other in (("amber", "blue"), ("blue", "amber")):
            gate = world.nodes[name][0]
            for cell_id in gate.begun[seen[name] :]:
                cell = int(cell_id.rpartition("-")[2])
                assert not (in_touch and cell in working[other]), f"{name} began {cell} where {other} works"
                working[name][cell] = world.now_ns
            seen[name] = len(gate.begun)
    assert finished, "nobody has worked at all"


def hold_for_ever(claim: Callable[[int, random.Random], tuple[ClaimRow, ...]] | None = None) -> None:
    """A neighbour claims all ground at every moment, under new names and shapes: the survey is done all the same, it is
    said who was in the way, and another neighbour's claims count as ever."""
    world = three(hold_s=60, area_m2=1_000_000, claims=64)
    amber, crow = world.fleets["amber"], world.fleets["crow"]
    gate, bad = world.nodes["amber"][0], world.nodes["crow"][0]
    rng = random.Random(5)

    def everywhere(at: int, rng: random.Random) -> tuple[ClaimRow, ...]:
        rows = []
        for cell in range(4):
            jitter = rng.randrange(-50, 50)
            longitude = LONGITUDE_E7 + cell * 2_630 + jitter
            rows.append(ClaimRow(rng.randbytes(4), LATITUDE_E7, longitude, 1_500 + jitter, 0, 9_000, True, 60_000))
        return tuple(rows)

    world.survey("amber", 4)
    world.want("amber")
    done = 0
    for second in range(700):
        said = lie(crow.key, amber.key, world.now_ms, (claim or everywhere)(second, rng), 0)
        world.inject(amber.key, spoken(bad, gate, said, second))
        world.step()
        if len(gate.begun) > done and second % 5 == 0:
            world.done("amber", gate.begun[done])
            done += 1
            world.want("amber")
    assert done == 4, f"a neighbour kept {4 - done} of 4 cells from being surveyed for ever"
    assert any("crow" in alarm.text for alarm in gate.alarms), "nobody was told who was in the way"


def meet_again_after_a_restart() -> None:
    """An agreement outlasts a restart; what the neighbour says is heard again."""
    world = neighbours()
    blue = world.fleets["blue"]
    for node in world.nodes["amber"]:
        node.boot()
    for node in world.nodes["amber"]:
        world.meet("amber", node)
    world.place("blue")
    world.run(30)
    for node in world.nodes["amber"]:
        assert node.view(blue, world.now_ns).state == "agreed"
        assert node.view(blue, world.now_ns).places


def agree_by_nobody() -> None:
    """An agreement that no operator of the own fleet has signed counts nowhere, also where a member passes it on."""
    world = World(random.Random(1))
    amber, blue = world.fleets["amber"], world.fleets["blue"]
    amber.operator, honest = blue.operator, amber.operator
    statement = amber.agreement(blue, world.now_ms)
    amber.operator = honest
    drone, gate = world.nodes["amber"][1], world.nodes["amber"][0]
    world.perform("amber", gate, gate.neighbours.on_message(drone.id, encode(Give((statement,))), world.now_ns))
    assert not gate.neighbours.hearings(), "anybody can agree for a swarm"
    assert gate.neighbours.summary() == b""


def introduce_unasked() -> None:
    """A consent that is about another swarm, or of no operator, makes no agreement."""
    world = three()
    amber, blue, crow = (world.fleets[name] for name in ("amber", "blue", "crow"))
    gate, bad = world.nodes["blue"][0], world.nodes["crow"][0]
    world.agree("blue", "crow")
    for consent in (crow.agreement(amber, world.now_ms, 9), b""):
        said = Introduction(crow.key, blue.key, world.now_ms + 1_000, (crow.root,), bad.certificate, (), consent)
        statement = bad.signs(INTRODUCTION, said)
        assert read_introduction(statement)[1] == said
        world.perform("blue", gate, gate.neighbours.on_command(Bring(crow.key, INTRODUCTION, statement), world.now_ns))
        assert not gate.hearing(crow).agrees(world.now_ms), "a yes that is none was taken for one"
        world.now_ns += 2_000_000_000
