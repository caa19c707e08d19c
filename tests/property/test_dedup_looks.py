"""What the look of a thing may decide, and what it may not: the laws of `dedup/looks.py`, and mutants of its rules."""

import random
from collections.abc import Callable

import msgspec
import pytest

from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt import facts as wire
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Sighting, decode_facts, encode_facts
from swarmd_protocols.state.dedup import looks, own, view
from swarmd_protocols.state.dedup.checked import check
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.gate import distance_milli
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import LocalDetection
from tests.support.dedup_reference import likeness
from tests.support.mutants import Mutant, assert_found, each_mutant
from tests.support.state_vectors import featured

CONFIG = DedupConfig()
NODES = [NodeId(bytes([n]) * 16) for n in range(4)]
LIAR = NODES[0]
MODEL = b"model--1"
POOR, PRECISE = 150, 20
"""Standard deviations of places, centimetres."""


def some_look(rng: random.Random) -> bytes:
    return bytes([1, *(rng.choice([0, 100, 156]) for _ in range(16))])


def sighting(
    n: int, east: int, north: int, sigma: int, first: int, features: bytes = b"", model: bytes = MODEL
) -> Sighting:
    return Sighting(
        "a", LATTICE, (n, 0), False, True, east, north, (sigma**2, 0, sigma**2), 500, first << 16, 100 << 16, 1, model,
        (), b"", features,
    )  # fmt: skip


def world(rng: random.Random, sigmas: tuple[int, ...] = (POOR, 40)) -> dict[tuple[NodeId, int], Sighting]:
    """Some sightings of each node on ground a few gates wide."""
    return {
        (node, n): sighting(
            n, rng.randrange(3_000), rng.randrange(1_500), rng.choice(sigmas), rng.randrange(20),
            some_look(rng) if rng.random() < 0.8 else b"", rng.choice([MODEL, MODEL, b"model--2"]),
        )
        for node in NODES for n in range(6)
    }  # fmt: skip


def leaders(rows: dict[tuple[NodeId, int], Sighting]) -> dict[tuple[NodeId, int], tuple[NodeId, int]]:
    decided = DedupView(CONFIG)
    for (node, n), row in rows.items():
        decided.put(node, row, (1, n + 1))
    decided.settle()
    return {(entry.origin, entry.key[2][0]): (entry.leader.origin, entry.leader.key[2][0]) for entry in decided.all()}


def is_near(a: Sighting, b: Sighting) -> bool:
    """By place alone."""
    dx, dy = a.east_cm - b.east_cm, a.north_cm - b.north_cm
    return dx * dx + dy * dy <= CONFIG.radius_cm**2 and (
        distance_milli(dx, dy, a.covariance_cm2, b.covariance_cm2, CONFIG.floor_cm) <= CONFIG.gate_milli
    )


def test_law_looks_join_nothing_that_places_keep_apart() -> None:
    joined = 0
    for seed in range(60):
        rows = world(random.Random(seed))
        rows = {name: row._replace(features=bytes([1] * 17)) for name, row in rows.items()}
        for name, leader in leaders(rows).items():
            assert is_near(rows[name], rows[leader])
            joined += name != leader
    assert joined > 300


def test_law_a_lie_about_looks_reaches_no_farther_than_a_lie_about_places() -> None:
    """Whoever no chain of gates leads to from a liar's sightings is decided as if it had told the truth."""
    held = 0
    for seed in range(80):
        rng = random.Random(seed)
        rows = world(rng)
        rows = {name: row for name, row in rows.items() if name[0] != LIAR or row.east_cm < 700}
        reached = {name for name in rows if name[0] == LIAR}
        waiting = list(reached)
        while waiting:
            here = rows[waiting.pop()]
            fresh = [name for name, row in rows.items() if name not in reached and is_near(row, here)]
            reached.update(fresh)
            waiting += fresh
        honest = leaders(rows)
        told = {
            name: row._replace(features=some_look(rng), model=MODEL) if name[0] == LIAR else row
            for name, row in rows.items()
        }
        lied = leaders(told)
        for name in rows.keys() - reached:
            assert lied[name] == honest[name]
            held += 1
    assert held > 200


