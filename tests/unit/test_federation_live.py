"""Questions to the gateways of this moment: who is answered, what an answer is worth, and what is stale without one."""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarmd.errors import DaemonError
from swarmd.federation import live
from swarmd.federation.answering import ANSWERS_BURST_BYTES, LOOK_BYTES, Answering
from swarmd.federation.live import Question, Told, ask_gateways, laid_over, questions, take
from swarmd.federation.outbox import FILE_NAME, Outbox
from swarmd.federation.publisher import Publisher
from swarmd.federation.rows import ObjectQuery, ObjectsAnswer
from swarmd.federation.settings import RegionConfig
from swarmd.federation.store import FILE_NAME as REGION_FILE
from swarmd.federation.store import Store
from swarmd.federation.uplink import PREFIX, Place
from swarmd_protocols.federation.gate import AHEAD_MS, EVERYBODY, Gate, Pin
from swarmd_protocols.federation.wire import Ask, Pair, Way, read_trust, read_up
from tests.support.federation_daemon import MeshDaemon
from tests.support.federation_site import SEED
from tests.support.state_mesh import CRYPTO, SWARM, Mesh, detection

ALL = ObjectQuery(label="hot-spot")
LIFE = 1_790_000_000_000
"""Of the first question: the asker's clock."""


class Asked:
    """A swarm with one gateway, and the file of a region that has heard of it and of nothing that it shows."""

    def __init__(self, folder: Path) -> None:
        self.mesh = Mesh(3, seed=3)
        self.daemon = MeshDaemon(self.mesh, 0, "gw0")
        self.outbox = Outbox(folder / FILE_NAME, 1 << 20, 1e9)
        self.publisher = Publisher(self.daemon, self.outbox, CRYPTO, 1e9, 1e9)
        self.pin = Pin(SWARM, SWARM, self.mesh.roots[0])
        self.place = Place(self.pin.key, Way.UP, self.daemon.identity.node)
        self.pair = Pair(CRYPTO, self.daemon.identity.seed, CRYPTO.public_key(SEED))
        self.answering = Answering(self.place, self.pair, self.publisher, self.outbox, lambda: LIFE)
        self.store = Store(folder / REGION_FILE)
        self.store.know_swarms([self.pin])
        said = [read_trust(row.body) for row in self.publisher.trust_of([EVERYBODY])]
        gate = Gate(self.pin, SEED, CRYPTO, [(one.kind, one.statement) for one in said])
        with self.store.transaction():
            self.store.keep_trust(self.pin.key.hex(), gate.trust.journalled())
            self.store.put_site(self.pin.key.hex(), self.place.gateway, self.publisher.site(), 1_000)
        self.things = 0

    def close(self) -> None:
        self.outbox.close()
        self.store.close()

    def see(self, count: int) -> None:
        for _ in range(count):
            for index in (0, 2):
                self.mesh.see(index, detection(self.mesh.now_ns, self.things, self.things * 900))
            self.things += 1
        self.mesh.run(3)

    def ask(self, life: int = LIFE, seed: bytes = SEED) -> Question:
        [question] = questions([self.pin], self.store, seed, CRYPTO, ALL, PREFIX, life)
        return question

    def answer(self, frame: bytes, now_ns: int = 0) -> list[bytes]:
        return asyncio.run(self.answering.answer(frame, now_ns))

    def known(self) -> ObjectsAnswer:
        return self.store.objects(ALL, 60_000, 30_000)

    def laid(self, question: Question, frames: list[bytes]) -> ObjectsAnswer:
        told: dict[bytes, Told] = {}
        for frame in frames:
            take(told, question, frame)
        return laid_over(self.known(), told, [self.pin], self.store, ALL)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    one = Asked(tmp_path)
    yield one
    one.close()


def test_the_swarm_answers_with_what_the_region_has_not_heard(asked: Asked) -> None:
    asked.see(3)
    assert not asked.known().objects
    assert asked.known().sites[0].stale
    question = asked.ask()
    answer = asked.laid(question, asked.answer(question.frame))
    assert [row["tier"] for row in answer.objects] == ["confirmed"] * 3
    [site] = answer.sites
    assert (site.stale, site.objects, site.as_of_ms) == (False, 3, asked.daemon.now_ms())


def test_only_who_holds_the_regions_key_is_answered(asked: Asked) -> None:
    asked.see(1)
    assert asked.answer(asked.ask(seed=b"X" * 32).frame) == []
    assert asked.answer(asked.ask().frame) != []


