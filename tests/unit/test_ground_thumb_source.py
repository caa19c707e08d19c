"""Pictures on their way to the page: checked once more, for all who look, and nobody waits without end."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarmd.api.daemon import Operations
from swarmd.errors import DaemonError
from swarmd.ground.thumbs import Thumbs, gathered, no_thumbs
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import Fetch, ThumbLearned
from tests.support.thumb_pictures import hostile, jpeg

GOOD = jpeg(1)
NAME = name_of(GOOD).hex()


class World:
    """A daemon that answers what the test says."""

    def __init__(self, answer: Callable[[bytes], ThumbLearned | None]) -> None:
        self.asked: list[bytes] = []
        self.hear: Callable[[Any], None] = lambda event: None
        self.answer = answer
        self.thumbs = Thumbs(cast(Operations, SimpleNamespace(ask=self.ask, subscribe=self.subscribe)))

    def subscribe(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.hear = callback
        return lambda: None

    def ask(self, subprotocol: str, request: object) -> None:
        assert subprotocol == "thumbs"
        assert isinstance(request, Fetch)
        self.asked.append(request.name)
        learned = self.answer(request.name)
        if learned is not None:
            self.hear(StateChanged("thumbs", learned))


def got(world: World, name: str, wait_s: float = 5.0) -> bytes:
    return asyncio.run(world.thumbs.get(name, wait_s))


def test_a_picture_is_handed_on() -> None:
    assert got(World(lambda name: ThumbLearned(name, GOOD)), NAME) == GOOD


def test_what_is_not_the_picture_never_gets_to_the_page() -> None:
    """Whatever the daemon would say: the server itself checks name and form."""
    for what, data in {**hostile(), "another": jpeg(2)}.items():
        name = NAME if what == "another" else name_of(data).hex()
        with pytest.raises(DaemonError):
            got(World(lambda name, data=data: ThumbLearned(name, data)), name)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["", "0" * 31, "0" * 33, "g" * 32, NAME.upper(), "../" * 10, NAME + "\n"])
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    world = World(lambda name: None)
    with pytest.raises(DaemonError, match="32 hexadecimal"):
        got(world, name)
    assert world.asked == []


def test_all_who_look_are_answered_and_a_reason_is_told() -> None:
    world = World(lambda name: None)

    async def many() -> list[bytes]:
        hasty = asyncio.create_task(world.thumbs.get(NAME, 0.0))
        tasks = [asyncio.create_task(world.thumbs.get(NAME, 60.0)) for _ in range(20)]
        with pytest.raises(DaemonError, match="ask again"):
            await hasty
        world.hear(StateChanged("thumbs", ThumbLearned(bytes.fromhex(NAME), GOOD)))
        return await asyncio.gather(*tasks)

    assert asyncio.run(many()) == [GOOD] * 20
    assert world.thumbs._waiting == {}
    with pytest.raises(DaemonError, match="keeps it no more"):
        got(World(lambda name: ThumbLearned(name, b"", "its author keeps it no more")), NAME)


def test_who_waits_in_vain_is_told_so_and_the_next_asks_anew() -> None:
    world = World(lambda name: None)
    for _ in range(2):
        with pytest.raises(DaemonError, match="ask again"):
            got(world, NAME, 0.0)
    assert len(world.asked) == 2


def test_what_the_swarm_refuses_is_refused() -> None:
    def refuse(name: bytes) -> ThumbLearned | None:
        raise StateError("no sighting that is known here has the picture")

    with pytest.raises(DaemonError, match="no sighting"):
        got(World(refuse), NAME)
    with pytest.raises(DaemonError, match="simulation"):
        asyncio.run(no_thumbs(NAME, 1.0))


def test_a_report_takes_what_comes_in_time_and_asks_for_each_once() -> None:
    pictures = [jpeg(number) for number in range(3)]
    names = [name_of(one).hex() for one in pictures]

    def answer(name: bytes) -> ThumbLearned | None:
        at = names.index(name.hex())
        return None if at == 2 else ThumbLearned(name, pictures[at])

    world = World(answer)
    wanted = [names[0], "", names[1], names[0], names[2]]
    assert asyncio.run(gathered(world.thumbs.get, wanted, 1.0)) == dict(zip(names[:2], pictures[:2], strict=True))
    assert len(world.asked) == 3
