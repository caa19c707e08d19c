"""Two real publishers with their outboxes, pipes and a region under a drawn siege: kills, copies of files put back,
clocks apart, frames of any age played back. In the end the region shows what the swarm shows, whatever happened."""

import random
import shutil
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd.federation import lives, outbox, region
from swarmd.federation.outbox import FILE_NAME as OUTBOX_FILE
from swarmd.federation.outbox import Done
from swarmd.federation.publisher import Publisher
from swarmd.federation.store import FILE_NAME as REGION_FILE
from swarmd_protocols.federation.objects import Derived, encode_object
from swarmd_protocols.federation.shares import SHARES
from swarmd_protocols.federation.wire import Down
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.evidence import Evidence
from tests.support.federation_world import CRYPTO, Frame, Gateway, Swarm, World, clock_of

ALL = frozenset(range(SHARES))
THINGS = 5


def suffixed(path: Path) -> list[Path]:
    """A file of SQLite's and what lies beside it."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def put_back(source: Path, target: Path) -> None:
    """A file as it was copied."""
    for one, other in zip(suffixed(source), suffixed(target), strict=True):
        other.unlink(missing_ok=True)
        if one.exists():
            shutil.copy(one, other)


class Seen:
    """What a swarm shows: of each thing its last word, as its node signed it. `above` of its gateways, but for time."""

    def __init__(self, swarm: Swarm) -> None:
        self.swarm = swarm
        self.shown: dict[bytes, tuple[Derived, Evidence]] = {}

    def see(self, thing: int, score: int) -> bytes:
        found, row, batch = self.swarm.word(thing, score, 1)
        view: Any = SimpleNamespace(object_id=found.object_id.hex(), tier="confirmed", reviews=())
        members = tuple((one.proof, one.key) for one in row.members)
        self.shown[found.object_id] = (found, Evidence(view, row.group, members, (), (batch,)))
        assert encode_object(row)
        return found.object_id


class Site(Gateway):
    """A gateway: the real publisher beside the sending half."""

    skew_ms = 0
    publisher: Publisher | None = None

    def __init__(self, world: World, swarm: Swarm, number: int, seen: Seen) -> None:
        self.seen, self.shares = seen, ALL
        super().__init__(world, swarm, number)
        self.copies = 0

    def boot(self) -> None:
        super().boot()
        self.publisher = Publisher(self, self.outbox, CRYPTO, 0.0, 1e9)  # type: ignore[arg-type]
        self.publisher._health_due_s = self.publisher._site_due_s = 1e18
        self.publisher.claim(self.shares, 2)

    def scan(self, *, compares: bool = False) -> None:
        assert self.publisher is not None
        if compares:
            self.publisher._compare_s = 0.0
        run_through(self.publisher.scan())

    def copy(self) -> None:
        """A copy of the disk, as of now."""
        self.copies += 1
        for one, other in zip(
            suffixed(self.folder / OUTBOX_FILE), suffixed(self.folder / f"copy-{self.copies}"), strict=True
        ):
            if one.exists():
                shutil.copy(one, other)

    def back(self, rng: random.Random) -> None:
        """One of the copies is put back."""
        self.outbox.close()
        if self.copies:
            put_back(self.folder / f"copy-{rng.randint(1, self.copies)}", self.folder / OUTBOX_FILE)
        self.boot()

    def _on_down(self, down: Down, done: Sequence[Done]) -> None:
        publisher = self.publisher
        assert publisher is not None
        super()._on_down(down, done)
        refused = {seq for seq, _ in down.refused}
        publisher.on_done(row for row in done if row.seq not in refused)
        publisher.on_refused(row for row in done if row.seq in refused)
        publisher.on_known(down.known)
        if down.log != self.outbox.have[0]:
            if any(self.outbox.have[0]):
                publisher.forget()
            self.outbox.have = (down.log, 0)
        if down.rows:
            self.outbox.have = (down.log, max(self.outbox.have[1], down.rows[-1].seq))

    # --- What the publisher asks

    @property
    def above(self) -> "Site":
        return self

    def info(self) -> Any:
        place = {"has_origin": False, "origin_latitude_deg": 0.0, "origin_longitude_deg": 0.0}
        return SimpleNamespace(node=self.node, swarm=self.swarm.name, **place)

    def members(self) -> list[Any]:
        return []

    def now_ms(self) -> int:
        return self.world.tick() + self.skew_ms

    def evidence(self, wanted: Collection[str] | None) -> Iterator[list[Evidence]]:
        yield [one for key, (_, one) in self.seen.shown.items() if wanted is None or key.hex() in wanted]

    def records(self, streams: Collection[Stream]) -> list[Batch]:
        return []

    def reports(self) -> list[Any]:
        return []

    def statements(self) -> list[Any]:
        return []

    def certificate_statement(self, node: NodeId) -> bytes | None:
        known = {self.node: self.identity.certificate, self.swarm.author.node: self.swarm.author.certificate}
        return known.get(node)

    def trust_revision(self) -> int:
        return 0

    def operators(self) -> frozenset[bytes]:
        return frozenset()


def run_through(work: Coroutine[Any, Any, Any]) -> None:
    """A coroutine that waits for nothing."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        return


