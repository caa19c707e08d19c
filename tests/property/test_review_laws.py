"""Reviews: a join of operators' statements that nobody else can make, take away or reorder.

The reference decides from scratch, out of the set of statements alone.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import StateError
from swarmd_protocols.state import reviews as reviews_module
from swarmd_protocols.state.crdt.places import ASSET
from swarmd_protocols.state.crdt.reviews import (
    KIND,
    NOTE,
    VERDICTS,
    encode_review,
    join_review,
    open_review,
)
from swarmd_protocols.state.observations import SayReview
from swarmd_protocols.state.reviews import Reviews, settled
from swarmd_protocols.trust.envelopes import signed_bytes
from tests.support.reviewing import ALICE, BOB, CAROL, CRYPTO, name_operators, public, review, say, shown, signed
from tests.support.state_mesh import Mesh, detection

ASSETS = ("t01", "t02", "t03")
SEEDS = (ALICE, BOB, CAROL)
ROOM = 3
"""Statements of one operator that count, in the small worlds of this file."""


@pytest.fixture(autouse=True)
def small_room(monkeypatch):
    monkeypatch.setattr(reviews_module, "OPERATOR_MAX", ROOM)


def target(asset):
    return (b"", "hot-spot", ASSET, asset)


def drawn(rng, seed):
    """A statement of an operator, which may lie in the past of another."""
    verdict = rng.choice((*VERDICTS, NOTE))
    text = rng.choice(("crack", "soiling")) if verdict in ("relabel", "note") else ""
    made = review(
        verdict,
        text,
        asset=rng.choice(ASSETS),
        revision=rng.randrange(1, 4),
        made_ms=rng.randrange(6),
        by=rng.choice("xy"),
    )
    return signed(made, seed)


def forged(rng, statements):
    """What somebody without an operator's key can make of them."""
    statement = rng.choice(statements)
    said = open_review(statement)
    other = signed(said.review, bytes([rng.randrange(250)]) * 32)
    better = encode_review(review("reject", revision=99, asset=rng.choice(ASSETS)))
    return rng.choice(
        (
            other,
            join_review(said.public, statement[32:96], better),
            join_review(said.public, other[32:96], better),
            join_review(said.public, CRYPTO.sign(ALICE, signed_bytes("revoke", better)), better),
            signed(review("reject", revision=99, swarm="another"), rng.choice(SEEDS)),
        )
    )


def view_of(reviews):
    return {asset: reviews.of([target(asset)]) for asset in ASSETS}


def order_of(said):
    return (said.review.revision, said.review.made_ms, said.digest)


def reference(statements, operators):
    """What counts of a set of statements: asset to the (key, digest) of each that is shown."""
    best = {}
    for statement in statements:
        said = open_review(statement)
        if said.review.swarm == "mesh" and said.holds(CRYPTO.verify):
            slot = (said.public, said.review.place, said.review.is_note)
            if slot not in best or order_of(best[slot]) < order_of(said):
                best[slot] = said
    found = {asset: set() for asset in ASSETS}
    for operator in operators:
        mine = [said for (key, _, _), said in best.items() if key == operator]
        for said in sorted(mine, key=lambda one: order_of(one)[1:], reverse=True)[:ROOM]:
            found[said.review.place].add(said.digest)
    return found


def build(statements, operators):
    reviews = Reviews("mesh", {}, CRYPTO.verify)
    reviews.know_operators(frozenset(operators))
    for statement in statements:
        reviews.take(open_review(statement))
    return reviews


def digests(reviews):
    return {asset: {said.digest for said in shown} for asset, shown in view_of(reviews).items()}


