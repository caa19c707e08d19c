"""The checker of deaths; `tests/mutants/test_death_checker_mutants.py` shows that each law can fail."""

import pytest

from tests.support import death_laws as laws
from tests.support.mutants import Law

LAWS = (
    laws.a_death_is_owed_by_path,
    laws.nobody_owes_what_no_path_leads_to,
    laws.a_path_counts_from_its_start,
    laws.a_path_that_breaks_counts_anew,
    laws.who_takes_back_that_it_is_cut_off_owes_it_from_then,
    laws.who_could_hear_it_and_is_alone_owes_nothing,
    laws.neighbours_that_know_excuse_nobody_else,
    laws.in_one_room_all_owe_a_death,
    laws.who_hears_nobody_owes_nothing,
    laws.who_misses_one_owes_its_death,
    laws.who_hears_somebody_again_owes_from_then,
    laws.who_hears_one_that_hears_nobody_owes_a_death,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds(law: Law) -> None:
    law()
