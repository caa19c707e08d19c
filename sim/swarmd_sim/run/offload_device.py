"""One device of a simulated fleet that lends or borrows, and one request of a program on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.offload import Offload
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload_fleet import (
    BUNDLE,
    KINDS,
    LARGER_BUNDLE,
    PARTS,
    TRAFFIC,
    Kind,
    is_judge,
    judge_of,
    size_of,
    version_of,
)
from swarmd_sim.run.processor import Processor


def answer_to(digest: bytes, data: bytes) -> bytes:
    """What an honest device answers; a part's answer is as long as what lies at its end."""
    return (sha256(digest + data).digest() + digest).ljust(size_of(digest), b"\0")


def is_well_formed(digest: bytes, data: bytes) -> bool:
    """What a borrower can see of an answer without a model."""
    return len(data) == max(64, size_of(digest)) and data[32:64] == digest


@dataclass(slots=True)
class Asked:
    """One request of a host's program."""

    host: int
    life: int
    number: int
    digest: bytes
    data: bytes
    at_ns: int
    deadline_ns: int
    """Virtual."""
    oracle_ns: int
    """What a clairvoyant would have needed; 0: nobody could have answered."""
    settled_ns: int = 0
    data_out: bytes | None = None
    lender: bytes | None = None
    settles: int = 0
    has_own: bool = False
    copies: int = 1
    keep_ns: int = 0
    is_kept: bool = False
    taken: list[tuple[int, int]] = field(default_factory=list)
    """Lenders that began with it, and their lives."""
    dead: int = 0
    """Of those, that had died when it was through."""
    ran: list[tuple[int, int, int]] = field(default_factory=list)
    """Inferences that lenders ran for it: which, in which life, and until when."""
    then: Callable[["Asked", requests.Settle], None] | None = None
    only: NodeId | None = None
    """The lender that is to answer, this one or none."""


@dataclass(slots=True)
class Device:
    """One host's part."""

    host: Host
    kind: str
    is_liar: bool
    processor: Processor
    resident: list[int] = field(default_factory=lambda: [0])
    """Versions that it has in memory; in traffic alone."""
    protocol: Offload | None = None
    number: int = 0
    open: dict[int, Asked] = field(default_factory=dict)
    wrong: dict[bytes, int] = field(default_factory=dict)
    """Wrong answers by lender that this life has found out."""
    wrong_ns: dict[bytes, int] = field(default_factory=dict)
    """When the last of them was told."""
    queues_ns: tuple[int, int] = (0, 0)
    """What its driver last said that its own work takes before others', and what it said before that."""

    @property
    def about(self) -> Kind:
        """Its kind."""
        return KINDS[self.kind]

    def unit_ns(self, digest: bytes) -> int:
        """One inference; 0: it does not have the bundle."""
        units = self.about.units
        if not is_judge(digest):
            return units.get(digest, 0)
        return units.get(judge_of(digest), 0) if version_of(digest) in self.resident else 0

    def held(self) -> list[tuple[bytes, int]]:
        """Bundles in memory, and one inference of each."""
        parts = (part.digest for part in PARTS.parts)
        every = (BUNDLE, LARGER_BUNDLE, *parts, *(digest for digests in TRAFFIC for digest in digests))
        return [(digest, unit_ns) for digest in every if (unit_ns := self.unit_ns(digest))]
