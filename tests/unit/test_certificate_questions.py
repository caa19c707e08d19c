"""A certificate is asked for of one peer at a time; who keeps it back delays it by moments, and nobody else's."""

from unittest.mock import patch

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.certificate_questions import ASKED_MAX, OTHERS_MAX, PATIENCE, CertificateQuestions
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.messages import ID_BYTES, CertificateAsk, Recent, Wanted
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.subprotocol import Send
from tests.support.state_mesh import Mesh
from tests.unit.test_state_attacks import say
from tests.unit.test_state_hostile import LIFE, fact, forged, give

CONFIG = ReplicaConfig()
SOON_NS = PATIENCE * CONFIG.ask_ns


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def test_one_peer_is_asked_at_a_time_and_who_brought_more_is_asked_next() -> None:
    questions, author = CertificateQuestions(CONFIG), node(1)
    assert questions.ask(node(7), [author], 0) == [author]
    assert questions.ask(node(7), [author], 1) == questions.ask(node(8), [author], 1) == []
    assert questions.again(SOON_NS - 1) == {}
    assert questions.again(SOON_NS) == {node(8): [author]}
    assert questions.ask(node(7), [author], SOON_NS) == [], "it was asked"
    assert questions.again(2 * SOON_NS) == {}
    assert not questions.has_open, "with nobody left to ask it is closed"
    assert questions.ask(node(7), [author], 2 * SOON_NS) == [author]
    questions.came(author)
    assert not questions.has_open


def test_it_has_bounds() -> None:
    questions = CertificateQuestions(CONFIG)
    authors = [node(1_000 + number) for number in range(2 * ASKED_MAX)]
    assert questions.ask(node(7), authors, 0) == authors, "nobody waits since many are asked for"
    assert len(questions._open) == ASKED_MAX
    for number in range(3 * OTHERS_MAX):
        questions.ask(node(100 + number), authors[:1], 0)
    assert len(questions._open[authors[0]].others) == OTHERS_MAX
    questions.expire(1)
    assert not questions.has_open


def asked(effects: list[object]) -> list[NodeId]:
    """Who is asked for a certificate by these effects."""
    sends = [effect for effect in effects if isinstance(effect, Send)]
    return [send.to for send in sends if isinstance(messages.decode(send.payload), CertificateAsk)]


def check_who_keeps_a_certificate_back_delays_it_by_moments() -> None:
    """Member 1 brings what a stranger said and does not show its certificate; member 2 brings it too and does."""
    mesh = Mesh(3)
    stranger = Mesh(5).members[4]
    mesh.members[2].trust.admit_certificate(stranger.identity.certificate)
    batch = forged(stranger, (LIFE, 1), fact(100))
    with patch.object(Replica, "on_summary", lambda *_: []):
        assert asked(give(mesh, 0, 1, batch)) == [mesh.members[1].node]
        assert asked(give(mesh, 0, 2, batch)) == []
        mesh.run(0.3)
        assert mesh.members[0].replica.views.objects() == []
        mesh.run(0.4)
        assert len(mesh.members[0].replica.views.objects()) == 1


def test_who_keeps_a_certificate_back_delays_it_by_moments() -> None:
    check_who_keeps_a_certificate_back_delays_it_by_moments()


def check_what_waits_for_a_certificate_is_not_asked_for_by_name() -> None:
    mesh = Mesh(3)
    batch = forged(Mesh(5).members[4], (LIFE, 1), fact(100))
    named = Recent(batch.digest[:ID_BYTES])
    with patch.object(Replica, "on_summary", lambda *_: []):
        give(mesh, 0, 1, batch)
        assert not any(isinstance(effect, Send) for effect in say(mesh, 0, 2, named))
        mesh.run(11)  # It is let go: who names it then is asked.
        (question,) = [effect for effect in say(mesh, 0, 2, named) if isinstance(effect, Send)]
    assert isinstance(messages.decode(question.payload), Wanted)


def test_what_waits_for_a_certificate_is_not_asked_for_by_name_until_it_is_let_go() -> None:
    check_what_waits_for_a_certificate_is_not_asked_for_by_name()


def check_who_repeats_a_batch_prolongs_nothing() -> None:
    """Member 1 repeats what a stranger said and never shows its certificate; member 2 has both and names the batch."""
    mesh = Mesh(3)
    stranger = Mesh(5).members[4]
    mesh.members[2].trust.admit_certificate(stranger.identity.certificate)
    batch = forged(stranger, (LIFE, 1), fact(100))
    intake, first_ns = mesh.members[0].replica._intake, mesh.members[0].local_ns(mesh.now_ns)
    with patch.object(Replica, "on_summary", lambda *_: []):
        for at in range(18):
            give(mesh, 0, 1, batch)
            if any(isinstance(effect, Send) for effect in say(mesh, 0, 2, Recent(batch.digest[:ID_BYTES]))):
                give(mesh, 0, 2, batch)
            if at == 4:
                assert intake.waiting_since(first_ns + 1) == 1, "it waits since its first coming"
            mesh.run(0.9)
        assert len(mesh.members[0].replica.views.objects()) == 1, "it waited in vain: who names it is asked"
    assert not intake.waiting
    assert not intake._let_go


def test_who_repeats_a_batch_prolongs_nothing() -> None:
    check_who_repeats_a_batch_prolongs_nothing()


def test_who_repeats_a_batch_can_be_asked_next() -> None:
    mesh = Mesh(3)
    stranger = Mesh(5).members[4]
    mesh.members[2].trust.admit_certificate(stranger.identity.certificate)
    batch = forged(stranger, (LIFE, 1), fact(100))
    with patch.object(Replica, "on_summary", lambda *_: []):
        for _ in range(3):
            give(mesh, 0, 1, batch)
        give(mesh, 0, 2, batch)
        mesh.run(0.7)
    assert len(mesh.members[0].replica.views.objects()) == 1


def test_what_waited_in_vain_is_remembered_within_a_bound() -> None:
    mesh = Mesh(3)
    intake, stranger, most = mesh.members[0].replica._intake, Mesh(5).members[4], CONFIG.waiting_max
    intake._let_go = {number.to_bytes(32, "big"): None for number in range(most)}
    with patch.object(Replica, "on_summary", lambda *_: []):
        give(mesh, 0, 1, forged(stranger, (LIFE, 1), fact(100)))
        mesh.run(11)
    assert len(intake._let_go) == most
    assert bytes(32) not in intake._let_go