def test_law_who_goes_takes_its_looks_with_it() -> None:
    for seed in range(40):
        rows = world(random.Random(seed))
        decided = DedupView(CONFIG)
        for (node, n), row in rows.items():
            decided.put(node, row, (1, n + 1))
        decided.settle()
        for (node, _), row in rows.items():
            if node == LIAR:
                decided.remove(node, row.key)
        decided.settle()
        left = {(one.origin, one.key[2][0]): (one.leader.origin, one.leader.key[2][0]) for one in decided.all()}
        assert left == leaders({name: row for name, row in rows.items() if name[0] != LIAR})


def two(features: tuple[bytes, bytes], models: tuple[bytes, bytes], sigma: int = POOR) -> bool:
    """Whether two sightings a metre apart are one thing."""
    rows = {
        (NODES[n], n): sighting(n, 100 * n, 0, sigma, n, features[n], models[n]) for n in range(2)
    }  # fmt: skip
    return len(set(leaders(rows).values())) == 1


A, UNLIKE = bytes([1, *[100] * 16]), bytes([1, *[100, 156] * 8])


def test_law_looks_count_between_equal_models_and_forms_where_places_are_poor() -> None:
    assert two((A, A), (MODEL, MODEL))
    assert not two((A, UNLIKE), (MODEL, MODEL))
    assert two((A, UNLIKE), (MODEL, b"model--2")), "numbers of two models are never compared"
    assert two((A, bytes([2]) + UNLIKE[1:]), (MODEL, MODEL)), "nor those of two forms"
    assert two((A, UNLIKE), (bytes(8), bytes(8))), "nor those of a model that is not named"
    assert two((A, UNLIKE), (b"", b""))
    assert two((A, b""), (MODEL, MODEL)), "who says nothing is judged by place"
    assert two((A, UNLIKE), (MODEL, MODEL), sigma=40), "places that can tell decide alone"
    assert two((A, bytes(17)), (MODEL, MODEL)), "no numbers at all say nothing"


def test_law_of_two_as_near_the_like_one_is_joined() -> None:
    other = bytes([1, *[100] * 12, *[156] * 4])
    rows = {
        (NODES[0], 0): sighting(0, 0, 0, POOR, 0, other),
        (NODES[1], 1): sighting(1, 0, 240, POOR, 1, A)._replace(beside=()),
        (NODES[2], 2): sighting(2, 0, 110, POOR, 2, A),
    }
    rows[NODES[0], 1] = sighting(1, 0, 240, POOR, 1, A)._replace(beside=((-1, 0),))
    del rows[NODES[1], 1]
    decided = leaders(rows)
    assert decided[NODES[0], 1] == (NODES[0], 1), "seen side by side"
    assert decided[NODES[2], 2] == (NODES[0], 1), "the nearer one looks less alike"


def test_law_a_comparison_is_symmetric_and_knows_no_up() -> None:
    rng = random.Random(4)
    for _ in range(2_000):
        a, b = (bytes([1, *rng.randbytes(16)]) for _ in range(2))
        found = looks.likeness_milli(MODEL + a, MODEL + b)
        assert found == looks.likeness_milli(MODEL + b, MODEL + a)
        turned = b[:9] + bytes((256 - one) % 256 if one != 128 else 128 for one in b[9:])
        if 128 not in b[9:]:
            assert found == looks.likeness_milli(MODEL + a, MODEL + turned)
        assert found == likeness(sighting(0, 0, 0, 1, 0, a), sighting(1, 0, 0, 1, 0, b))


def seen(track: int, at_ms: int, look: bytes, east: int = 0, model: bytes = MODEL, score: int = 800) -> LocalDetection:
    covariance = (POOR**2, 0, POOR**2)
    return LocalDetection(
        "new", track, "a", score, east, 0, covariance, "", False, at_ms * 1_000_000, model, features=look
    )


