"""What one certified member can make another pay has bounds, and what a stranger says costs nothing: attacks, counted.

The same attacks are measured in megabytes and milliseconds by `python -m tests.bench.hostile_state`.
"""

import random

import pytest
from msgspec.structs import replace

from swarmd_protocols.effects import Alarm
from swarmd_protocols.errors import WireError
from swarmd_protocols.state import shown as shown_module
from swarmd_protocols.state.claims.claims import cell_hash
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Stream, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Done, Facts, Join, Sighting
from swarmd_protocols.state.crdt.log import BATCHES_MAX
from swarmd_protocols.state.crdt.messages import LASTING, Batches, Certificates, Have, Proof, Recent, Wanted
from swarmd_protocols.state.crdt.note_rows import NOTE_DOTS_MAX, NotePut, NoteRemoval
from swarmd_protocols.state.dedup import view as view_module
from swarmd_protocols.state.observations import CellAssigned, DefineCells, SetNote, WantCell
from swarmd_protocols.state.quota import ANSWER_BURST_BYTES, ANSWER_BYTES_S, ANSWER_COPY_S, AUTHOR_BURST, WORK_RATE
from swarmd_protocols.subprotocol import Send
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.payloads import Certificate
from tests.support.mutants import assert_found
from tests.support.state_mesh import CRYPTO, SWARM, Mesh, S, detection
from tests.support.state_pen import Pen, pen_of

