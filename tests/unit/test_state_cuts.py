"""What the bounds of logs have cost is counted by author and told once a minute; what its author let go is no loss."""

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import Batch, Dot, NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.cuts import ALARM_NS, NAMED_MAX, ORIGINS_MAX, Cuts
from swarmd_protocols.state.crdt.log import INCARNATIONS_MAX, Verdict, cost_of
from swarmd_protocols.state.crdt.store import Store

CRYPTO = ModelCrypto()
SEED = bytes(32)
AUTHOR = node_id_of(CRYPTO.public_key(SEED))


def batch(n: int, base: Dot = (0, 0), seed: bytes = SEED, life: int = 7) -> Batch:
    author = node_id_of(CRYPTO.public_key(seed))
    made = seal_batch(Stream.FACTS, author, (life, n), base, bytes(16), n << 26, b"", NodeSigner(CRYPTO, seed))
    made.cost = cost_of(made, 0)
    return made


ONE = batch(1).cost


def test_what_the_bound_drops_is_counted_and_what_its_author_replaced_is_not() -> None:
    store = Store(4, 3 * ONE)
    for n in range(1, 7):
        store.add(batch(n))
    assert sorted(n for _, n in store.logs[AUTHOR].facts) == [3, 4, 5, 6]
    assert (store.cuts.batches, store.cuts.by_origin[AUTHOR].batches) == (2, 2)
    store.add(batch(7, base=(7, 6)))
    assert sorted(n for _, n in store.logs[AUTHOR].facts) == [6, 7]
    assert store.cuts.batches == 2


def test_what_was_never_held_is_refused_and_not_counted() -> None:
    store = Store(4, 3 * ONE)
    for n in (3, 4, 5, 6):
        store.add(batch(n))
    assert store.add(batch(2))[0] is Verdict.STALE
    assert store.cuts.batches == 0


def test_of_too_many_lives_the_oldest_is_counted_even_where_it_comes_last() -> None:
    store = Store(4, 1_000 * ONE)
    for life in range(2, INCARNATIONS_MAX + 2):
        store.add(batch(1, life=life))
    assert store.add(batch(1, life=1))[0] is Verdict.STALE
    assert store.add(batch(1, life=1))[0] is Verdict.STALE
    assert store.cuts.batches == 1


def test_an_alarm_a_minute_names_those_who_lost_most() -> None:
    cuts = Cuts(3 * ONE, 4)
    assert cuts.news(0) == ""
    authors = [NodeId(bytes([number]) * 16) for number in range(1, NAMED_MAX + 3)]
    for count, author in enumerate(authors, 1):
        cuts.note(author, [batch(1)] * count)
    told = cuts.news(0)
    assert f"{authors[-1].hex()} {len(authors)} batches, said until 2020-01-01 00:00:01 UTC" in told
    assert told.endswith(" and of 2 more members")
    assert authors[0].hex() not in told
    cuts.note(authors[0], [batch(2)])
    assert cuts.news(ALARM_NS - 1) == ""
    assert f"{authors[0].hex()} 1 batches" in cuts.news(ALARM_NS)
    assert cuts.news(9 * ALARM_NS) == ""


def test_of_authors_without_room_it_is_said_that_they_are_refused() -> None:
    store = Store(1, 3 * ONE)
    store.add(batch(1))
    assert store.add(batch(1, seed=bytes([1]) * 32))[0] is Verdict.FULL
    assert store.cuts.news(0) == "1 batches were refused: 1 members have logs here, as many as may"


def test_the_table_of_authors_has_a_bound_and_the_sums_go_on() -> None:
    cuts = Cuts(3 * ONE, 4)
    for number in range(ORIGINS_MAX + 5):
        cuts.note(NodeId(number.to_bytes(16, "big")), [batch(1)])
    assert (len(cuts.by_origin), cuts.batches) == (ORIGINS_MAX, ORIGINS_MAX + 5)
