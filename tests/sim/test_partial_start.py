"""Mass start, growth through the limit, islands: nobody is called dead for it, and one overlay comes out of it."""

import pytest

from tests.support import partial_start

LAWS = [
    partial_start.a_busy_member_is_not_called_dead,
    partial_start.everybody_narrows,
    partial_start.a_pulse_says_that_a_view_is_partial,
    partial_start.newcomers_are_not_shown_everybody,
    partial_start.newcomers_spare_the_seed,
    partial_start.an_island_of_full_views_is_taken_in,
    partial_start.islands_of_partial_views_grow_together,
    partial_start.a_newcomer_gets_into_a_shrunken_swarm,
    partial_start.a_mass_start_harms_nobody,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds(law):
    law()
