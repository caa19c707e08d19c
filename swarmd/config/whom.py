"""Whom `[lending]` lets in: what of its rules can be judged without a certificate, and what only with the own one."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarmd.config.lending import LendingSection
    from swarmd.config.sections import Config

ATTESTED, SAME_OWNER = MUST = ("attested", "same-owner")
"""What a member may have to be, beside its name and its roles."""
OWNER = "owner:"
"""How the role begins that names a member's owner (`swarmd_protocols.offload.whom`)."""
ROLE_MAX_CHARS = 32
"""Of a role in a certificate; a longer one is in none."""
NAME_MAX_CHARS = 64
"""Of a name in a certificate."""
DEV_ROLES = frozenset(["gateway"])
"""What certificates of a development fleet may say."""
SIDES = ("lend_to", "borrow_from")

Problem = tuple[str, str]
"""A key, "lending.lend_to_roles", and why what it says lets nobody in."""


def impossible(config: "Config") -> Iterator[Problem]:
    """Rules that no certificate of any member could hold to."""
    for side in SIDES:
        names, roles, must = _rule(config.lending, side)
        if unknown := [text for text in must if text not in MUST]:
            yield f"lending.{side}_must", f"holds {unknown[0]!r}; it may hold: {', '.join(MUST)}"
        for text in roles:
            if not 0 < len(text) <= ROLE_MAX_CHARS:
                yield f"lending.{side}_roles", f"holds {text!r}; a role has 1 to {ROLE_MAX_CHARS} characters"
        for text in names:
            if not 0 < len(text) <= NAME_MAX_CHARS:
                yield f"lending.{side}", f"holds {text!r}; a member's name has 1 to {NAME_MAX_CHARS} characters"
        if config.swarm.dev_fleet and (must or (roles and not DEV_ROLES.intersection(roles))):
            key = f"lending.{side}_{'must' if must else 'roles'}"
            yield key, "lets nobody in: certificates of a development fleet say nothing of it"


def unmatched(settings: "LendingSection", name: str, roles: Sequence[str]) -> Iterator[Problem]:
    """Rules that with this device's own certificate let nobody in.

    Args:
        settings: Whom the owner lets in.
        name: That this device was enrolled under.
        roles: Of its certificate.
    """
    owners = sorted({role for role in roles if role.startswith(OWNER)})
    for side, is_on in zip(SIDES, (settings.lend, settings.borrow), strict=True):
        named, wanted, must = _rule(settings, side)
        if not is_on:
            continue
        if named and not set(named) - {name}:
            yield f"lending.{side}", f"names this device alone ({name}), which needs no leave of its own"
        if SAME_OWNER not in must:
            continue
        if len(owners) != 1 or owners == [OWNER]:
            said = f"names {len(owners)} owners" if len(owners) > 1 else "names no owner"
            yield (
                f"lending.{side}_must",
                (
                    f"asks for the same owner, and this device's own certificate {said}: enrol it with one "
                    f"`--role {OWNER}NAME`"
                ),
            )
        elif wanted and all(role.startswith(OWNER) for role in wanted) and owners[0] not in wanted:
            yield f"lending.{side}_roles", f"asks for another owner than {owners[0]}, and {side}_must for the same one"


def _rule(settings: "LendingSection", side: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return getattr(settings, side), getattr(settings, f"{side}_roles"), getattr(settings, f"{side}_must")
