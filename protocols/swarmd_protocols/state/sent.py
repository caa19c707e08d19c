"""What the replicated state sends, by kind: where a device's bytes go.

news      facts, passed on unasked
claims    lease records, passed on unasked
records   counters, status and events, said unasked
names     names of what was news of late
digests   summaries and hashes by which two nodes find where they differ
asks      for what a peer has named or shown
answers   batches that were asked for
proofs    two batches under one number
keys      certificates, and questions for them
clock     questions for the time, and their answers
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from swarmd_protocols.subprotocol import Send, SubEffect

Kind: TypeAlias = Literal["news", "claims", "records", "names", "digests", "asks", "answers", "proofs", "keys", "clock"]


class Sent:
    """Payload bytes and messages since this life began, by kind."""

    def __init__(self) -> None:
        """Nothing was sent."""
        self._bytes: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
        self._messages: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)

    def count(self, kind: Kind, effects: list[SubEffect]) -> list[SubEffect]:
        """Book what is about to be sent; returns the same effects."""
        for effect in effects:
            if isinstance(effect, Send):
                self._bytes[kind] += len(effect.payload)
                self._messages[kind] += 1
        return effects

    def ride(self, kind: Kind, payloads: list[bytes]) -> list[bytes]:
        """Book what rides in a probe; returns the same payloads."""
        self._bytes[kind] += sum(map(len, payloads))
        self._messages[kind] += len(payloads)
        return payloads

    def figures(self) -> Mapping[str, int]:
        """`KIND_bytes` and `KIND_messages`."""
        return {
            **{f"{kind}_bytes": size for kind, size in self._bytes.items()},
            **{f"{kind}_messages": count for kind, count in self._messages.items()},
        }
