"""Two swarms of different owners in one place: what a hostile one cannot do, what ends, what outlasts a restart."""

import pytest

from tests.support import neighbour_laws as laws


@pytest.mark.parametrize(
    "law",
    [
        laws.write_as_another,
        laws.speak_after_revocation,
        laws.flood,
        laws.play_back,
        laws.read_what_is_not_shared,
        laws.hold_for_ever,
        laws.meet_again_after_a_restart,
        laws.agree_by_nobody,
        laws.introduce_unasked,
    ],
    ids=lambda law: law.__name__,
)
def test_neighbours(law) -> None:  # type: ignore[no-untyped-def]
    law()
