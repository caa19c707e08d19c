"""One author lies in everything that it can sign: whatever the order, honest nodes that hold the same show the same."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.releases.reports import Report, ReportBook, Verdict, decode_report
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import NodeSigner, Stream, open_batch, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Done, Facts, Join, NotePut, NoteRemoval, Sighting, encode_facts
from swarmd_protocols.state.crdt.log import Verdict as Outcome
from swarmd_protocols.state.crdt.log import cost_of
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.records import EventRow, Lease, encode_counters, encode_events, encode_leases
from swarmd_protocols.state.crdt.store import Store
from swarmd_protocols.state.projection import Projection
from swarmd_protocols.trust.envelopes import sign_statement

CRYPTO = ModelCrypto()
SEEDS = [bytes([n]) * 32 for n in range(3)]
NODES = [node_id_of(CRYPTO.public_key(seed)) for seed in SEEDS]
SIGNERS = [NodeSigner(CRYPTO, seed) for seed in SEEDS]
LIAR, WITNESS, READER = 0, 1, 2
CELLS = [bytes([n]) * 6 for n in range(3)]
NOW_NS = 10

seeds = st.integers(0, 2**32)
shufflers = st.randoms(use_true_random=False)


def _sighting(rng):
    first = rng.randrange(9) << 16
    return Sighting(
        rng.choice("ab"), LATTICE, (rng.randrange(2), 0), False, True, rng.randrange(5000), rng.randrange(5000),
        (9, 0, 9), rng.randrange(1000), first, first + (rng.randrange(9) << 16), 1, b"m" * 8, (),
    )  # fmt: skip


def _note_dot(rng):
    return NODES[rng.randrange(2)], rng.choice((1, 2)), rng.randrange(1, 3)


def _facts(rng):
    """Rows of few keys, so that one batch contradicts another, and itself."""
    return Facts(
        [_sighting(rng) for _ in range(rng.randrange(3))],
        [
            Join(NODES[rng.randrange(2)], ("a", LATTICE, (rng.randrange(2), 0)), rng.randrange(9) << 16, 9 << 16)
            for _ in range(rng.randrange(3))
        ],
        [Done(rng.choice(CELLS), rng.randrange(1000)) for _ in range(rng.randrange(3))],
        [
            NotePut(
                rng.choice((1, 2)), rng.randrange(1, 3), rng.randrange(4), rng.choice("xy"), bytes([rng.randrange(4)]),
                tuple(_note_dot(rng) for _ in range(rng.randrange(2))),
            )
            for _ in range(rng.randrange(3))
        ],
        [NoteRemoval("x", (_note_dot(rng),))] if rng.random() < 0.2 else [],
    )  # fmt: skip


def _batch(rng, who, stream, dot, base):
    match stream:
        case Stream.FACTS:
            body = encode_facts(_facts(rng))
        case Stream.COUNTERS:
            body = encode_counters({rng.choice("cd"): rng.randrange(9)})
        case Stream.EVENTS:
            numbers = sorted(rng.sample(range(1, 5), rng.randrange(1, 3)))
            words = [str(rng.randrange(9)) for _ in range(4)]
            body = encode_events(tuple(EventRow(1, number, rng.randrange(40), *words) for number in numbers))
        case Stream.STATUS:
            body = bytes([rng.randrange(9)])
        case _:
            body = encode_leases((Lease(rng.choice(CELLS), rng.randrange(3), rng.randrange(3), False, 7, 0),))
    stamp = 20 << 16
    return open_batch(seal_batch(stream, NODES[who], dot, base, bytes(16), stamp, body, SIGNERS[who]).raw)


def lies(rng, is_one_dot_one_batch):
    """What a liar signs: any dot, any base, any row, two under one dot; and a witness that leans on it."""
    said, dots = [], set()
    for _ in range(rng.randrange(4, 14)):
        who = rng.choice((LIAR, LIAR, LIAR, WITNESS))
        stream = rng.choice(list(Stream) + [Stream.FACTS] * 4)
        dot = rng.choice((1, 2, 3)), rng.randrange(1, 7)
        if (is_one_dot_one_batch or who == WITNESS) and (who, stream, dot) in dots:
            continue
        dots.add((who, stream, dot))
        base = (0, 0) if rng.random() < 0.7 else (rng.randrange(4), rng.randrange(3))
        said.append(_batch(rng, who, stream, dot, min(base, dot)))
    return said


class Reader:
    """Store and views of an honest node, put together as a replica does."""

    def __init__(self):
        self.store, self.views = Store(100, 1 << 20), Projection(NODES[READER], ReplicaConfig())

    def hear(self, batches):
        for batch in batches:
            reading = self.views.read(batch)
            batch.cost = cost_of(batch, reading.weight if isinstance(reading, Facts) else 0)
            log = self.store.logs.get(batch.origin)
            held = log and log.find(batch.stream, batch.dot)
            outcome, dropped = self.store.add(batch)
            for old in dropped:
                self.views.drop(old)
            if outcome is Outcome.ADDED:
                self.views.take(batch, reading, NOW_NS)
            elif outcome is Outcome.CONFLICT:
                self.convict(batch.origin, (held.raw, batch.raw))
        self.views.work()
        return self

    def convict(self, origin, proof):
        for batch in self.store.quarantine(origin, proof):
            self.views.drop(batch)
        self.views.forget_origin(origin)

    def shows(self):
        views = self.views
        return (
            sorted(batch.digest for batch in self.store.batches()),
            self.store.lasting_digest(),
            sorted(self.store.quarantined),
            sorted((one.origin, one.row, one.leader.origin, one.leader.row.key) for one in views.view.all()),
            {cell: dict(sorted(by.items())) for cell, by in sorted(views.survey.claims.done.items()) if by},
            {cell: views.survey.claims.holder(cell, NOW_NS) for cell in CELLS},
            views.notes.values(),
            [views.notes.dots_of(key) for key in "xy"],
            list(views.vitals.counter_parts()),
            [views.vitals.status(node) for node in NODES],
            views.vitals.events(),
            {key: dict(sorted(by.items())) for key, by in sorted(views.shown._joins.items()) if by},
        )


def exchange(readers):
    """Each tells each other all that it holds, proofs too, until nobody learns anything."""
    for _ in range(8):
        before = [reader.shows() for reader in readers]
        for one in readers:
            for other in readers:
                for origin, proof in one.store.quarantined.items():
                    if origin not in other.store.quarantined:
                        other.convict(origin, proof)
                other.hear(list(one.store.batches()))
        if [reader.shows() for reader in readers] == before:
            return
    raise AssertionError("nodes that tell each other everything do not come to an end")


def check_liar(seed, shuffler, is_one_dot_one_batch=True):
    said = lies(random.Random(seed), is_one_dot_one_batch)
    readers = []
    for _ in range(3):
        order = said + shuffler.sample(said, len(said) // 2)
        shuffler.shuffle(order)
        readers.append(Reader().hear([open_batch(batch.raw) for batch in order]))
    exchange(readers)
    assert readers[0].shows() == readers[1].shows() == readers[2].shows()


@settings(max_examples=150, deadline=None, report_multiple_bugs=False)
@given(seeds, shufflers)
def test_who_contradicts_itself_from_batch_to_batch_looks_alike_everywhere(seed, shuffler):
    check_liar(seed, shuffler)


@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(seeds, shufflers)
def test_who_signs_two_batches_under_one_dot_is_shown_nowhere(seed, shuffler):
    check_liar(seed, shuffler, is_one_dot_one_batch=False)


def check_notes(steps, shuffler):
    """Puts of one dot contradict each other; some batches stop to matter."""

    def play(order):
        notes = NoteMap()
        for serial, key, value, stamp in order:
            notes.put((NODES[0], 1, serial), key, value, stamp)
        return notes

    shuffled = list(steps)
    shuffler.shuffle(shuffled)
    one, other = play(steps), play(shuffled)
    assert one.values() == other.values()
    half = steps[: len(steps) // 2]
    for serial, key, value, stamp in half:
        one.unput((NODES[0], 1, serial), key, value, stamp)
    assert one.values() == play(steps[len(half) :]).values()


note_steps = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from("xy"), st.sampled_from([b"1", b"2"]), st.integers(0, 2)), max_size=12
)


@settings(max_examples=150, deadline=None, report_multiple_bugs=False)
@given(note_steps, shufflers)
def test_two_notes_under_one_dot_show_the_same_one_everywhere(steps, shuffler):
    check_notes(steps, shuffler)


RELEASES = [bytes([n]) * 32 for n in range(4)]


def _reports(rng):
    """What a node may sign about its models: one sequence number twice, verdicts that change, known releases or not."""
    out = []
    for _ in range(rng.randrange(2, 12)):
        seed = SEEDS[rng.randrange(2)]
        report = Report(
            CRYPTO.public_key(seed), rng.choice("abcdef"), rng.randrange(4), b"", 1, 1, "trial", rng.choice(RELEASES),
            Verdict(rng.randrange(3)), rng.randrange(3), 0, "",
        )  # fmt: skip
        out.append(decode_report(sign_statement("health", report.payload(), [seed], CRYPTO), CRYPTO.verify))
    return out


def check_reports(seed, shuffler):
    rng = random.Random(seed)
    said, known = _reports(rng), RELEASES[: rng.randrange(5)]
    books = []
    for _ in range(3):
        order, knows_from = list(said), shuffler.randrange(len(said) + 1)
        shuffler.shuffle(order)
        book = ReportBook()
        for at, signed in enumerate(order):
            if at == knows_from:
                book.keep_votes(known)
            book.add(signed, known if at >= knows_from else known[:1])
        book.keep_votes(known)
        books.append(book)
    assert all(book.statuses == books[0].statuses for book in books), "each has heard all of them"
    for _ in range(4):
        for one in books:
            for other in books:
                for signed in [*one.statuses.values(), *one.votes.values()]:
                    other.add(signed, known)
    first = books[0].envelopes()
    assert all(book.envelopes() == first for book in books)
    assert all(book.verdicts(release) == books[0].verdicts(release) for book in books for release in RELEASES)


@settings(max_examples=150, deadline=None, report_multiple_bugs=False)
@given(seeds, shufflers)
def test_reports_that_contradict_each_other_count_alike_everywhere(seed, shuffler):
    check_reports(seed, shuffler)


def test_the_generator_lies():
    """Some histories hold two values of one note, cell, sighting and counter, and two batches under one dot."""
    found = {"note": 0, "two under one dot": 0}
    for seed in range(40):
        said = lies(random.Random(seed), False)
        slots = [(one.origin, one.stream, one.dot) for one in said]
        found["two under one dot"] += len(slots) > len(set(slots))
        reader = Reader().hear([one for one in said if slots.count((one.origin, one.stream, one.dot)) == 1])
        found["note"] += any(len(said) > 1 for said in reader.views.notes._said.values())
    assert min(found.values()) > 5, found
