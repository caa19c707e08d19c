"""Each rule by which a region comes to show what its swarm shows, taken out once: a drawn siege must see it."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd.federation.marks import Marks
from swarmd.federation.publisher import Publisher
from swarmd.federation.region import Region
from swarmd.federation.sending import Sending
from tests.support.federation_siege import besiege

Patch = pytest.MonkeyPatch


def own_words_stand(patch: Patch) -> None:
    """Who said a word that is not the greatest takes it for what the region shows."""
    whole = Region._answer
    patch.setattr(
        Region, "_answer", lambda self, gate, node, line, down, stands=(): whole(self, gate, node, line, down)
    )


def lives_are_told_to_nobody(patch: Patch) -> None:
    """A gateway that hears the region in a life that is over says nothing of it."""
    patch.setattr(Sending, "_hear_past", lambda *_: None)


def nothing_is_forgotten(patch: Patch) -> None:
    """A gateway of a region that has lost what it had says nothing again."""
    patch.setattr(Publisher, "forget", lambda self: None)


def backups_go_unnoticed(patch: Patch) -> None:
    """A region tells nobody that its file is another one."""
    patch.setattr(Marks, "name_for", lambda self, log, have: self._store.log)


@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        (own_words_stand, 6),
        (lives_are_told_to_nobody, 0),
        (nothing_is_forgotten, 0),
        (backups_go_unnoticed, 0),
    ],
)
def test_a_siege_sees_it(mutant: Callable[[Patch], None], seed: int, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            some_sieges(tmp_path, seed)


def some_sieges(folder: Path, first: int) -> None:
    """Four, from the first seed that is known to show it."""
    for seed in range(first, first + 4):
        (folder / str(seed)).mkdir()
        besiege(folder / str(seed), random.Random(seed))