def test_law_a_track_goes_on_in_the_register_that_looks_like_it() -> None:
    ours = OwnSightings(NODES[0], CONFIG, DedupView(CONFIG))

    def at(ns: int) -> int:
        return (ns // 1_000_000) << 16

    ours.observe([seen(1, 1_000, A)], 1, at)
    ours.observe([seen(2, 9_000, UNLIKE, 30)], 1, at)
    assert len(ours.registers) == 2
    ours.observe([seen(3, 19_000, A, 25)], 1, at)
    assert (len(ours.registers), ours.key_of(3)) == (2, ours.key_of(1))
    ours.observe([seen(3, 20_000, b"", 25, b"model--2", 900)], 1, at)
    row = ours.registers[ours.key_of(3)].row
    assert (row.model, row.features) == (b"model--2", b""), "numbers of one model never stand beside another's name"


def test_law_a_body_holds_looks_as_they_were_said_and_no_others() -> None:
    full = featured()
    body = encode_facts(full)
    assert encode_facts(decode_facts(body)) == body
    assert sorted(row.features for row in decode_facts(body).sightings) == sorted(r.features for r in full.sightings)
    plain = Facts([row._replace(features=b"") for row in full.sightings])
    before = msgspec.msgpack.decode(body, type=wire._Pictured)
    assert before == msgspec.msgpack.decode(encode_facts(plain), type=wire._Pictured), "as older readers see it"
    fields = msgspec.msgpack.decode(body)
    for wrong in ([b""], [b"", b"", b"", b""], [b"", b"x" * 16, b""], [b"", b"x" * 18, b""]):
        fields[7] = wrong
        with pytest.raises(WireError):
            decode_facts(msgspec.msgpack.encode(fields))
    with pytest.raises(StateError, match="17 bytes"):
        check(seen(1, 0, b"short"))


# --- Mutants ----------------------------------------------------------------------------------------------------------


def models_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.state.dedup.entry.look_of", lambda model, features: features and MODEL + features)


def forms_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    compare = looks.likeness_milli
    patch.setattr(looks, "likeness_milli", lambda a, b: compare(a[:8] + b"\1" + a[9:], b[:8] + b"\1" + b[9:]))


def always_poor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks, "is_poor", lambda a, b, config: True)


def never_poor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks, "is_poor", lambda a, b, config: False)


def likeness_opens(patch: pytest.MonkeyPatch) -> None:
    """What looks alike is one thing, however far apart."""
    patch.setattr(view.DedupView, "_distance", lambda self, dx, dy, a, b: min(16_000, dx * dx + dy * dy))


def a_look_is_never_turned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks, "abs", lambda number: number, raising=False)


def the_likest_counts_no_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks, "WEIGHT", 0)


def registers_go_by_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(own, "order_milli", lambda distance, *rest: distance)


def looks_of_any_length(patch: pytest.MonkeyPatch) -> None:
    class _Whatever(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    patch.setattr(wire, "FEATURES_BYTES", _Whatever(17))


def a_liar_is_heard_everywhere(patch: pytest.MonkeyPatch) -> None:
    """One author's look changes what counts as alike for all."""
    compare, heard = looks.likeness_milli, [0]

    def changing(a: bytes, b: bytes) -> int | None:
        heard[0] = (heard[0] * 31 + sum(a) + sum(b)) % 997
        found = compare(a, b)
        return None if found is None else found - heard[0]

    patch.setattr(looks, "likeness_milli", changing)


PAIRS = [
    (test_law_looks_count_between_equal_models_and_forms_where_places_are_poor, models_do_not_matter),
    (test_law_looks_count_between_equal_models_and_forms_where_places_are_poor, forms_do_not_matter),
    (test_law_looks_count_between_equal_models_and_forms_where_places_are_poor, always_poor),
    (test_law_looks_count_between_equal_models_and_forms_where_places_are_poor, never_poor),
    (test_law_looks_join_nothing_that_places_keep_apart, likeness_opens),
    (test_law_a_lie_about_looks_reaches_no_farther_than_a_lie_about_places, a_liar_is_heard_everywhere),
    (test_law_a_comparison_is_symmetric_and_knows_no_up, a_look_is_never_turned),
    (test_law_of_two_as_near_the_like_one_is_joined, the_likest_counts_no_more),
    (test_law_a_track_goes_on_in_the_register_that_looks_like_it, registers_go_by_place),
    (test_law_a_body_holds_looks_as_they_were_said_and_no_others, looks_of_any_length),
]


@each_mutant(PAIRS)
def test_mutants_of_looks_are_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
