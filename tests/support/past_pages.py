"""What an observer has fetched of two drones: pages with holes, as the ground view reads them."""

from collections.abc import Sequence
from pathlib import Path

from swarmd.events.pages import Fetched, PageBounds, PageFile, record_of
from swarmd.events.record import EventRecord
from swarmd.events.store import Query
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past.fetching import OFF, UNREACHABLE, WHOLE, Stretch
from swarmd_protocols.past.pages import PastPlace, new_page, sign_page
from swarmd_protocols.past.spans import common, joined, without
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.crdt.batch import NodeSigner
from tests.support.past_world import BEGIN_MS, CRYPTO, event, identity, minutes

EPOCH_MS = EPOCH_2020_NS // 1_000_000
OWN, ONE, TWO, NINE = (identity(name) for name in ("laptop", "drone-1", "drone-2", "drone-9"))
NAMES = {ONE.node: "drone-1", TWO.node: "drone-2\u202e", NINE.node: "drone-9"}
BEGIN_S = (BEGIN_MS + EPOCH_MS) / 1000


class Pages:
    """What a daemon fetched."""

    def __init__(self, folder: Path, pages: Sequence[bytes], members: Sequence[NodeId] = (ONE.node, TWO.node)) -> None:
        self.members = members
        self.file = PageFile(folder / "past.sqlite", OWN.node, PageBounds(max_age_ms=1 << 45))
        self.file.open()
        self.file.add(pages, BEGIN_MS)

    def want(self, from_s: float, to_s: float) -> None:
        raise AssertionError("looking fetches nothing")

    def stretches(self, from_s: float, to_s: float) -> list[Stretch]:
        span = (int(from_s * 1000) - EPOCH_MS, int(to_s * 1000) - EPOCH_MS)
        found = []
        for node in self.members:
            held = joined(
                (one.page.from_ms, one.page.to_ms) for one in self.file.between(0, 1 << 45) if one.author == node
            )
            found += [Stretch(node, *part, WHOLE) for part in common(span, held)]
            found += [Stretch(node, *part, OFF if node == ONE.node else UNREACHABLE) for part in without(span, held)]
        return found

    async def between(self, from_s: float, to_s: float) -> list[Fetched]:
        return self.file.between(int(from_s * 1000) - EPOCH_MS, int(to_s * 1000) - EPOCH_MS)

    async def newest(self, at_s: float) -> list[Fetched]:
        return self.file.newest(int(at_s * 1000) - EPOCH_MS)

    async def events(self, query: Query) -> list[EventRecord]:
        return self.file.events(query, NAMES)

    def records(self, one: Fetched) -> list[EventRecord]:
        return [record_of(one.author, self.name_of(one.author), one.page.from_ms, each) for each in one.page.events]

    def name_of(self, node: NodeId) -> str:
        return NAMES[node]


def flown() -> list[bytes]:
    """Ten minutes of drone-1, a hole, five more; seven of drone-2, in the last of which it loses its fix."""
    places = (PastPlace(1_000, 480_001_000, 110_001_000, 3_000, 9_000, 40, 500), PastPlace(30_000))
    happened = (event(9, 9, "drone-9", "failed"),)
    last = new_page(TWO.node, 7, (BEGIN_MS + 360_000, BEGIN_MS + 420_000), happened, places, ())
    return [
        *minutes(ONE, 10, places=60),
        *minutes(ONE, 5, BEGIN_MS + 900_000, 20),
        *minutes(TWO, 6),
        sign_page(last, NodeSigner(CRYPTO, TWO.seed)),
    ]
