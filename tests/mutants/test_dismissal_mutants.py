"""What bounds dismissals is removed in turn, and the law that it keeps is then seen to break."""

from collections.abc import Callable

import pytest

from swarmd.brain import dismissals
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.notes import NoteMap
from tests.support.mutants import Mutant, assert_found
from tests.unit import test_dismissals as laws


def _for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dismissals, "BOOT_SHIFT", 63)


def _unnamed(patch: pytest.MonkeyPatch) -> None:
    real = NoteMap.newest

    def newest(self: NoteMap, key: str) -> tuple[bytes, NodeId] | None:
        found = real(self, key)
        return None if found is None else (found[0], laws.NODES[0])

    patch.setattr(NoteMap, "newest", newest)


def _looks_at_everything(patch: pytest.MonkeyPatch) -> None:
    def newest(self: NoteMap, key: str) -> tuple[bytes, NodeId] | None:
        return next(((put.value, NodeId(dot[0])) for dot, put in self._visible() if put.key == key), None)

    patch.setattr(NoteMap, "newest", newest)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (_for_ever, laws.test_a_note_for_a_life_to_come_hides_nobody),
        (_unnamed, laws.test_an_operator_dismisses_one_failure_everywhere),
        (_looks_at_everything, laws.test_law_what_others_write_makes_no_look_dearer),
    ],
)
def test_mutants_of_dismissals_are_found(
    mutant: Mutant, law: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, law, monkeypatch)
