"""What is due in a fleet: computed from its folder, and from what the members of a swarm tell of the trust they hold.

A verb that was stopped half way leaves a duty here, and running it again completes it; nothing else remembers it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarmd.identity import renewal
from swarmd.identity.desk import formerly_revoked, officers
from swarmd.identity.fleet import Fleet
from swarmd_protocols.trust.envelopes import decode_envelope

_NAMED_MAX = 8
"""Names in one line for people; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One thing that is due."""

    what: str
    remedy: str
    """The command."""


def rotation_due(fleet: Fleet, swarm: str) -> bool:
    """Whether somebody who is out knows the newest group key: it does not name a revocation that counts."""
    trust = fleet.trust_of(swarm)
    if not trust.group_keys or not trust.revoked:
        return False
    return not set(trust.known_first()) <= set(trust.group_keys[max(trust.group_keys)].after)


def holders(fleet: Fleet, role: str) -> str:
    """Who can sign for a role, by name where the folder knows them."""
    names = officers(fleet)
    keys, need = fleet.trust_of("x").role(role)
    who = ", ".join(sorted(names.get(key, key.hex()[:8]) for key in keys))
    return f"{need} of: {who}" if who else "nobody: give it keys with swarmd keys prepare root"


def duties(fleet: Fleet, swarm: str) -> list[Duty]:
    """What the folder alone says is due in a swarm."""
    place = f"{fleet.folder} --swarm {swarm}"
    found = []
    trust = fleet.trust_of(swarm)
    if not trust.group_keys:
        found.append(Duty(f"swarm {swarm} has no group key", f"swarmd keys rotate {place}"))
    elif rotation_due(fleet, swarm):
        text = "a new group key, since who is out knows the present one; the role enrol makes it ({})"
        found.append(Duty(text.format(holders(fleet, "enrol")), f"swarmd keys rotate {place} --control SOCKET"))
    if again := formerly_revoked(fleet, swarm):
        names = {one.node: one.name for one in fleet.nodes(swarm)}
        who = listed([names.get(node, node.hex()) for node in again])
        text = f"nodes that keys which were replaced since had shut out are in again: {who}; if they are to stay out"
        found.append(Duty(text, f"swarmd keys prepare revoke {place} --again --reason REASON -o FILE"))
    stale = renewal.due(fleet, swarm)
    if stale:
        text = f"certificates that enrol keys in force have not signed: {listed(stale)}"
        found.append(Duty(text, f"swarmd keys renew {place} --control SOCKET"))
    return found


def duties_of_members(fleet: Fleet, swarm: str, told: Mapping[str, Any]) -> list[Duty]:
    """What a swarm lacks of what was signed, and what it has that the folder lacks.

    Args:
        fleet: The fleet's folder.
        swarm: The swarm.
        told: The answer to the control verb `trust_status`.
    """
    trust, found = fleet.trust_of(swarm), []
    push = f"swarmd keys push {fleet.folder} --swarm {swarm} --control SOCKET"
    out = {row["node"] for row in told["revoked"]}
    lacks = []
    if told["root"] < trust.root.version:
        lacks.append(f"root {trust.root.version}")
    if missing := sorted({node.hex() for node in trust.revoked} - out):
        lacks.append(f"{len(missing)} revocations")
    if trust.group_keys and told["group_key"] < max(trust.group_keys):
        lacks.append(f"group key {max(trust.group_keys)}")
    if lacks:
        found.append(Duty(f"the swarm has not heard of {', '.join(lacks)}", push))
    if told["root"] > trust.root.version:
        text = f"the swarm holds root {told['root']}, this folder root {trust.root.version}"
        found.append(Duty(text, "bring the folder up to date from the desk where that root was made"))
    found += _strangers(fleet, swarm, told["members"])
    behind = [row["name"] for row in told["members"] if _is_behind(row, told)]
    if behind:
        text = f"members that do not tell of the newest root and group key yet: {listed(behind)}"
        found.append(Duty(text, "nothing where they are away: they get it when they come back"))
    return found


def _strangers(fleet: Fleet, swarm: str, members: Sequence[Mapping[str, Any]]) -> list[Duty]:
    """Members whose certificate is not in the folder: a new root cannot name it, and they would fall."""
    known = recorded(fleet, swarm)
    found = [row["name"] for row in members if row["certificate"] and row["certificate"] not in known]
    if not found or fleet.is_dev:
        return []
    text = f"members whose certificates are not in this folder, and would fall with new enrol keys: {listed(found)}"
    return [Duty(text, "bring them from the desk where these nodes were enrolled (FLEET/swarms/*/node-*)")]


def recorded(fleet: Fleet, swarm: str) -> set[str]:
    """The first 16 hex digits of the digest of each certificate in the folder, as members tell theirs."""
    paths = (fleet.folder / "swarms" / swarm).glob("node-*")
    return {decode_envelope(path.read_bytes()).digest.hex()[:16] for path in paths}


def _is_behind(row: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    if row["state"] in ("left", "failed"):
        return False
    return bool((row["root"] or 0) < told["root"] or (row["group_key"] or 0) < told["group_key"])


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