class Siege:
    """The world, one swarm of two gateways, and everything that was ever said."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.world = World(folder, rng)
        swarm = Swarm(self.world, "s0", 0)
        self.world.swarms.append(swarm)
        self.seen = Seen(swarm)
        self.sites = [Site(self.world, swarm, number, self.seen) for number in range(2)]
        swarm.gateways += self.sites
        self.world.open()
        self.recorded: list[Frame] = []
        self.backup: tuple[Path, int] | None = None

    def step(self) -> None:
        rng, world = self.rng, self.world
        site = rng.choice(self.sites)
        actions: list[tuple[int, Callable[[], object]]] = [
            (6, lambda: self.seen.see(rng.randrange(THINGS), rng.randrange(300, 990))),
            (6, lambda: site.scan(compares=rng.random() < 0.5)),
            (6, lambda: world.pump(rng.choice((10, 100, 1_000, 5_000)))),
            (12, self.deliver),
            (3, self.lose),
            (3, self.replay),
            (6, world.region.write),
            (1, lambda: world.dark.__ixor__({rng.randrange(2)})),
            (1, lambda: world.cut.__ixor__({rng.randrange(2)})),
            (1, site.kill),
            (1, site.copy),
            (1, lambda: site.back(rng)),
            (1, lambda: setattr(site, "skew_ms", rng.choice((-30_000, 0, 30_000)))),
            (1, lambda: self.share(frozenset(rng.sample(sorted(ALL), 8)))),
            (1, world.open),
            (1, self.set_back),
            (1, self.mark),
            (1, self.back_up),
            (1, self.region_back),
        ]
        rng.choices([one for _, one in actions], [weight for weight, _ in actions])[0]()
        self.recorded += [frame for frame in world.flying if frame not in self.recorded][:4]

    def share(self, first: frozenset[int]) -> None:
        for site, shares in zip(self.sites, (first, ALL - first), strict=True):
            site.shares = shares
            assert site.publisher is not None
            site.publisher.claim(shares, 2)

    def deliver(self) -> None:
        flying = self.world.flying
        if flying:
            self.world.deliver(flying.pop(self.rng.randrange(len(flying))))

    def lose(self) -> None:
        if self.world.flying:
            self.world.flying.pop(self.rng.randrange(len(self.world.flying)))

    def replay(self) -> None:
        if self.recorded:
            self.world.deliver(self.rng.choice(self.recorded))

    def set_back(self) -> None:
        """The region's clock and file are as of an hour ago, for all that its frames say."""
        self.world.region._life -= 3_600

    def mark(self) -> None:
        self.world.region._marks._marked_s.clear()
        self.world.region.tidy(0.0)

    def back_up(self) -> None:
        """A copy of the region's file; what came within ten minutes of it may stay unnoticed (docs/federation.md)."""
        assert self.world.store is not None
        path = self.world.folder / "backup.sqlite"
        path.unlink(missing_ok=True)
        self.world.store._db.execute("VACUUM INTO ?", (str(path),))
        self.backup = (path, self.world.store.down_count())

    def region_back(self) -> None:
        """It is put back, once each gateway has heard of more of the log than it holds."""
        world = self.world
        if self.backup is None or world.store is None:
            return
        log = world.store.log
        if any(site.outbox.have[0] != log or site.outbox.have[1] <= self.backup[1] for site in self.sites):
            return
        world.store.close()
        world.store = None
        put_back(self.backup[0], world.folder / REGION_FILE)
        world.open()

    def pass_half_a_second(self) -> None:
        """Also where nothing waits gateways ask whether somebody is there."""
        world = self.world
        world.pump(500)
        for _ in range(2):
            flying, world.flying = world.flying, []
            for frame in flying:
                world.deliver(frame)
            world.region.write()

    def settle(self) -> None:
        """All paths work, each gateway compares; then what the region shows is what the swarm shows."""
        world = self.world
        self.share(self.sites[0].shares)
        # Whatever was drawn before: the clock is set back once more, and a backup is put back.
        last: dict[int, list[Callable[[], None]]] = {
            2: [self.set_back],
            4: [self.back_up, self.mark],
            6: [self.region_back],
        }
        for turn in range(10):
            for action in last.get(turn, ()):
                action()
            if turn < 6:
                self.seen.see(turn % THINGS, 300 + turn)
            for site in self.sites:
                site.scan(compares=True)
            world.settle(100)
            for _ in range(8):
                self.pass_half_a_second()
        shown = {key: digest for key, (_, digest) in world.seen(world.swarms[0]).items()}
        wanted = {key: found.digest.hex() for key, (found, _) in self.seen.shown.items()}
        assert shown == wanted, "the region shows something else than the swarm"
        assert [site.refused for site in self.sites] == [[], []]


