"""A file whose list of chunks is not here yet: who has spoken of it, and who is asked for the list."""

import random
from hashlib import sha256

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.cast_exchange import say_to
from swarmd_protocols.releases.messages import PREFIX_BYTES, AskList
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.subprotocol import SubEffect

_PATIENCE_NS = 400_000_000
"""A peer's time to answer with the list, nanoseconds: two retransmissions of TCP (0.2 s each) …"""
_PATIENCE_NS_BYTE = 8_000
"""… and the list at 1 Mbit/s. Then another is asked."""
MAX_TOLD = 64
"""Peers whose word about a file is kept while its list of chunks is not here."""


class Waiting(msgspec.Struct):
    """See the module."""

    blob: Blob
    told: dict[NodeId, int] = msgspec.field(default_factory=dict)
    """Who has it, and which chunks each shows."""
    asked: NodeId | None = None
    asked_ns: int = 0
    is_opening: bool = True
    """The storage has not said yet what of it lies here."""

    def hear(self, sender: NodeId, mask: bytes) -> bool:
        """A peer shows its chunks; whether it has any, and so has the list."""
        if len(self.told) >= MAX_TOLD and sender not in self.told:
            return False
        self.told[sender] = int.from_bytes(mask, "little")
        return bool(self.told[sender])

    def has_none(self, sender: NodeId) -> None:
        """A peer has no list to give, whatever it has shown: it is asked again once it shows chunks anew."""
        self.asked_ns = 0
        if sender in self.told:
            self.told[sender] = 0

    def is_list(self, hashes: bytes) -> bool:
        """Whether these are the hashes that the manifest names."""
        good = len(hashes) == 32 * self.blob.chunk_count
        return good and sha256(hashes).digest() == self.blob.chunks_sha256

    def ask(self, rng: random.Random, now_ns: int) -> list[SubEffect]:
        """Ask somebody for the list, unless somebody has still time to answer."""
        if self.is_opening:
            return []
        patience_ns = _PATIENCE_NS + _PATIENCE_NS_BYTE * 32 * self.blob.chunk_count
        if self.asked in self.told and now_ns - self.asked_ns < patience_ns:
            return []
        if self.asked is not None and self.asked_ns == 0 and len(self.told) < 2 and not any(self.told.values()):
            return []  # The only peer has none; it is asked once it shows chunks.
        others = [node for node in self.told if node != self.asked] or list(self.told)
        others = [node for node in others if self.told[node]] or others  # One that shows chunks has the list.
        if not others:
            return []
        self.asked, self.asked_ns = rng.choice(others), now_ns
        return [say_to(self.asked, AskList(self.blob.sha256[:PREFIX_BYTES]))]