LIFE = 1 << 40
CELLS = [(f"c{i}", (i % 10) * 1000, (i // 10) * 1000) for i in range(100)]


def say(mesh, to, sender, message):
    member = mesh.members[to]
    payload = messages.encode(message)
    effects = member.replica.on_message(mesh.members[sender].node, payload, member.local_ns(mesh.now_ns))
    mesh.perform(member, effects)
    return effects


def stamp(mesh, index=0):
    member = mesh.members[index]
    return member.replica.clock.physical_ms(member.local_ns(mesh.now_ns)) << 16


def ghost(label, east, north, first=0, last=1 << 16):
    place = (east // 50, north // 50)
    return Sighting(label, LATTICE, place, False, True, east, north, (100, 0, 100), 999, first, last, 9, b"\1" * 8, ())


def views(mesh, index=0):
    return mesh.members[index].replica.views


# --- Strangers ---------------------------------------------------------------------------------------------------


def invented(index):
    return Pen(b"EVIL" + index.to_bytes(28, "big"), life=1)


def forged_certificate(pen):
    public = CRYPTO.public_key(pen.seed)
    return sign_statement("node", Certificate(pen.node, public, "phantom", (), SWARM, 1), [pen.seed], CRYPTO)


def test_invented_origins_do_nothing():
    mesh = Mesh(4, seed=3)
    mesh.run(3)
    for index in range(3):
        mesh.command(index, DefineCells(CELLS))
    mesh.see(0, detection(mesh.now_ns, 1, 500, 500))
    mesh.run(3)
    before = [views(mesh, index).objects() for index in range(4)]
    for index in range(600):
        pen = invented(index)
        dones = [Done(cell_hash(cell[0]), 1000) for cell in CELLS]
        batch = pen.write(Facts([ghost("person", 90_000, 0), ghost("hot-spot", 500, 500)], [], dones))
        say(mesh, 0, 3, Batches((batch.raw,)))
        say(mesh, 0, 3, Certificates((forged_certificate(pen), CRYPTO.public_key(pen.seed))))
        if index % 20 == 0:
            mesh.run(0.1)
    mesh.run(10)
    assert mesh.agree()
    assert [views(mesh, index).objects() for index in range(4)] == before
    assert all(cell.state == "open" for cell in views(mesh).cells())
    assert all(views(mesh, index).health()["origins"] <= 4 for index in range(4))
    assert views(mesh).health()["waiting_for_certificates"] <= 64
    assert not any(key.startswith(b"state/o/") and key[8:24] == invented(5).node for key in mesh.members[0].disk)
    mesh.command(0, WantCell(0, 0, 1000))
    mesh.run(5)
    assert any(isinstance(detail, CellAssigned) for detail in mesh.members[0].details)
    late = mesh.newcomer(9)
    mesh.see(len(mesh.members) - 1, detection(late.local_ns(mesh.now_ns), 1, 70_000, 70_000))
    mesh.run(3)
    assert all(len(replica.views.objects()) == 2 for replica in mesh.replicas)


def check_who_repeats_certificates_pays():
    mesh = Mesh(4, seed=3)
    mesh.run(1)
    subject, sender = mesh.members[1], mesh.members[3]
    quotas = mesh.members[0].replica._intake.quotas
    for _ in range(400):
        say(mesh, 0, 3, Certificates((subject.certificate,) * 16))
    assert quotas.senders.is_in_debt(sender.node, mesh.members[0].local_ns(mesh.now_ns))
    assert not quotas.is_muted(subject.node, mesh.members[0].local_ns(mesh.now_ns))


def check_what_is_tiny_does_not_pile_up():
    """Reading a batch costs the same whatever its size: of the smallest so many as fit the queue take seconds."""
    mesh = Mesh(4, seed=3)
    mesh.run(1)
    for _ in range(300):
        for size in (0, 1, 100):
            say(mesh, 0, 3, Batches((bytes(size),) * messages.BATCHES_MAX))
    mesh.run(5)
    assert not mesh.members[0].replica._intake.has_work


def test_what_is_tiny_does_not_pile_up():
    check_what_is_tiny_does_not_pile_up()


def test_who_repeats_certificates_pays_for_that_and_their_subject_does_not():
    check_who_repeats_certificates_pays()


def test_invented_culprits_are_proven_to_nobody_and_a_proven_one_settles():
    mesh = Mesh(6, seed=4)
    mesh.run(3)
    for index in range(60):
        first, second = (invented(index).write(Facts([], [], [Done(bytes([n]) * 6, 1)])) for n in (1, 2))
        say(mesh, 0, 5, Batches((first.raw,)))
        say(mesh, 0, 5, Proof(first.raw, second.raw))
    mesh.run(20)
    assert views(mesh).health()["quarantined"] == 0
    # A member convicts itself: everybody learns it once, and then there is quiet.
    first, second = (pen_of(5).write(Facts([], [], [Done(bytes([n]) * 6, 1)])) for n in (1, 2))
    mesh.crash(5)
    say(mesh, 0, 5, Batches((first.raw, second.raw)))
    mesh.run(20)
    assert mesh.agree()
    assert all(replica.views.health()["quarantined"] == 1 for replica in mesh.replicas)
    settled = mesh.messages
    mesh.run(60)
    # A question about the time each and the comparison of records that tick: nothing about proofs.
    assert mesh.messages - settled <= 5 * 60


# --- Members -----------------------------------------------------------------------------------------------------


def drive(mesh, messages_, seconds, every_s=0.05, to=0, sender=None):
    """Feed one member for so long; returns the events in which it did more work than a slice may take."""
    sender = len(mesh.members) - 1 if sender is None else sender
    until = mesh.now_ns + int(seconds * S)
    while mesh.now_ns < until:
        message = next(messages_, None)
        if message is not None:
            say(mesh, to, sender, message)
        mesh.run(every_s)


def joins(pen):
    place = 0
    while True:
        raws = []
        for _ in range(16):
            rows = [Join(pen.node, ("a", LATTICE, (place + i, 0)), 0, 0) for i in range(128)]
            place += 128
            raws.append(pen.write(Facts([], rows)).raw)
        yield Batches(tuple(raws))


def tiny(pen):
    while True:
        yield Batches(
            tuple(
                pen.write(Facts(puts=[NotePut(pen.life, pen.n + 1, 0, f"k{pen.n}", b"v", ())])).raw for _ in range(32)
            )
        )


def churn(pen):
    key = 0
    while True:
        raws = []
        for _ in range(16):
            rows = [ghost(f"l{key + i}", key + i, 0)._replace(place=(key + i, 0)) for i in range(10)]
            dones = [Done(cell_hash(f"{key + i}"), 1) for i in range(10)]
            key += 10
            raws.append(pen.write(Facts(rows, [], dones), base=(pen.life, pen.n + 1)).raw)
        yield Batches(tuple(raws))


@pytest.mark.parametrize("attack", [pytest.param(joins, marks=pytest.mark.slow), tiny, churn])
def test_a_member_that_floods_is_bounded_named_and_over_soon(attack):
    mesh = Mesh(4, seed=5)
    mesh.run(2)
    mesh.crash(3)
    victim = mesh.members[0]
    spent = []
    charge = victim.replica._intake.quotas.authors.charge

    def counted(node, units, *args):
        if node == mesh.members[3].node:
            spent.append(units)
        return charge(node, units, *args)

    victim.replica._intake.quotas.authors.charge = counted
    drive(mesh, attack(pen_of(3)), 20)
    log = victim.replica._holdings.store.logs[mesh.members[3].node]
    config = mesh.config
    assert log.cost <= config.origin_cost_max + 200_000
    assert len(log.facts) <= BATCHES_MAX
    assert sum(spent) <= 1.5 * AUTHOR_BURST + 20 * WORK_RATE
    projection = victim.replica._projection
    # Whatever comes and goes leaves nothing behind.
    gone = len(projection.shown._deadlines) - projection.view.count
    assert gone <= projection.view.count // 4 + shown_module._GONE_MAX
    assert len(projection.view._labels) <= projection.view.count + 1
    assert len(projection.survey.claims.done) <= len(projection.survey._done_dots)
    named = [effect for effect in victim.effects if isinstance(effect, Alarm) and effect.code == "state-flood"]
    assert named
    assert mesh.members[3].node.hex() in named[0].text
    assert "digest" in named[0].text
    assert len(named) <= 2
    # Others go on as ever, and an honest sighting is everywhere at once.
    mesh.see(1, detection(mesh.members[1].local_ns(mesh.now_ns), 1, 5_000_000, 5_000_000))
    mesh.run(1)
    for replica in mesh.replicas:
        assert any(thing.east_cm == 5_000_000 for thing in replica.views.objects())
    mesh.run_until(mesh.agree, 10)
    mesh.crash(0)
    mesh.boot(0)
    mesh.run_until(mesh.agree, 10)


@pytest.mark.parametrize("kind", ["record", "facts"])
def test_who_repeats_what_an_author_has_replaced_answers_for_it(kind):
    """Old batches with good signatures cost who sends them, not the honest member that once wrote them."""
    mesh = Mesh(4, seed=5)
    mesh.run(2)
    victim, honest, thief = mesh.members[0], mesh.members[1], mesh.members[3]

    def status(n):
        dot, text = (LIFE, n), b"ok %d" % n
        return seal_batch(Stream.STATUS, honest.node, dot, (0, 0), bytes(16), n << 16, text, honest.signer)

    pen = pen_of(1)
    old, new = status(1), status(2)
    if kind == "facts":
        old, new = (
            pen.write(Facts([ghost("hot-spot", 0, 0)], [], [], [], [])),
            pen.write(Facts([], [], [], [], []), base=(LIFE, 2)),
        )
    say(mesh, 0, 1, Batches((old.raw,)))
    say(mesh, 0, 1, Batches((new.raw,)))
    mesh.run(1)
    for _ in range(100):
        say(mesh, 0, 3, Batches((old.raw,) * 60))
        mesh.run(0.05)
    intake = victim.replica._intake
    assert not any(isinstance(effect, Alarm) and honest.node.hex() in effect.text for effect in victim.effects)
    assert intake.quotas.authors._accounts[honest.node].units <= 2_000  # Of two batches and their rows.
    assert intake.quotas.senders._accounts[thief.node].units > 40_000


def test_slices_end_in_the_state_that_one_stroke_would_have_made():
    """The same flood, read in slices of every size, gives the same objects; no event does more than its slice."""
    shown = []
    for units in (10**9, 6_000, 500):
        mesh = Mesh(2, seed=6)
        mesh.crash(0)
        mesh.config = replace(mesh.config, slice_units=units)
        mesh.members[0].disk.clear()
        mesh.boot(0)
        mesh.run(1)
        pen, rng = pen_of(1), random.Random(7)
        for _ in range(12):
            rows = [
                ghost("a", rng.randrange(3_000), rng.randrange(3_000), rng.randrange(99) << 16, 99 << 16)
                for _ in range(20)
            ]
            say(mesh, 0, 1, Batches((pen.write(Facts(list({row.key: row for row in rows}.values())), 99 << 16).raw,)))
        mesh.run(20)
        assert views(mesh).health()["undecided"] == 0
        shown.append([(thing.object_id, thing.reports) for thing in views(mesh).objects()])
    assert shown[0] == shown[1] == shown[2]
    assert shown[0]


def law_of_a_stack():
    """Built, moved, and taken back with one batch: no event decides, or looks at, more than its slice."""
    mesh = Mesh(3, seed=8)
    mesh.run(2)
    mesh.crash(2)
    pen, worst, looks, most = pen_of(2), 0, 0, 0
    victim = mesh.members[0].replica
    settle, work = victim._projection.view.settle, victim._projection.work
    pop = victim._projection.view.undecided.pop

    def watched(budget=None):
        nonlocal worst
        done = settle(budget)
        worst = max(worst, done)
        return done

    def popped():
        nonlocal looks
        looks += 1
        return pop()

    def worked(budget=None):
        nonlocal looks, most
        looks, before = 0, victim._projection.view.undecided.total
        done = work(budget)
        most = max(most, looks, victim._projection.view.undecided.total - before)
        return done

    victim._projection.view.settle = watched
    victim._projection.view.undecided.pop = popped
    victim._projection.work = worked
    for start in range(0, 4_000, 40):
        rows = [
            Sighting("a", LATTICE, (k + 10, 0), False, True, (k * 30) % 690, (k * 30) // 690 * 30 % 690, (0, 0, 0), 500,
                     (k + 1) << 16, (k + 1) << 16, 1, b"", ()) for k in range(start, start + 40)
        ]  # fmt: skip
        say(mesh, 0, 2, Batches((pen.write(Facts(rows)).raw,)))
        mesh.run(0.05)
    mesh.run(20)  # Until its author may make others work again.
    near = tuple((offset + 1, 0) for offset in range(8))
    for start in range(0, 3_000, 30):
        rows = [
            Sighting("b", LATTICE, (k, 0), False, True, k * 700, 90_000, (0, 0, 0), 500, (k + 1) << 16, (k + 1) << 16,
                     1, b"", near) for k in range(start, start + 30)
        ]  # fmt: skip
        say(mesh, 0, 2, Batches((pen.write(Facts(rows)).raw,)))
        mesh.run(0.05)
    for step in range(20):
        wide = 10**10 * (step % 2)
        row = Sighting("a", LATTICE, (0, 7), False, True, 345, 345, (wide, 0, wide), 500, 0, 1 << 16, 1, b"", ())
        say(mesh, 0, 2, Batches((pen.write(Facts([row])).raw,)))
        mesh.run(0.05)
    mesh.run(10)
    assert views(mesh).health()["undecided"] == 0
    row = Sighting("a", LATTICE, (0, 7), False, True, 345, 345, (0, 0, 0), 500, 0, 1 << 16, 1, b"", ())
    say(mesh, 0, 2, Batches((pen.write(Facts([row]), 1 << 16, (pen.life, pen.n + 1)).raw,)))
    mesh.run(10)
    assert views(mesh).health()["undecided"] == 0
    assert worst <= mesh.config.slice_units + 2_000
    assert most <= mesh.config.slice_units + _LARGEST_STEP, f"{most} units or looks in one event"


_LARGEST_STEP = 4_000
"""Units of one batch whose rows all lie on one stack: it is taken back in one go."""


def test_a_stack_of_thousands_costs_a_slice_at_a_time():
    law_of_a_stack()


def test_looks_that_cost_nothing_are_found(monkeypatch):
    assert_found(lambda patch: patch.setattr(view_module, "STALE_UNITS", 0), law_of_a_stack, monkeypatch)


def test_questions_are_answered_as_far_as_the_askers_share_lasts():
    mesh = Mesh(3, seed=9)
    mesh.run(2)
    for track in range(400):
        mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), track, track * 1000))
        mesh.run(0.02)
    mesh.run(2)
    held = views(mesh).health()["bytes_held"]
    answered = 0
    for _ in range(2_000):
        effects = say(mesh, 0, 2, Have((), LASTING, False, (1 << 32) - 1))
        answered += sum(len(effect.payload) for effect in effects if isinstance(effect, Send))
        mesh.run(0.005)
    # Everything once, a burst, ten seconds of a trickle, and the answer begun last.
    assert held <= answered <= 2.2 * held + ANSWER_BURST_BYTES + 10 * (ANSWER_BYTES_S + held // ANSWER_COPY_S)
    assert views(mesh).health()["unanswered"] > 1_900
    mesh.run(15)
    assert say(mesh, 0, 2, Have((), LASTING, False, (1 << 32) - 1))


@pytest.mark.parametrize("message", [Batches(()), Have((), LASTING, True, 0), Recent(b""), Wanted(b"")])
def test_a_message_that_holds_nothing_does_nothing(message):
    mesh = Mesh(2, seed=1)
    say(mesh, 0, 1, message)
    mesh.run(1)
    assert mesh.agree()


def test_one_summary_names_an_origin_once_and_has_bounds():
    row = (bytes(16), ((0, 1, 1, b""),))
    for have in (
        Have((row, row), LASTING, True, 0),
        Have(tuple((n.to_bytes(16, "big"), ()) for n in range(2_049)), LASTING, True, 0),
        Have(tuple((n.to_bytes(16, "big"), ((0, 1, 1, b""),) * 100) for n in range(100)), LASTING, True, 0),
    ):
        with pytest.raises(WireError):
            messages.decode(messages.encode(have))


def test_no_row_is_later_than_the_batch_that_says_it():
    mesh = Mesh(2, seed=10)
    mesh.run(2)
    far = (1 << 43) - 2
    now = stamp(mesh)
    rows = [ghost("person", 90_000, 0, 0, far << 16)]
    batch = pen_of(1).write(Facts(rows, [Join(mesh.members[0].node, rows[0].key, 0, far << 16)]), now)
    say(mesh, 0, 1, Batches((batch.raw,)))
    mesh.run(1)
    (seen,) = [view for view in views(mesh).detections() if view.label == "person"]
    assert seen.last_hlc <= now
    mesh.run(3_700)
    assert not any(thing.label == "person" for thing in views(mesh).objects())


def test_a_note_of_somebody_else_cannot_be_kept_from_people():
    check_a_note_is_shown_whatever_was_removed_before_it()


def check_a_note_is_shown_whatever_was_removed_before_it():
    """A thief removes the notes that an operator has yet to write, and says under their key what is far from now."""
    mesh = Mesh(4, seed=11)
    mesh.command(0, SetNote("first", b"1"))
    mesh.run(2)
    mesh.crash(3)
    operator = mesh.members[0].node
    ((_, life, serial),) = views(mesh)._projection.notes.dots_of("first")
    pen, far, now = pen_of(3), (1 << 43) - 2 << 16, stamp(mesh)
    later = [(operator, life, serial + number) for number in range(1, 1 + 4 * NOTE_DOTS_MAX)]
    for at in range(0, len(later), NOTE_DOTS_MAX):
        removes = tuple(later[at : at + NOTE_DOTS_MAX])
        for facts in (
            Facts(removals=[NoteRemoval("zone", removes)]),
            Facts(puts=[NotePut(1, at + 1, far, "other", b"x", removes)]),
            # So many that one note of the operator cannot remove them all.
            Facts(puts=[NotePut(1, at + n, far, "zone", b"open %d" % n, ()) for n in range(2, NOTE_DOTS_MAX)]),
        ):
            say(mesh, 1, 3, Batches((pen.write(facts, now).raw,)))
    mesh.run(5)
    assert views(mesh).notes()["zone"].startswith(b"open")
    mesh.command(0, SetNote("zone", b"closed"))
    mesh.run(5)
    assert [views(mesh, index).notes().get("zone") for index in range(3)] == [b"closed"] * 3
    assert mesh.replicas[0].views.notes()["first"] == b"1"
    # A removal by whoever has seen the note is one.
    mesh.command(1, SetNote("first", b""))
    mesh.run(5)
    assert all("first" not in views(mesh, index).notes() for index in range(3))
    for index in range(3):
        mesh.crash(index)
        mesh.boot(index)
    mesh.run(5)
    assert [views(mesh, index).notes()["zone"] for index in range(3)] == [b"closed"] * 3
    assert mesh.agree()