def check_the_join(seed, shuffler):
    """No order, repetition, or order of statements and operators shows; what is dropped was never there."""
    rng = random.Random(seed)
    said = [drawn(rng, rng.choice(SEEDS)) for _ in range(rng.randrange(1, 24))]
    false = [forged(rng, said) for _ in range(6)]
    operators = [public(one) for one in SEEDS if rng.random() < 0.8]
    once = build(said, operators)
    assert digests(once) == reference(said, operators)
    again = shuffler.sample(said, len(said) // 2)
    order = [*said, *again, *false]
    shuffler.shuffle(order)
    other = build(order[: len(order) // 2], [public(BOB)])
    other.know_operators(frozenset(operators))
    for statement in order[len(order) // 2 :]:
        other.take(open_review(statement))
    assert view_of(other) == view_of(once)
    for statement in again:  # Another batch still says it.
        other.drop(open_review(statement))
    assert view_of(other) == view_of(once)
    gone = set(shuffler.sample(sorted(set(said)), len(set(said)) // 2))
    for statement in (*said, *false):
        if statement in gone or statement in false:
            other.drop(open_review(statement))
    left = [statement for statement in said if statement not in gone]
    assert digests(other) == reference(left, operators)
    assert not any(digests(build(false, operators)).values())


def check_what_is_touched(seed, shuffler):
    """Whoever looks again only at what is touched sees what is there."""
    rng = random.Random(seed)
    said = [drawn(rng, rng.choice(SEEDS)) for _ in range(16)]
    reviews, seen = build([], [public(one) for one in SEEDS]), dict.fromkeys(ASSETS, ())
    for step in range(40):
        one = open_review(shuffler.choice(said))
        if step % 10 == 9:
            reviews.know_operators(frozenset(public(key) for key in SEEDS if shuffler.random() < 0.6))
        elif shuffler.random() < 0.6:
            reviews.take(one)
        else:
            reviews.drop(one)
        for _, _, _, asset in reviews.touched:
            seen[asset] = reviews.of([target(asset)])
        reviews.touched.clear()
        assert seen == view_of(reviews)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_a_view_is_a_function_of_the_set_of_statements_and_of_who_is_an_operator(seed, shuffler):
    check_the_join(seed, shuffler)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_what_changes_is_touched(seed, shuffler):
    check_what_is_touched(seed, shuffler)


def said_by(*pairs):
    reviews = Reviews("mesh", {}, CRYPTO.verify)
    reviews.know_operators(frozenset(public(seed) for seed, _ in pairs))
    for seed, one in pairs:
        reviews.take(open_review(signed(one, seed)))
    return settled(reviews.of([target("t01")]))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(ALICE, review("note", "a bird?"))], ("", "")),
        ([(ALICE, review("confirm"))], ("confirmed", "hot-spot")),
        ([(ALICE, review("relabel", "crack")), (BOB, review("relabel", "crack"))], ("relabelled", "crack")),
        ([(ALICE, review("relabel", "crack")), (BOB, review("confirm", seen="crack"))], ("relabelled", "crack")),
        ([(ALICE, review("relabel", "crack")), (BOB, review("confirm"))], ("disputed", "")),
        ([(ALICE, review("reject")), (BOB, review("reject"))], ("rejected", "")),
        ([(ALICE, review("reject")), (BOB, review("confirm"))], ("disputed", "")),
        ([(ALICE, review("reject")), (BOB, review("withdraw"))], ("rejected", "")),
        ([(ALICE, review("withdraw")), (BOB, review("note", "?"))], ("", "")),
    ],
)
def test_the_label_is_corrected_where_all_agree_and_disputed_else(pairs, expected):
    assert said_by(*pairs) == expected
    assert said_by(*reversed(pairs)) == expected


# --- the swarm ------------------------------------------------------------------------------------------------------


def a_thing(mesh, index=0, track=1, **kw):
    mesh.see(index, detection(mesh.members[index].local_ns(mesh.now_ns), track, **kw))


def everybody_shows(mesh, expected):
    assert mesh.agree()
    assert [shown(replica) for replica in mesh.replicas] == [expected] * len(mesh.replicas)


def check_two_sides_of_a_cut():
    """Each side's operator reviews offline: after the cut both stand side by side everywhere, and nothing is lost."""
    mesh = Mesh(6, seed=3)
    name_operators(mesh, ALICE, BOB)
    a_thing(mesh, asset="t03-m17")
    mesh.run(3)
    mesh.partition(lambda index: index % 2)
    say(mesh, 0, ALICE, "relabel", "crack", by="alice")
    say(mesh, 0, ALICE, "note", "the junction box", by="alice")
    say(mesh, 1, BOB, "confirm", by="bob")
    mesh.run(3)
    assert shown(mesh.replicas[2])[:2] == ("relabelled", "crack")
    assert shown(mesh.replicas[3])[:2] == ("confirmed", "hot-spot")
    mesh.crash(5)
    mesh.boot(5)
    mesh.partition(lambda index: 0)
    mesh.run_until(mesh.agree, 20)
    mesh.run(2)
    for replica in mesh.replicas:
        verdict, label, said = shown(replica)
        assert (verdict, label) == ("disputed", "hot-spot")
        assert sorted(said) == [
            ("alice", "note", "the junction box"),
            ("alice", "relabel", "crack"),
            ("bob", "confirm", ""),
        ]
    # Bob has seen what alice says, and gives way: the newest of each counts, whatever his clock says.
    say(mesh, 1, BOB, "relabel", "crack", made_ms=0, by="bob")
    mesh.run(3)
    assert {shown(replica)[:2] for replica in mesh.replicas} == {("relabelled", "crack")}
    assert mesh.replicas[4].views.objects()[0].detected == "hot-spot"
    assert mesh.replicas[4].views.objects()[0].tier == "reviewed"


def test_reviews_of_two_sides_of_a_cut_stand_side_by_side_after_it():
    check_two_sides_of_a_cut()


def check_revocation():
    """A root that does not name an operator's key takes its reviews out of every view, and one that does, back in."""
    mesh = Mesh(4, seed=5)
    name_operators(mesh, ALICE, BOB)
    a_thing(mesh)
    mesh.run(3)
    say(mesh, 1, ALICE, "reject", by="alice")
    say(mesh, 2, BOB, "relabel", "bird", by="bob")
    mesh.run(3)
    everybody_shows(mesh, shown(mesh.replicas[0]))
    assert shown(mesh.replicas[3])[0] == "disputed"
    for member in mesh.members:
        member.details.clear()
    name_operators(mesh, BOB)
    everybody_shows(mesh, ("relabelled", "bird", [("bob", "relabel", "bird")]))
    assert all(any(getattr(one, "kind", "") == "update" for one in member.details) for member in mesh.members)
    with pytest.raises(StateError, match=r"no operator's.*--role operator"):
        say(mesh, 1, ALICE, "confirm")
    mesh.crash(3)
    mesh.boot(3)
    everybody_shows(mesh, ("relabelled", "bird", [("bob", "relabel", "bird")]))
    name_operators(mesh)
    everybody_shows(mesh, ("", "hot-spot", []))
    name_operators(mesh, ALICE)
    mesh.run(2)
    everybody_shows(mesh, ("rejected", "hot-spot", [("alice", "reject", "")]))


def test_an_operator_who_is_named_no_more_is_out_of_every_view():
    check_revocation()


def check_hostile_member():
    """A member without an operator's key, and one that says again what operators said long ago, change nothing."""
    mesh = Mesh(4, seed=7)
    name_operators(mesh, ALICE)
    a_thing(mesh)
    mesh.run(3)
    first = say(mesh, 0, ALICE, "reject", by="alice")
    mesh.run(2)
    say(mesh, 0, ALICE, "confirm", by="alice")
    mesh.run(2)
    expected = ("confirmed", "hot-spot", [("alice", "confirm", "")])
    everybody_shows(mesh, expected)
    thief = mesh.members[3]
    subject = thief.replica.views.review_subject(thief.replica.views.objects()[0].object_id)
    payload = encode_review(reviews_module.compose(subject, "reject", "", 9_000, "alice"))
    own_key = signed(open_review(join_review(public(ALICE), bytes(64), payload)).review, bytes(32))
    false = [
        first,
        own_key,
        join_review(public(ALICE), bytes(64), payload),
        join_review(public(ALICE), thief.signer.sign(b"swarmd/" + KIND.encode()), payload),
    ]
    # Its own software checks nothing: it signs them into its log as if they held.
    for statement in (*false[1:], first):
        effects = []
        thief.replica._author.pending.append(open_review(statement))
        thief.replica._author.flush(effects, thief.local_ns(mesh.now_ns))
        mesh.perform(thief, effects)
    a_thing(mesh, 3, 7, east_cm=90_000)
    mesh.run(4)
    assert mesh.agree()
    for member in mesh.members[:3]:
        found = [one for one in member.replica.views.objects() if one.reviews]
        assert [(one.review, one.label) for one in found] == [expected[:2]]
        assert [said.verdict for said in found[0].reviews] == ["confirm"]
        assert member.replica.views.health()["reviews_invalid"] == 2
    with pytest.raises(StateError, match="something newer"):
        mesh.command(1, SayReview(first))


def test_a_hostile_member_makes_no_review_and_brings_none_back():
    check_hostile_member()


def check_merged_objects():
    """Two things that turn out to be one bear what was said of both; the id of neither matters."""
    mesh = Mesh(2, seed=9)
    name_operators(mesh, ALICE, BOB)
    mesh.partition(lambda index: index)
    a_thing(mesh, 0, 1, east_cm=0)
    a_thing(mesh, 1, 1, east_cm=10)
    mesh.run(1)
    say(mesh, 0, ALICE, "confirm", by="alice")
    say(mesh, 1, BOB, "note", "smells burnt", by="bob")
    mesh.partition(lambda index: 0)
    mesh.run_until(mesh.agree, 20)
    mesh.run(1)
    everybody_shows(mesh, shown(mesh.replicas[0]))
    verdict, _, said = shown(mesh.replicas[0])
    assert verdict == "confirmed"
    assert sorted(said) == [("alice", "confirm", ""), ("bob", "note", "smells burnt")]


def test_reviews_follow_things_that_turn_out_to_be_one():
    check_merged_objects()


def test_reviews_outlive_restarts_of_everybody_and_cleaning():
    mesh = Mesh(3, seed=11)
    name_operators(mesh, ALICE)
    a_thing(mesh, asset="t03-m17")
    mesh.run(2)
    say(mesh, 0, ALICE, "relabel", "crack", by="alice")
    mesh.run(3)
    for index in range(200):  # Its author's log is written anew more than once.
        a_thing(mesh, 0, 100 + index % 2, east_cm=3_000 + 700 * (index % 2), score=300 + 3 * index, kind="update")
        mesh.run(0.5)
    for index in range(3):
        mesh.crash(index)
    for index in range(3):
        mesh.boot(index)
    mesh.run_until(mesh.agree, 20)
    for replica in mesh.replicas:
        assert [one.label for one in replica.views.objects() if one.reviews] == ["crack"]


def carriers(mesh, statement):
    """How many logs of members that count say a statement, as member 1 holds them."""
    logs = mesh.members[1].replica._holdings.store.logs.values()
    return sum(any(statement in batch.raw for batch in log.facts.values()) for log in logs)


def check_carriers_that_go(seed):
    """Who carried a review is revoked: one of those who heard it says it again, and nothing that was replaced."""
    rng = random.Random(seed)
    mesh = Mesh(rng.randrange(4, 9), seed=seed, loss=rng.choice((0.0, 0.1)))
    name_operators(mesh, ALICE, BOB)
    a_thing(mesh, 1, asset="t03-m17")
    mesh.run(3)
    replaced = say(mesh, 0, ALICE, "reject", by="alice")
    mesh.run(2)
    newest = say(mesh, 0, ALICE, "relabel", "crack", by="alice")
    note = say(mesh, 0, BOB, "note", "the junction box", by="bob")
    mesh.run_until(lambda: mesh.agree() and all(len(shown(one)[2]) == 2 for one in mesh.replicas), 20)
    expected = shown(mesh.replicas[1])
    thief = mesh.members[0]
    told = [one for one in mesh.members if one is not thief and (one.index == 1 or rng.random() < 0.5)]
    mesh.revoke(thief, told=told)
    mesh.crash(0)
    mesh.run(rng.choice((0.5, 30)))
    if rng.random() < 0.5:
        mesh.crash(2)  # Perhaps the one whose turn it was.
    mesh.spread_trust()
    name_operators(mesh, ALICE)
    left = [one for one in expected[2] if one[0] == "alice"]

    def is_back():
        return mesh.agree() and all(shown(one)[2] == left for one in mesh.replicas)

    mesh.run_until(is_back, 180, step_s=1)
    assert [shown(one)[:2] for one in mesh.replicas] == [("relabelled", "crack")] * len(mesh.replicas)
    mesh.run(60)
    assert is_back()
    assert 1 <= carriers(mesh, newest) <= 2
    assert carriers(mesh, replaced) == 0
    assert carriers(mesh, note) <= 2
    # Who comes later has it from whoever says it, and never met who said it first.
    late = mesh.newcomer(90)
    mesh.spread_trust()
    mesh.run_until(lambda: mesh.agree() and late.replica.views.objects(), 60, step_s=1)
    assert shown(late.replica)[2] == left


@pytest.mark.parametrize("seed", range(8))
def test_a_review_outlives_who_carried_it(seed):
    check_carriers_that_go(seed)


def test_a_review_outlives_the_key_that_its_carrier_had():
    """A laptop is enrolled anew under its name: what its old key said is out, but for what its operator signed."""
    mesh = Mesh(5, seed=19)
    name_operators(mesh, ALICE)
    a_thing(mesh, 1, asset="t03-m17")
    mesh.run(3)
    say(mesh, 0, ALICE, "relabel", "crack", by="alice")
    mesh.run_until(lambda: mesh.agree() and all(shown(one)[2] for one in mesh.replicas), 20)
    mesh.crash(0)
    mesh.enrol_again(0, 2)
    expected = ("relabelled", "crack", [("alice", "relabel", "crack")])
    mesh.run_until(lambda: mesh.agree() and all(shown(one) == expected for one in mesh.replicas), 180, step_s=1)


def check_a_convicted_carrier(seconds=300):
    """Nobody takes what a convicted member says, so it says nothing again: that would be missed for ever."""
    mesh = Mesh(3, seed=23)
    name_operators(mesh, ALICE)
    a_thing(mesh, 1, asset="t03-m17")
    mesh.run(3)
    say(mesh, 0, ALICE, "relabel", "crack", by="alice")
    mesh.run_until(lambda: mesh.agree() and all(shown(one)[2] for one in mesh.replicas), 20)
    convicted = mesh.members[0]
    held = convicted.replica._holdings
    (batch,) = held.store.logs[convicted.node].facts.values()
    held.convict(convicted.node, (batch.raw, batch.raw), b"two of one number")
    mesh.run(30)
    before = len(convicted.disk)
    mesh.run(seconds)
    assert len(convicted.disk) <= before


def test_a_convicted_carrier_does_not_say_for_ever_what_nobody_takes():
    check_a_convicted_carrier()


def check_what_is_no_operators_goes():
    """What nobody with the role says now is not said again, whatever signed it."""
    mesh = Mesh(4, seed=17)
    name_operators(mesh, ALICE, CAROL)
    a_thing(mesh, 1, asset="t03-m17")
    mesh.run(3)
    hers = say(mesh, 0, CAROL, "reject", by="carol")
    mesh.run_until(lambda: mesh.agree() and all(shown(one)[2] for one in mesh.replicas), 20)
    name_operators(mesh, ALICE)
    mesh.revoke(mesh.members[0])
    mesh.crash(0)
    mesh.run(120)
    assert mesh.agree()
    assert carriers(mesh, hers) == 0
    assert all(not one._projection.reviews.missing for one in mesh.replicas)


def test_what_is_no_operators_any_more_goes_with_its_carrier():
    check_what_is_no_operators_goes()


def test_an_operator_has_bounded_room_here_too():
    mesh = Mesh(1, seed=13)
    name_operators(mesh, ALICE)
    for index in range(ROOM + 1):
        a_thing(mesh, 0, index + 1, asset=f"t0{index}", east_cm=1_000 * index)
    mesh.run(1)
    ids = [one.object_id for one in mesh.replicas[0].views.objects()]
    for one in ids[:ROOM]:
        say(mesh, 0, ALICE, "confirm", object_id=one)
    with pytest.raises(StateError, match=f"{ROOM} things, as many as count"):
        say(mesh, 0, ALICE, "confirm", object_id=ids[ROOM])
    say(mesh, 0, ALICE, "reject", object_id=ids[0])
