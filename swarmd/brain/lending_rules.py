"""Whom `[lending]` lets in, as the protocol takes it, and how a rule is told to people."""

from collections.abc import Callable, Mapping

from swarmd.config.lending import LendingSection
from swarmd.config.whom import ATTESTED, SAME_OWNER
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.whom import ATTESTED_RULE, NAME_RULE, OWNER_RULE, ROLE_RULE, Whom

_KEYS = {NAME_RULE: "", ROLE_RULE: "_roles", ATTESTED_RULE: "_must", OWNER_RULE: "_must"}
_SHOWN_MAX = 8
"""Members that are told of in one sentence."""


def whom(settings: LendingSection, side: str) -> Whom:
    """The rule of one side, "lend_to" or "borrow_from"."""
    must = getattr(settings, f"{side}_must")
    return Whom(
        frozenset(getattr(settings, side)),
        frozenset(getattr(settings, f"{side}_roles")),
        ATTESTED in must,
        SAME_OWNER in must,
    )


def told(left_out: Mapping[NodeId, str], name_of: Callable[[NodeId], str]) -> dict[str, str]:
    """Who lends and is not asked, by name, and which key of the configuration says so."""
    return {
        name_of(node): f"lending.borrow_from{_KEYS[rule]}" + (f" ({rule})" if _KEYS[rule] == "_must" else "")
        for node, rule in left_out.items()
    }


def sentence(left_out: Mapping[str, str]) -> str:
    """The same as the end of a sentence; "" where nobody is left out.

    >>> sentence({"drone-2": "lending.borrow_from_roles"})
    '; left out: drone-2 by lending.borrow_from_roles'
    """
    shown = [f"{name} by {key}" for name, key in sorted(left_out.items())]
    more = f" and {len(shown) - _SHOWN_MAX} more" if len(shown) > _SHOWN_MAX else ""
    return f"; left out: {', '.join(shown[:_SHOWN_MAX])}{more}" if shown else ""