def besiege(folder: Path, rng: random.Random, steps: int = 250) -> None:
    """One drawn siege. The gateways have no clock, and no two of their lives are of one number, as by chance."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "time", SimpleNamespace(time=lambda: 20.0))
        patch.setattr(lives, "APART", 1 << 40)
        siege = Siege(folder, rng)
        world = siege.world
        patch.setattr(region, "time", clock_of(world))
        try:
            for _ in range(steps):
                siege.step()
            siege.settle()
        finally:
            world.close()


def who_comes_back_hears_what_others_said(folder: Path) -> None:
    """A gateway loses its way up, another takes its shares and says more; then the swarm shows again what the first had
    said, as after a revocation: back in its shares the first says so."""
    siege = Siege(folder, random.Random(1))
    world, (first, second) = siege.world, siege.sites
    first.publisher.claim(ALL, 2)  # type: ignore[union-attr]
    second.publisher.claim(frozenset(), 2)  # type: ignore[union-attr]

    def pass_time(turns: int, heard: Sequence[Site]) -> None:
        nodes = {site.node for site in heard}
        for _ in range(turns):
            for site in heard:
                site.scan(compares=True)
            world.pump(500)
            for _ in range(2):
                flying, world.flying = world.flying, []
                for frame in flying:
                    if frame.place.gateway in nodes:
                        world.deliver(frame)
                world.region.write()

    def shown() -> str:
        return world.seen(world.swarms[0])[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "time", clock_of(world))
        key = siege.seen.see(1, 500)
        before = siege.seen.shown[key]
        for site in siege.sites:
            site.publisher._site_due_s = 0.0  # type: ignore[union-attr]
        pass_time(8, siege.sites)
        assert shown() == before[0].digest.hex()
        second.publisher.claim(ALL, 1)  # type: ignore[union-attr]
        first.publisher.claim(frozenset(), 1)  # type: ignore[union-attr]
        siege.seen.see(1, 600)
        pass_time(50, [second])
        world.region.tidy(world.now_ns / 1e9)
        assert shown() != before[0].digest.hex()
        siege.seen.shown[key] = before
        second.publisher.claim(frozenset(), 2)  # type: ignore[union-attr]
        first.publisher.claim(ALL, 2)  # type: ignore[union-attr]
        pass_time(40, siege.sites)
        assert shown() == before[0].digest.hex(), (
            "who comes back takes its own word of before for what the region shows"
        )
    world.close()
