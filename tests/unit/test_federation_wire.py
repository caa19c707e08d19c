"""Golden bytes of the federation, both ways; frames that were changed or meant for others stay shut; no bytes raise."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.federation import facts, objects, wire
from swarmd_protocols.federation.facts import in_force, note_key, open_fact
from swarmd_protocols.federation.objects import Joined, Member, derive, read_object
from swarmd_protocols.federation.shares import SHARES, owned, owner
from swarmd_protocols.federation.wire import Pair, Way, ranges, read_down, read_head, read_up
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import Facts
from tests.support import federation_vectors as vectors
from tests.support.federation_vectors import CRYPTO, GATEWAY, OPERATOR, OTHER, REGION, SWARM, public

OPERATORS = frozenset({public(OPERATOR)})


def test_every_kind_has_its_vector() -> None:
    assert json.loads(vectors.PATH.read_text()) == vectors.document()


def test_frames_open_for_the_two_and_give_back_what_was_said() -> None:
    frames = vectors.frames()
    region, gateway = Pair(CRYPTO, REGION, public(GATEWAY)), Pair(CRYPTO, GATEWAY, public(REGION))
    assert read_up(region.open(frames["up"])) == vectors.up()
    assert read_down(gateway.open(frames["down"])) == vectors.down()
    assert wire.read_ask(gateway.open(frames["ask"])) == wire.Ask("hot-spot", vectors.AT_MS)
    assert read_up(region.open(frames["tell"])) == vectors.up()
    head = read_head(frames["up"])
    assert (head.way, head.swarm, head.sender, head.life, head.number) == (Way.UP, SWARM, vectors.node(GATEWAY), 5, 17)


@pytest.mark.parametrize("at", range(wire.HEAD_BYTES + 20))
def test_a_changed_frame_does_not_open(at: int) -> None:
    frame = bytearray(vectors.frames()["up"])
    frame[at] ^= 1
    with pytest.raises((IdentityError, WireError)):
        Pair(CRYPTO, REGION, public(GATEWAY)).open(bytes(frame))


def test_nobody_else_reads_or_writes_a_frame() -> None:
    frame = vectors.frames()["up"]
    for mine, theirs in ((OTHER, GATEWAY), (REGION, OTHER)):
        with pytest.raises(IdentityError):
            Pair(CRYPTO, mine, public(theirs)).open(frame)
    # OTHER writes as if it were GATEWAY: the key in front can be put there, the seal cannot.
    forged = Pair(CRYPTO, OTHER, public(REGION)).seal(Way.UP, SWARM, 5, 18, vectors.SALT, vectors.up())
    forged = forged[:18] + public(GATEWAY) + forged[50:]
    with pytest.raises(IdentityError):
        Pair(CRYPTO, REGION, public(GATEWAY)).open(forged)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    readers = (read_head, read_up, read_down, read_object, open_fact, facts.read_fact)
    for read in (*readers, wire.read_ask, wire.read_trust, wire.read_site, wire.read_bundle):
        with suppress(WireError):
            read(data)


def test_rows_name_only_batches_that_are_there() -> None:
    up = vectors.up()
    bad = wire.Up(up.epoch, up.at_ms, up.oldest, up.dropped, up.have, up.rows, up.batches[:1])
    with pytest.raises(WireError, match="does not carry"):
        read_up(wire._ENCODE(bad))


def test_acknowledgements_are_runs() -> None:
    assert ranges([]) == ()
    assert ranges([1, 2, 5]) == ((1, 2), (5, 5))
    assert len(ranges(range(0, 4 * wire.RANGES_MAX, 2))) == wire.RANGES_MAX


# --- Objects -----------------------------------------------------------------------------------------------------


def derived(row: objects.ObjectRow, batches: list[tuple[object, Facts]]) -> objects.Derived:
    return derive(row, batches, "farm", OPERATORS, CRYPTO.verify)  # type: ignore[arg-type]


def proofs() -> list[tuple[object, Facts]]:
    return [vectors.read(one) for one in vectors.proofs()]


def test_an_object_is_what_its_signed_rows_say() -> None:
    found = derived(vectors.row(), proofs())
    assert found.label == "hot-spot"
    assert found.observers == tuple(sorted((vectors.node(GATEWAY), vectors.node(OTHER))))
    assert (found.east_cm, found.north_cm, found.reports, found.score_milli) == (203, -98, 4, 870)
    assert found.tier(2) == "confirmed"
    assert found.evidence == tuple(one.digest for one in vectors.proofs())


def test_a_gateway_cannot_make_up_a_sighting_a_join_or_an_id() -> None:
    row = vectors.row()
    member = row.members[0]
    lies = {
        "does not hold the sighting": {"members": (Member(0, "person", member.kind, member.place),)},
        "does not hold the join": {"joins": (Joined(0, 0),)},
        "id of its first": {"object_id": bytes(8)},
        "a sighting twice": {"members": (member, member)},
        "a proof that it does not have": {"members": (Member(7, *member.key),)},
    }
    for words, lie in lies.items():
        with pytest.raises(WireError, match=words):
            derived(replace(row, **lie), proofs())  # type: ignore[arg-type]


# --- Shares ------------------------------------------------------------------------------------------------------

NODES = st.sets(st.binary(min_size=16, max_size=16).map(NodeId), max_size=6)


@given(NODES)
def test_every_share_has_exactly_one_owner(claimants: set[NodeId]) -> None:
    mine = {node: owned(node, claimants) for node in claimants}
    for share in range(SHARES):
        assert sum(share in shares for shares in mine.values()) == bool(claimants)
    assert owned(NodeId(b"x" * 16), claimants - {NodeId(b"x" * 16)}) == frozenset()


@given(NODES, st.binary(min_size=16, max_size=16).map(NodeId))
def test_who_goes_moves_only_its_own_shares(claimants: set[NodeId], gone: NodeId) -> None:
    before = {share: owner(share, claimants | {gone}) for share in range(SHARES)}
    after = {share: owner(share, claimants - {gone}) for share in range(SHARES)}
    assert all(after[share] == had for share, had in before.items() if had != gone)


# --- Facts -------------------------------------------------------------------------------------------------------


def test_a_fact_counts_by_an_operator_of_the_same_fleet_only() -> None:
    one = vectors.signed(vectors.fact())
    assert in_force([one], "farm", OPERATORS, CRYPTO.verify).keys() == {"north-field"}
    assert not in_force([one], "other", OPERATORS, CRYPTO.verify)
    assert not in_force([one], "farm", frozenset({public(OTHER)}), CRYPTO.verify)
    changed = one[:-1] + bytes([one[-1] ^ 1])
    assert not in_force([changed], "farm", OPERATORS, CRYPTO.verify)
    assert len(one) <= facts.FACT_MAX_BYTES
    assert len(note_key("a" * facts.NAME_MAX)) <= 64


def test_of_one_name_the_greatest_revision_counts_in_any_order() -> None:
    first, second = (vectors.signed(vectors.fact(revision=number)) for number in (1, 2))
    for said in ([first, second], [second, first]):
        assert in_force(said, "farm", OPERATORS, CRYPTO.verify)["north-field"].fact.revision == 2


def test_what_cannot_be_is_not_signed() -> None:
    mission = vectors.fact()
    for bad in ({"corners": mission.corners[:2]}, {"cell_cm": 1}, {"kind": "order"}, {"name": "A b"}):
        with pytest.raises(StateError):
            facts.encode_fact(replace(mission, **bad))  # type: ignore[arg-type]
