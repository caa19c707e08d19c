"""A node writes its own past down: minutes that touch, whatever the clock does; nothing lost, nothing too large."""

import random

from swarmd.brain.past_link import COUNTED, PAGE_NS, SEAL_NS, OwnPast
from swarmd.events.record import EventRecord
from swarmd_protocols.past.pages import PAGE_MAX_BYTES, Page, holds, read_page
from swarmd_protocols.past.spans import joined
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.positions import Place, SayPlace
from swarmd_protocols.trust.identity import read_certificate
from tests.support.past_world import CRYPTO, identity

ONE = identity("drone-1")
KEY = read_certificate(ONE.certificate).public_key
S = 1_000_000_000
BASE_MS = 215_000_000_000
SIGNER = NodeSigner(CRYPTO, ONE.seed)


class Clock:
    """Swarm time that can be set."""

    def __init__(self) -> None:
        self.offset_ms = BASE_MS

    def ms(self, now_ns: int) -> int:
        return self.offset_ms + now_ns // 1_000_000


def own(clock: Clock, boot: int = 3) -> OwnPast:
    counted = {"detections_shared": 4, "something_else": 1}
    return OwnPast(ONE.node, SIGNER, boot, clock.ms, lambda: counted)


def happened(number: int, reason: str = "") -> EventRecord:
    return EventRecord(0, "drone-1", ONE.node.hex(), 9, number, "started", "x", reason, "")


def read(past: OwnPast) -> list[Page]:
    pages = past.take()
    assert all(holds(data, KEY, SIGNER) and len(data) <= PAGE_MAX_BYTES for data in pages)
    return [read_page(data) for data in pages]


def test_a_quiet_node_has_a_page_a_minute_and_they_touch() -> None:
    past = own(Clock())
    for second in range(601):
        past.tick(second * S)
    pages = read(past)
    assert len(pages) == 10
    assert joined((page.from_ms, page.to_ms) for page in pages) == [(BASE_MS, BASE_MS + 600_000)]
    assert [page.number for page in pages] == [(3 << 28) + at for at in range(1, 11)]
    assert pages[0].counters == (("detections_shared", 4),)
    assert set(COUNTED) >= {name for name, _ in pages[0].counters}


def test_everything_that_happened_is_in_a_page_at_its_time() -> None:
    past, rng = own(Clock()), random.Random(4)
    for number in range(1, 1_500):
        past.note_event(happened(number, "§" * rng.randrange(240)), number * S // 4)
        place = Place(number, number, 0, None, 0, None)
        past.note_place(SayPlace(place, 0), number * S // 4)
    past.end(1_500 * S // 4)
    pages = read(past)
    events = [(page.from_ms + one.at - BASE_MS, one.number) for page in pages for one in page.events]
    assert events == [(number * 250, number) for number in range(1, 1_500)]
    places = [(page.from_ms + one.at - BASE_MS, one.latitude_e7) for page in pages for one in page.places]
    assert places == events
    assert len(joined((page.from_ms, page.to_ms) for page in pages)) == 1


def test_a_node_that_stands_still_says_it_seldom_and_a_lost_fix_at_once() -> None:
    past = own(Clock())
    here = Place(1, 2, 3, None, 0, None)
    for second in range(60):
        past.note_place(SayPlace(here, second), second * S)
    past.note_place(SayPlace(None, 0), 60 * S - 1)
    past.end(61 * S)
    places = [one.place for page in read(past) for one in page.places]
    assert places == [here, here, None]


def test_an_asker_closes_a_page_that_is_not_just_begun() -> None:
    past = own(Clock())
    past.note_event(happened(1), 0)
    past.seal_for_asker(SEAL_NS - S)
    assert read(past) == []
    past.seal_for_asker(SEAL_NS)
    (page,) = read(past)
    assert (page.to_ms - page.from_ms, len(page.events)) == (SEAL_NS // 1_000_000, 1)
    for second in range(6, PAGE_NS // S + 1):
        past.tick(second * S)
    assert read(past) == [], "the next minute begins anew"


def test_a_clock_that_is_set_and_a_machine_that_sleeps_leave_a_gap_not_a_lie() -> None:
    clock = Clock()
    past = own(clock)
    for second in range(10):
        past.tick(second * S)
    clock.offset_ms -= 3_600_000
    past.note_event(happened(1), 10 * S)
    past.tick(11 * S)
    past.tick(300 * S)
    past.note_event(happened(2), 301 * S)
    past.end(302 * S)
    spans = [(page.from_ms - BASE_MS, page.to_ms - BASE_MS) for page in read(past)]
    assert spans == [(0, 9_000), (-3_590_000, -3_589_000), (-3_300_000, -3_298_000)]


def test_numbers_rise_over_restarts() -> None:
    first, second = own(Clock(), 5), own(Clock(), 6)
    first.end(S)
    for one in (first, second):
        one.tick(0)
        one.end(PAGE_NS)
    assert read(first)[-1].number < read(second)[0].number
