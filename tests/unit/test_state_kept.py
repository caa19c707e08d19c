"""What is kept of an author without a certificate counts again, all of it, once it has one, also where it is gone."""

from collections.abc import Callable

import pytest

from swarmd_protocols.effects import Alarm
from swarmd_protocols.state.crdt.facts import Facts, NotePut
from swarmd_protocols.state.intake import Intake
from swarmd_protocols.state.quota import AUTHOR_BURST_BYTES, UNASKED_BYTES
from tests.support.mutants import assert_found
from tests.support.state_mesh import Mesh
from tests.support.state_pen import pen_of

GONE = 2


def with_a_long_log() -> tuple[Mesh, int]:
    """A swarm whose third member is gone and has left more than an account has room for."""
    mesh, pen, size, notes = Mesh(3), pen_of(GONE), 0, 0
    mesh.run(1)
    mesh.crash(GONE)
    while size <= AUTHOR_BURST_BYTES + UNASKED_BYTES + 20_000:
        notes += 1
        put = NotePut(pen.life, notes, 1 << 16, f"note {notes}", bytes(500), ())
        batch = pen.write(Facts([], [], [], [put]))
        size += len(batch.raw)
        for member in mesh.members[:GONE]:
            assert member.replica is not None
            member.replica._holdings.join(batch, member.local_ns(mesh.now_ns))
    mesh.run(20)
    return mesh, notes


def noted(mesh: Mesh) -> list[int]:
    return [len(replica.views.notes()) for replica in mesh.replicas]


def law_of_the_long_log() -> None:
    """Nothing of it is lost, and nobody is named for what an officer has done."""
    mesh, notes = with_a_long_log()
    assert noted(mesh) == [notes] * 2
    mesh.rotate_enrol(re_sign=False)
    mesh.tell_peers()
    mesh.run(2)
    assert noted(mesh) == [0, 0]
    mesh.re_sign()
    mesh.run(20)
    assert noted(mesh) == [notes] * 2
    assert mesh.agree()
    assert not [effect for member in mesh.members for effect in member.effects if isinstance(effect, Alarm)]


def rows_on_disk(mesh: Mesh) -> int:
    node = mesh.members[GONE].node
    return sum(key[8:24] == node for key in mesh.members[0].disk if key.startswith(b"state/o/"))


def law_of_the_revoked() -> None:
    """Who is revoked while what was kept of it is read leaves nothing on disk."""
    mesh, notes = with_a_long_log()
    mesh.rotate_enrol(re_sign=False)
    mesh.tell_peers()
    mesh.run(2)
    mesh.re_sign()
    replica = mesh.members[0].replica
    assert replica is not None
    mesh.run_until(lambda: noted(mesh)[0] > 0, 10, step_s=0.002)
    assert noted(mesh)[0] < notes
    mesh.revoke(mesh.members[GONE], told=mesh.members[:GONE])
    mesh.tell_peers()
    mesh.run(20)
    assert noted(mesh) == [0, 0]
    assert not rows_on_disk(mesh)


def test_law_a_long_log_that_was_kept_counts_again_whole() -> None:
    law_of_the_long_log()


def test_law_who_is_revoked_meanwhile_leaves_nothing_on_disk() -> None:
    law_of_the_revoked()


def as_if_off_the_air(patch: pytest.MonkeyPatch) -> None:
    def take_back(self: Intake) -> None:
        for origin in self._holdings.shelved:
            if self.key_of(origin) is not None:
                values = tuple(self._holdings.unshelve(origin).values())
                self.queue(origin, values)

    patch.setattr(Intake, "take_back", take_back)


def what_is_being_read_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    judge = Intake.judge

    def forgets(self: Intake) -> None:
        self._back = {}
        judge(self)

    patch.setattr(Intake, "judge", forgets)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [(as_if_off_the_air, law_of_the_long_log), (what_is_being_read_is_forgotten, law_of_the_revoked)],
)
def test_a_law_finds_its_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, law, monkeypatch)
