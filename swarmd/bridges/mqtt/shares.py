"""Which of the devices on one broker tells what all of them know: each thing is told once, and nobody coordinates it.

Every device sees on the broker who else is there (the retained `node/+/state`, with the will of who is lost), and in
the swarm who is a member and who is dead. Of those that are left, the one with the highest hash of thing and name tells
it (rendezvous hashing): all devices find the same one, and when it goes, only its things move, evenly to the others.
Devices that see the broker or the swarm differently for a moment may both tell a thing, or for as long as a death is
unknown none; what is retained is told again by whoever takes it over.

Who may publish states can invent devices, which would have the share of each: only members count. So a device that the
others have not heard of in the swarm yet tells everything beside them until they have: twice is harmless, not at all
is not. In a partial view, where nobody knows all members, whoever is on the broker counts.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998.
"""

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from zlib import crc32

from swarmd.api.daemon import DaemonView
from swarmd.bridges.mqtt.topics import topic_token
from swarmd_protocols.effects import MemberState

DEAD = (MemberState.FAILED, MemberState.LEFT, MemberState.AWAY, MemberState.UNREACHABLE)
"""Who tells nothing."""
SHARDS = 64
"""Things are dealt out in so many heaps: the hashes of a thousand devices are found once a heap, not once a thing."""
PRESENT_MAX = 4_096
"""Devices remembered on one broker, as many as a full view has members; who is no member makes room for one."""


class Shares:
    """One device's view of who tells what."""

    def __init__(self, own: str) -> None:
        """Begin alone: whoever sees nobody else tells everything."""
        self._own = own
        self._online: set[str] = set()
        self._dead: frozenset[str] = frozenset()
        self._known: frozenset[str] | None = None
        self._winners: dict[int, tuple[str, str]] = {}

    def heard(self, name: str, *, online: bool) -> bool:
        """What the broker holds of a device's state; whether that changes who tells what."""
        if name == self._own or (name in self._online) == online:
            return False
        if not online:
            self._online.discard(name)
        elif len(self._online) >= PRESENT_MAX and not self._make_room(name):
            return False
        else:
            self._online.add(name)
        if not self._counts(name):
            return False
        self._winners.clear()
        return True

    def _make_room(self, name: str) -> bool:
        """Whether a member has the place of a stranger."""
        known = self._known or ()
        stranger = next((one for one in self._online if one not in known), "") if name in known else ""
        self._online.discard(stranger)
        return bool(stranger)

    def _counts(self, name: str) -> bool:
        return name not in self._dead and (self._known is None or name in self._known)

    def look(self, daemon: DaemonView) -> bool:
        """Who is a member and who is dead, as the swarm has it; whether that changes who tells what."""
        lives: dict[str, bool] = {}
        for member in daemon.members():  # Some of one name: who was enrolled again left its old self behind.
            name = topic_token(member.name)
            lives[name] = lives.get(name, False) or member.state not in DEAD
        dead = (name for name, is_alive in lives.items() if not is_alive)
        return self.dead(dead, None if daemon.in_parts.is_partial else lives)

    def dead(self, names: Iterable[str], members: Iterable[str] | None = None) -> bool:
        """Who has failed, left or gone away in the swarm; whether that changes who tells what.

        Args:
            names: Theirs.
            members: All members' names; None where not all are known.
        """
        before = self._present()
        self._dead = frozenset(names) - {self._own}
        self._known = None if members is None else frozenset(members)
        if self._present() == before:
            return False
        self._winners.clear()
        return True

    def _present(self) -> set[str]:
        return {name for name in self._online if self._counts(name)}

    def forget_all(self) -> None:
        """The broker is gone: whoever is there will be heard of again."""
        self._online.clear()
        self._winners.clear()

    def is_mine(self, thing: str, *, first: str = "", never: str = "") -> bool:
        """Whether this device tells a thing.

        Args:
            thing: Its name, the same on every device.
            first: The device that tells it when it is there, "" for none.
            never: The device that does not, "" for none.
        """
        if first and (first == self._own or (first in self._online and self._counts(first))):
            return first == self._own
        winner, second = self._of(crc32(thing.encode()) % SHARDS)
        return (second if winner == never else winner) == self._own

    def _of(self, shard: int) -> tuple[str, str]:
        """The device that tells a heap, and the next one ("" where there is none)."""
        found = self._winners.get(shard)
        if found is None:
            present = self._present() | {self._own}
            best = sorted(present, key=lambda name: _weight(shard, name), reverse=True)[:2]
            found = self._winners[shard] = (best[0], best[1] if len(best) > 1 else "")
        return found


@cache
def _salt(shard: int) -> bytes:
    return shard.to_bytes(16, "big")


def _weight(shard: int, name: str) -> tuple[bytes, str]:
    return blake2b(name.encode(), digest_size=8, salt=_salt(shard)).digest(), name