def test_a_question_is_answered_once_and_an_old_one_never(asked: Asked) -> None:
    old, new = asked.ask(LIFE), asked.ask(LIFE + 1)
    assert asked.answer(new.frame) != []
    assert asked.answer(new.frame) == []
    assert asked.answer(old.frame) == []


def test_a_clock_that_was_set_wrong_silences_questions_for_an_hour_at_most(asked: Asked) -> None:
    assert asked.answer(asked.ask(LIFE + AHEAD_MS + 1).frame) == []
    assert asked.answer(asked.ask(LIFE).frame) != []


def test_what_answers_may_take_is_bounded(asked: Asked) -> None:
    asked.see(1)
    most = ANSWERS_BURST_BYTES // LOOK_BYTES + 1
    answered = sum(bool(asked.answer(asked.ask(LIFE + at).frame)) for at in range(2 * most))
    assert most // 2 < answered <= most
    assert asked.answer(asked.ask(LIFE + 2 * most).frame, 60_000_000_000) != []


def test_an_answer_to_another_question_is_none(asked: Asked) -> None:
    """Who records an answer can show it to nobody as of a later moment."""
    asked.see(1)
    first, later = asked.ask(LIFE), asked.ask(LIFE + 1)
    recorded = asked.answer(first.frame)
    assert asked.laid(later, recorded).sites[0].stale
    assert not asked.laid(first, recorded).sites[0].stale


