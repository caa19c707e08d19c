"""Power cuts during canaries in a swarm of eight: the real protocol, the real slots, a model of the disk.

Every node keeps its slots on a disk that may lose or tear whatever was not synced. The power goes at chosen disk
operations and at chosen moments of canaries' trials; the node comes back with what a disk may then hold. In the end the
good release runs everywhere, the bad one nowhere, and no node has lost what it once told others.
"""

import random

import pytest

from swarmd.release.at_rest import SealedBlobs
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.slots import fresh_slot
from tests.support.model_files import Crash, ModelFiles
from tests.support.release_world import MODEL, World, make_release
from tests.support.slots import Slots

V1, V2, V3 = b"one" * 3_000, b"two" * 3_000, b"bad" * 3_000
COUNT = 8


class _End:
    """The soak of a trial is over."""

    def __init__(self, life: int, digest: bytes) -> None:
        self.life, self.digest = life, digest


class _Cut:
    """The power goes now."""


class PowerWorld(World):
    """`World` whose daemons keep slots on disks that crash."""

    def __init__(self, seed: int) -> None:
        self.files = [ModelFiles({}) for _ in range(COUNT)]
        self.slots = [self.slots_on(files) for files in self.files]
        self.lives = [0] * COUNT
        self.off = [False] * COUNT
        self.cuts = 0
        self.told: list[list[int]] = [[] for _ in range(COUNT)]
        self.luck = random.Random(seed)
        super().__init__(COUNT, seed)

    @staticmethod
    def slots_on(files: ModelFiles) -> Slots:
        return Slots(files, SealedBlobs(files, b"k" * 32), "slots/m")

    def react(self, at: int, detail: object) -> None:
        if self.off[at]:
            return
        try:
            self.carry_out(at, detail)
        except Crash:
            self.off[at] = True
            self.push(self.now, at, _Cut())  # Not in the middle of an effect: the node is gone a moment later.

    def carry_out(self, at: int, detail: object) -> None:
        slots = self.slots[at]
        match detail:
            case requests.Prepare(_, release):
                for one in release.bundle:
                    SealedBlobs(self.files[at], b"k" * 32).put(self.stores[at].blob(one.blob))
            case requests.StartTrial(digest, release):
                self.tried[at].append(digest)
                files = {one.path: one.blob.sha256 for one in release.bundle}
                slots.install(fresh_slot(digest, files, release.bundle[0].path))
                if slots.begin_trial() is not None:
                    self.push(self.now + 100_000_000, at, requests.TrialBegan(MODEL, digest))
                    self.push(self.now + 5_000_000_000, at, _End(self.lives[at], digest))
            case requests.GoBack(_, _, to, _):
                slots.go_back(to)
                self.push(self.now + 100_000_000, at, self.running_now(at))

    def command(self, at: int, request: object) -> None:
        if isinstance(request, _Cut):
            self.cut_power(at)
        elif isinstance(request, _End):
            self.end_trial(at, request)
        else:
            super().command(at, request)

    def end_trial(self, at: int, end: _End) -> None:
        trial = self.slots[at].record.trial
        if end.life != self.lives[at] or trial is None or trial.release != end.digest:
            return
        verdict = Verdict.PASS if self.healthy(at, end.digest) else Verdict.FAIL
        try:
            if verdict is Verdict.PASS:
                self.slots[at].promote()
            else:
                self.slots[at].reject()
        except Crash:
            self.cut_power(at)
            return
        super().command(at, requests.TrialEnded(MODEL, end.digest, verdict, 5, 50, "gates"))
        release = self.nodes[at].release(MODEL, end.digest)
        if verdict is Verdict.PASS and release is not None:
            self.told[at].append(release.version)

    def running_now(self, at: int) -> requests.Running:
        record = self.slots[at].record
        kept = tuple(slot.release for slot in (record.active, record.fallback) if slot is not None)
        return requests.Running(MODEL, record.active.release if record.active else b"", kept, record.rejected)

    def cut_power(self, at: int) -> None:
        """Off, with any disk that may be left; and on again."""
        self.cuts += 1
        self.off[at] = False
        self.lives[at] += 1
        self.files[at] = ModelFiles(self.luck.choice(list(self.files[at].crash_states(64))))
        self.slots[at] = self.slots_on(self.files[at])
        slot = self.slots[at].start()
        assert not self.slots[at].damaged
        record = self.slots[at].record
        assert slot == record.active, "what is active is sound after any cut"
        if self.told[at]:
            assert slot is not None, "it told others that it runs a release, and lost it"
        self.nodes[at] = self.build(at)
        self.due[at].clear()
        self.tried[at].clear()
        super().perform(at, self.nodes[at].start(self.now))
        self.meet()
        super().command(at, self.running_now(at))


def publish(world: PowerWorld, at: int, data: bytes, version: int, previous: bytes = b"") -> bytes:
    envelope = world.keys.sign("release", make_release(data, version, previous).payload(), "release")
    world.publish(at, [envelope], data)
    return envelope.digest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_power_goes_during_canaries_and_nothing_is_lost(seed: int) -> None:
    world = PowerWorld(seed)
    first = publish(world, 0, V1, 1)
    world.run(120, lambda: world.versions() == [1] * COUNT)
    second = publish(world, 1, V2, 2, first)
    for files in world.files:
        files.crash_at = files.count + world.luck.randrange(16)  # Somewhere in install, trial or promotion.
    for _ in range(4):
        world.push(world.now + world.luck.randrange(20_000_000_000), world.luck.randrange(COUNT), _Cut())
    world.run(400, lambda: world.versions() == [2] * COUNT)
    assert world.versions() == [2] * COUNT
    assert world.cuts >= COUNT
    bad = make_release(V3, 3, second)
    digest = world.keys.sign("release", bad.payload(), "release").digest
    world.healthy = lambda node, release: release != digest
    publish(world, 2, V3, 3, second)
    for files in world.files:
        files.crash_at = files.count + world.luck.randrange(10)
    world.run(120)
    assert world.versions() == [2] * COUNT
    assert not any(slots.record.active and slots.record.active.release == digest for slots in world.slots)
    good = {first, second}
    assert not any(good & set(slots.record.rejected) for slots in world.slots), "a cut made a good release a bad one"
