"""Which thumbnails a recording asks for, how often, how many it takes, and which of them are shown."""

import asyncio

import msgspec
import pytest

from swarmd.bridges.record import thumbs
from swarmd.bridges.record.thumbs import AGAIN_LOOKS, ASKED_A_LOOK, ThumbTaker
from swarmd.errors import DaemonError
from swarmd.ground import thumbs as shown
from swarmd.ground.thumbs import HeldThumbs
from swarmd_protocols.state.observations import ObjectView
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import ThumbLearned
from tests.support.bridge_world import object_view
from tests.support.thumb_pictures import jpeg


def things(*pictures: bytes) -> list[ObjectView]:
    """An object for each picture."""
    return [
        msgspec.structs.replace(object_view(f"o{number}"), thumb=name_of(one)) for number, one in enumerate(pictures)
    ]


def test_pictures_are_asked_for_a_few_at_a_time_and_again_after_a_minute() -> None:
    asked: list[bytes] = []
    taker = ThumbTaker(lambda name: asked.append(name) is None)
    pictures = [jpeg(number) for number in range(2 * ASKED_A_LOOK + 1)]
    taker.know([*things(*pictures), object_view("plain")])
    for count in range(1, 4):
        taker.look()
        assert len(asked) == min(count * ASKED_A_LOOK, len(pictures))
    for _ in range(AGAIN_LOOKS - 4):
        taker.look()
    assert len(asked) == len(set(asked)) == len(pictures), "nothing twice within a minute"
    assert taker.take(ThumbLearned(name_of(pictures[0]), pictures[0])) == ["o0"]
    for _ in range(4):
        taker.look()
    assert sorted(asked[len(pictures) :]) == sorted(map(name_of, pictures[1:])), "but what has come"


def test_names_that_nobody_gives_keep_no_others_picture_out() -> None:
    """A member's 200 objects with pictures that it never gives were asked for for ever, and nothing behind them was."""
    asked: list[bytes] = []
    taker = ThumbTaker(lambda name: asked.append(name) is None)
    lies = [
        msgspec.structs.replace(object_view(f"l{number}"), thumb=number.to_bytes(16, "big"))
        for number in range(2 * ASKED_A_LOOK * AGAIN_LOOKS)
    ]
    (honest,) = things(jpeg(1))
    taker.know([*lies, honest])
    for _ in range(3 * AGAIN_LOOKS):
        taker.look()
    assert honest.thumb in asked


def test_a_better_picture_is_written_too_and_what_is_gone_is_not() -> None:
    taker = ThumbTaker(lambda name: True)
    first, better = jpeg(1), jpeg(2)
    taker.know(things(first))
    assert taker.take(ThumbLearned(name_of(first), b"", "its author keeps it no more")) == []
    assert taker.take(ThumbLearned(name_of(first), first)) == ["o0"]
    taker.know(things(first))
    assert taker.take(ThumbLearned(name_of(first), first)) == [], "once"
    taker.know(things(better))
    assert taker.take(ThumbLearned(name_of(better), better)) == ["o0"]
    taker.know(things(jpeg(3)))
    taker.know([])
    assert taker.take(ThumbLearned(name_of(jpeg(3)), jpeg(3))) == []


def test_a_node_without_a_part_in_them_is_asked_for_one_a_look() -> None:
    asked: list[bytes] = []
    taker = ThumbTaker(lambda name: bool(asked.append(name)))
    taker.know(things(jpeg(1), jpeg(2), jpeg(3)))
    taker.look()
    assert len(asked) == 1


def test_a_recording_holds_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thumbs, "PICTURES_MAX", 2)
    asked: list[bytes] = []
    taker = ThumbTaker(lambda name: asked.append(name) is None)
    one = jpeg(1)
    taker.know(things(one, one, one, jpeg(2)))
    assert taker.take(ThumbLearned(name_of(one), one)) == ["o0", "o1"]
    taker.look()
    assert asked == []
    assert taker.take(ThumbLearned(name_of(jpeg(2)), jpeg(2))) == []


def test_what_is_not_the_picture_of_its_name_is_not_written() -> None:
    """Whoever put it on the bus."""
    for answer in (jpeg(2), b"<svg/>", jpeg(1)[:-1]):
        taker = ThumbTaker(lambda name: True)
        taker.know([*things(jpeg(1)), msgspec.structs.replace(object_view("o2"), thumb=name_of(answer))])
        assert taker.take(ThumbLearned(name_of(jpeg(1)), answer)) == []
        if answer != jpeg(2):
            assert taker.take(ThumbLearned(name_of(answer), answer)) == []


def test_a_strangers_recording_shows_pictures_of_the_form_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldThumbs()
    for data in (b"<svg/>", jpeg(1)[:-1], jpeg(1) + b"x" * 9_000):
        assert held.put(data) == ""
        with pytest.raises(DaemonError, match="no picture"):
            asyncio.run(held.get(name_of(data).hex(), 1.0))
    monkeypatch.setattr(shown, "RECORDED_MAX", 1)
    assert held.put(jpeg(1)) == held.put(jpeg(1)) == name_of(jpeg(1)).hex()
    assert held.put(jpeg(2)) == "", "and no more than there is room for"
    assert asyncio.run(held.get(name_of(jpeg(1)).hex(), 1.0)) == jpeg(1)