def test_a_part_of_an_answer_is_not_the_whole(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd.federation.answering.FRAME_FILL_BYTES", 256)
    asked.see(3)
    question = asked.ask()
    frames = asked.answer(question.frame)
    assert len(frames) > 3
    for gone in range(len(frames)):
        [site] = asked.laid(question, frames[:gone] + frames[gone + 1 :]).sites
        assert site.as_of_ms == asked.known().sites[0].as_of_ms, "it claims to be of now, and lacks a part"


def test_what_does_not_answer_is_stale_and_shown_as_it_was(asked: Asked) -> None:
    asked.see(2)
    question = asked.ask()
    told: dict[bytes, Told] = {}
    for frame in asked.answer(question.frame):
        take(told, question, frame)
    with asked.store.transaction():
        for gateway, found in told[asked.pin.key].objects.values():
            asked.store.put_object(asked.pin.key.hex(), found, gateway, 2, 50_000)
    with asked.store.transaction():
        asked.store.put_site(asked.pin.key.hex(), asked.place.gateway, asked.publisher.site(), 59_000)
    assert not asked.known().sites[0].stale, "the region has heard of it a second ago"
    silent = asked.laid(asked.ask(LIFE + 1), [])
    assert (silent.sites[0].stale, len(silent.objects)) == (True, 2)


def test_nobody_else_answers_for_a_gateway(asked: Asked) -> None:
    """What a certified gateway has said, said by a key that no root stands behind."""
    asked.see(1)
    question = asked.ask()
    region = Pair(CRYPTO, SEED, CRYPTO.public_key(asked.daemon.identity.seed))
    said = [read_up(region.open(frame)) for frame in asked.answer(question.frame)]
    stranger = Pair(CRYPTO, b"Z" * 32, CRYPTO.public_key(SEED))
    forged = [stranger.seal(Way.TELL, asked.pin.key, question.life, question.number, bytes(8), one) for one in said]
    assert asked.laid(question, forged).sites[0].stale


def test_a_question_to_another_swarm_is_not_answered(asked: Asked) -> None:
    region = Pair(CRYPTO, SEED, CRYPTO.public_key(asked.daemon.identity.seed))
    assert asked.answer(region.seal(Way.ASK, b"another swarm's!", LIFE, 0, bytes(8), Ask())) == []


def test_nothing_of_a_question_outlives_its_process_in_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon thread that is in Zenoh when the interpreter ends aborts the process: the answer would be lost."""
    made: list[bool] = []
    real = threading.Thread

    def thread(*given: object, **named: object) -> threading.Thread:
        made.append(bool(named.get("daemon")))
        return real(target=lambda: None)

    monkeypatch.setattr("swarmd.federation.live.threading.Thread", thread)
    monkeypatch.setattr("swarmd.federation.live.import_zenoh", lambda: None)
    monkeypatch.setattr("swarmd.federation.live.read_pins", lambda folder, config: [])
    monkeypatch.setattr("swarmd.federation.live.read_seed", lambda folder: SEED)
    store: object = None
    config = RegionConfig(paths=("zenoh://127.0.0.1:1", "mqtt://127.0.0.1:1"))
    known = ObjectsAnswer(0, (), ())
    assert ask_gateways(Path(), config, store, ALL, known) == known  # type: ignore[arg-type]
    assert made == [False]


def test_of_more_than_was_asked_for_the_newest_come_and_the_answer_says_that_there_are_more(asked: Asked) -> None:
    asked.see(2)
    asked.mesh.run(30)
    asked.see(1)
    whole = asked.ask()
    newest = asked.laid(whole, asked.answer(whole.frame)).objects[0]
    query = ObjectQuery(label="hot-spot", limit=1)
    [question] = questions([asked.pin], asked.store, SEED, CRYPTO, query, PREFIX, LIFE + 1)
    told: dict[bytes, Told] = {}
    for frame in asked.answer(question.frame):
        take(told, question, frame)
    known = asked.store.objects(query, 60_000, 30_000)
    answer = laid_over(known, told, [asked.pin], asked.store, query)
    assert [row["object"] for row in answer.objects] == [newest["object"]]
    assert answer.is_cut


def test_what_has_another_label_by_now_is_not_shown_under_the_old_one(asked: Asked) -> None:
    asked.see(1)
    question = asked.ask()
    told: dict[bytes, Told] = {}
    for frame in asked.answer(question.frame):
        take(told, question, frame)
    [(gateway, found)] = told[asked.pin.key].objects.values()
    old = found._replace(label="crack", detected="crack", stamp=2)
    with asked.store.transaction():
        asked.store.put_object(asked.pin.key.hex(), old, gateway, 2, 50_000)
    asked.publisher.known[found.object_id] = (2, old.digest)
    query = ObjectQuery(label="crack")
    [question] = questions([asked.pin], asked.store, SEED, CRYPTO, query, PREFIX, LIFE + 1)
    told.clear()
    for frame in asked.answer(question.frame):
        take(told, question, frame)
    known = asked.store.objects(query, 60_000, 30_000)
    assert len(known.objects) == 1
    assert not laid_over(known, told, [asked.pin], asked.store, query).objects


def test_without_the_library_nobody_is_asked(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(DaemonError, match=r"swarmd\[zenoh\]"):
        ask_gateways(tmp_path, RegionConfig(paths=("zenoh://a",)), asked.store, ALL, asked.known())


def test_what_will_be_seen_is_not_shown(asked: Asked) -> None:
    """By the asker's clock, which is years behind the swarm's here."""
    asked.see(1)
    question = asked.ask(life=1_000)
    answer = asked.laid(question, asked.answer(question.frame))
    assert not answer.objects
    assert answer.sites[0].stale


def test_a_router_that_was_not_reached_is_named(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zenoh")
    monkeypatch.setattr("swarmd.federation.live.read_pins", lambda folder, config: [asked.pin])
    monkeypatch.setattr("swarmd.federation.live.read_seed", lambda folder: SEED)
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"zenoh://127.0.0.1:{taken.getsockname()[1]}"
        answer = ask_gateways(
            tmp_path, RegionConfig(paths=(nobody,)), asked.store, ALL, asked.known(), 0.2, CRYPTO, said.append
        )
    assert [site.stale for site in answer.sites] == [True]
    assert said == [f"no router was reached at {nobody} within 0.2 s"]


def test_what_a_hostile_router_says_takes_little_room_and_none_of_another_router(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "WAITING_MAX_BYTES", 1 << 20)
    one: Any = object()
    scatter = live.Scatter([one], 60.0, routers=2)
    for _ in range(100):
        scatter.take(0, one, bytes(90_000))
    for _ in range(10_000):
        scatter.take(0, one, b"")
    assert 5 <= scatter._frames.qsize() < 5 + 90_000 // 512
    scatter.take(1, one, bytes(live.FRAME_MAX_BYTES + 1))
    scatter.take(1, one, b"honest")
    frames = scatter.frames()
    while next(frames)[1] != b"honest":
        pass
    assert scatter._waiting == [0, 0], "what was read still takes room"
    scatter.take(0, one, bytes(90_000))
    assert scatter._frames.qsize() == 1
