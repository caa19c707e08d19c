"""Bugs of second copies, hunted where a thief has places held and all honest requests want two."""

from .breaks import dropped_in_silence, gives
from .mutant import Mutant

_HOLDS = {"faults.attacks": ["borrow_held"], "offload.copies_share": 1.0}
LENDING: dict[str, Mutant] = {
    "lend-held-never-begin": Mutant(
        "what a lender holds never begins", "offload.lending:Lender.on_held", gives([]), "offload-fuzz", _HOLDS
    ),
    "lend-held-dropped": Mutant(
        "what a lender holds is dropped when it should begin, without a word",
        "offload.lending:Lender.on_held",
        dropped_in_silence,
        "offload-fuzz",
        _HOLDS,
    ),
    "lend-held-has-place": Mutant(
        "what is held keeps its place when there is work", "offload.lending:Lender._make_room", gives([]),
        "offload-fuzz", _HOLDS,
    ),
}  # fmt: skip
"""By name."""
