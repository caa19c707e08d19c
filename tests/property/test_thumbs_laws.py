"""Laws of thumbnails: what is not the picture of its name is never shown; fetched once; bounded; members only."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import StateError
from swarmd_protocols.thumbs import fetching, messages, shelf
from swarmd_protocols.thumbs.fetching import FetchConfig
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import JOURNAL, Shelve, ThumbLearned
from swarmd_protocols.thumbs.shelf import ShelfConfig
from swarmd_protocols.thumbs.thumbs import SWEEP_NS, ThumbsConfig
from swarmd_sim.run.thumbs import picture_of
from tests.support.thumb_net import S, ThumbNet, id_of
from tests.support.thumb_pictures import hostile

GOOD = picture_of(1)
TWISTS: dict[str, Callable[[bytes], bytes]] = {
    "another picture under the name": lambda payload: payload[:17] + picture_of(99),
    "another name": lambda payload: payload[:1] + bytes(16) + payload[17:],
    "cut short": lambda payload: payload[:-9],
    "longer": lambda payload: payload + b"more",
    "a bomb under its own name": lambda payload: messages.encode(
        messages.Here(name_of(hostile()["a bomb"]), hostile()["a bomb"])
    ),
    "something that is no message": lambda payload: b"\x07" + payload[1:],
    "nothing": lambda payload: b"",
}


def shown(net: ThumbNet, index: int) -> list[ThumbLearned]:
    return net.devices[index].shown


@pytest.mark.parametrize("what", TWISTS)
def test_what_is_not_the_picture_of_its_name_is_never_shown(what: str) -> None:
    net = ThumbNet(2)
    name = net.see(0, GOOD)
    net.twist = lambda sender, payload: TWISTS[what](payload) if sender == 0 else payload
    net.look(1, name)
    net.run(30)
    assert [one.jpeg for one in shown(net, 1)] == [b""]
    assert "does not answer" in shown(net, 1)[0].problem


def test_a_picture_comes_and_is_fetched_once() -> None:
    net = ThumbNet(3)
    name = net.see(0, GOOD)
    for _ in range(5):
        net.look(1, name)
    net.run(5)
    for _ in range(5):
        net.look(1, name)
    assert shown(net, 1) == [ThumbLearned(name, GOOD)] * 6
    assert net.sent == {"Ask": 1, "Here": 1}
    net.look(0, name)  # Its author has it without asking.
    assert shown(net, 0) == [ThumbLearned(name, GOOD)]
    assert net.sent == {"Ask": 1, "Here": 1}


def test_what_nobody_asked_for_is_not_taken() -> None:
    net = ThumbNet(3)
    name = net.see(0, GOOD)
    here = messages.encode(messages.Here(name, GOOD))
    net.deliver(0, 1, here)
    net.look(1, name)
    net.on_way.clear()
    net.deliver(2, 1, here)  # Not who was asked.
    assert shown(net, 1) == []
    assert len(net.devices[1].rejected) == 2


def test_only_members_are_answered_and_only_they_are_asked() -> None:
    net = ThumbNet(3)
    name = net.see(0, GOOD)
    net.members.discard(2)  # Revoked: no peer of anybody's any more.
    net.meet()
    net.deliver(2, 0, messages.encode(messages.Ask(name)))
    assert net.sent == {}
    theirs = net.see(2, picture_of(2))
    net.look(1, theirs)
    net.run(10)
    assert net.sent == {}
    assert [one.jpeg for one in shown(net, 1)] == [b""]


def test_what_no_sighting_names_is_neither_asked_for_nor_given() -> None:
    net = ThumbNet(2)
    with pytest.raises(StateError, match="no sighting"):
        net.look(1, name_of(GOOD))
    name = net.see(0, GOOD)
    net.look(1, name)
    net.run(1)
    net.devices[0].names.clear()  # The sighting has expired, everywhere.
    with pytest.raises(StateError, match="no sighting"):
        net.look(1, name)
    net.deliver(1, 0, messages.encode(messages.Ask(name)))
    net.run(1)
    assert net.sent["Here"] == 1
    net.run(2 * SWEEP_NS / S)
    assert net.devices[0].disk == {}
    assert [net.devices[i].thumbs.held()[what] for i, what in ((0, "own"), (1, "others"))] == [0, 0]


def test_pictures_outlive_a_restart_and_what_is_none_does_not() -> None:
    net = ThumbNet(2)
    name = net.see(0, GOOD)
    net.devices[0].disk[JOURNAL + bytes(16)] = b"not a picture"
    net.reboot(0)
    assert net.devices[0].disk == {JOURNAL + name: GOOD}
    net.look(1, name)
    net.run(1)
    assert shown(net, 1) == [ThumbLearned(name, GOOD)]


def test_another_author_is_asked_where_the_first_has_it_no_more() -> None:
    net = ThumbNet(3)
    name = net.see(0, GOOD)
    net.see(1, GOOD)
    for gone in ("lack", "silent"):
        net.devices[0].disk.clear()
        net.reboot(0)  # It lost its disk.
        net.silent = {0} if gone == "silent" else set()
        net.reboot(2)
        net.devices[2].shown.clear()
        net.look(2, name)
        net.run(20)
        assert shown(net, 2) == [ThumbLearned(name, GOOD)], gone


def test_who_is_out_of_reach_is_not_asked_and_that_is_said() -> None:
    net = ThumbNet(2)
    name = net.see(0, GOOD)
    net.far = {0}
    net.meet()
    net.look(1, name)
    assert net.sent == {}
    assert "cannot be reached" in shown(net, 1)[0].problem
    net.far = set()
    net.meet()
    net.look(1, name)  # Said again from memory, until a while has passed.
    assert net.sent == {}
    net.run(fetching.FAILED_NS / S)
    net.look(1, name)
    net.run(1)
    assert [bool(one.jpeg) for one in shown(net, 1)] == [False, False, True]


def test_the_eye_is_not_believed_either() -> None:
    net = ThumbNet(1)
    for what, data in hostile().items():
        with pytest.raises(StateError):
            net.devices[0].thumbs.on_command(Shelve(data), 0)
        assert net.devices[0].disk == {}, what


def test_nobody_makes_a_node_give_more_than_its_rate() -> None:
    net = ThumbNet(8)
    names = [net.see(0, picture_of(number)) for number in range(40)]
    for _ in range(100):
        for asker in range(1, 8):
            for name in names:
                net.deliver(asker, 0, messages.encode(messages.Ask(name)))
        net.run(0.1)
    config = ShelfConfig()
    assert 0 < net.sent["Here"] <= config.all_at_once + config.all_per_s * 10 * 1.1
    assert net.sent["Lack"] == 0


def test_one_asker_leaves_room_for_the_others() -> None:
    net = ThumbNet(3)
    names = [net.see(0, picture_of(number)) for number in range(4)]
    for _ in range(50):
        net.deliver(1, 0, messages.encode(messages.Ask(names[0])))
    given = net.sent["Here"]
    assert given == shelf.ASKED_AT_ONCE
    net.deliver(2, 0, messages.encode(messages.Ask(names[1])))
    assert net.sent["Here"] == given + 1


@pytest.mark.parametrize("hostile_count", [3, 12, 40])
def test_askers_that_agree_leave_another_its_turn(hostile_count: int) -> None:
    net = ThumbNet(hostile_count + 2)
    names = [net.see(0, picture_of(number)) for number in range(9)]
    honest = hostile_count + 1
    asks = [messages.encode(messages.Ask(name)) for name in names]
    for asker in range(1, honest):
        for _ in range(shelf.ASKED_AT_ONCE):
            net.deliver(asker, 0, asks[0])
    for step in range(800):  # Forty seconds.
        for at in range(4):
            net.deliver(1 + (step * 4 + at) % hostile_count, 0, asks[1 + at])
        if step % 60 == 0:
            net.deliver(honest, 0, asks[8])
        net.run(0.05)
    answered = len(net.devices[honest].rejected)  # Each is an answer: none of them looks for one.
    share = ShelfConfig().all_per_s * 40 / (hostile_count + 1)
    assert answered >= min(13, share * 3 // 4), f"{answered} of 14 questions are answered"
    assert net.sent["Here"] <= ShelfConfig().all_at_once + ShelfConfig().all_per_s * 40 * 1.1


def test_what_waits_for_a_turn_is_answered_or_let_go() -> None:
    net = ThumbNet(4, ThumbsConfig(ShelfConfig(all_per_s=2, all_at_once=1)))
    names = [net.see(0, picture_of(number)) for number in range(8)]
    for asker in (1, 2, 3):
        for name in names:
            net.deliver(asker, 0, messages.encode(messages.Ask(name)))
    net.run(20)
    assert 5 <= net.sent["Here"] <= 7, "none is answered later than it is waited for"
    assert not net.devices[0].thumbs._shelf.waits


def test_a_page_full_of_pictures_comes_at_the_authors_rate() -> None:
    net = ThumbNet(2)
    names = [net.see(0, picture_of(number)) for number in range(40)]
    for name in names:
        net.look(1, name)
    net.run(40 / shelf.ASKED_PER_S + 2)
    assert {one.name for one in shown(net, 1) if one.jpeg} == set(names)
    assert net.sent == {"Ask": 40, "Here": 40}  # Nothing was asked for twice: the asker keeps to the rate by itself.


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=80))
def test_what_is_held_is_bounded_in_all_and_of_each_author(seen: list[tuple[int, int]]) -> None:
    config = ThumbsConfig(
        ShelfConfig(count_max=6, bytes_max=10_600, all_per_s=1e6, all_at_once=1000),
        FetchConfig(count_max=9, bytes_max=16_900, author_max=4),
    )
    net = ThumbNet(4, config)
    for author, number in seen:
        name = net.see(author, picture_of(1000 * author + number))
        net.look(3, name)
        net.run(1)
        own, held = (net.devices[i].thumbs for i in (author, 3))
        assert own.held()["own"] <= 5  # Which the bytes allow.
        assert own.held()["own_bytes"] <= 10_600
        assert len(net.devices[author].disk) == own.held()["own"]
        assert held.held()["others"] <= 8
        assert held.held()["others_bytes"] <= 16_900
        of_each = held._fetching._held.counts
        assert max(of_each.values(), default=0) <= 4
        assert sum(of_each.values()) == held.held()["others"]
    assert len(net.devices[3].thumbs._fetching._wanted) == 0


def test_a_flood_of_one_author_does_not_push_out_the_others() -> None:
    config = ThumbsConfig(ShelfConfig(all_per_s=1e6, all_at_once=10_000), FetchConfig(count_max=12, author_max=10))
    net = ThumbNet(3, config)
    kept = [net.see(0, picture_of(number)) for number in range(4)]
    for name in kept:
        net.look(2, name)
        net.run(1)
    for number in range(40):
        net.look(2, net.see(1, picture_of(1000 + number)))
        net.run(1)
    asked = net.sent["Ask"]
    for name in kept:
        net.look(2, name)
    assert net.sent["Ask"] == asked


def test_what_waits_is_bounded_and_said() -> None:
    net = ThumbNet(2)
    names = [net.see(0, picture_of(number)) for number in range(fetching.WANTED_MAX + 1)]
    net.silent = {0}
    for name in names[:-1]:
        net.look(1, name)
    with pytest.raises(StateError, match="ask again"):
        net.look(1, names[-1])
    assert id_of(0) in net.devices[1].thumbs._fetching._near


def test_what_is_wanted_of_one_author_leaves_room_for_the_others() -> None:
    net = ThumbNet(3)
    names = [net.see(0, picture_of(number)) for number in range(fetching.WANTED_MAX)]
    other = net.see(1, picture_of(9_999))
    net.silent = {0}
    for name in names:
        net.look(2, name)
    with contextlib.suppress(StateError):
        net.look(2, other)
    net.run(2)
    wanted = net.devices[2].thumbs._fetching._wanted
    assert len(wanted) <= fetching.WANTED_MAX
    assert [one.name for one in net.devices[2].shown if one.jpeg] == [other]
    given_up = [one.name for one in net.devices[2].shown if "ask again" in one.problem]
    assert given_up == [names[-1]], "who waits for it is told"
