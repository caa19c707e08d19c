"""The real install, trial and recovery code against a model file system: every crash point, then every crash point of
the recovery, then a clean recovery. And the mutants that this suite must catch."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec
import pytest

from swarmd.release import at_rest, errors, fsx
from swarmd.release.at_rest import SealedBlobs
from swarmd_protocols.releases.slots import TRIES, Slot, fresh_slot
from tests.support.model_files import Crash, ModelFiles
from tests.support.slots import Slots

NODE_KEY = b"k" * 32


class Plain(SealedBlobs):
    """No blob sealed."""

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files, NODE_KEY)


class Sealed(SealedBlobs):
    """Every blob sealed."""

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files, NODE_KEY)

    def put(self, data: bytes, encrypted: bool = True) -> bytes:
        return super().put(data, True)


OLD, NEW = b"old-model-bytes-0123456789", b"new-model-bytes-abcdefghij"
KIND: type[Plain] | type[Sealed] = Plain
"""How blobs lie on the disk; the tests with encryption put `Sealed` in its place."""
OLD_RELEASE, NEW_RELEASE = b"o" * 32, b"n" * 32


def slot_of(release: bytes, data: bytes) -> Slot:
    return fresh_slot(release, {"model.tflite": sha256(data).digest()}, "model.tflite")


def first_disk() -> dict[str, bytes]:
    files = ModelFiles({})
    blobs = KIND(files)
    blobs.put(OLD)
    mine = Slots(files, blobs, "slots/m")
    mine.install(slot_of(OLD_RELEASE, OLD))
    mine.begin_trial()
    mine.promote()
    mine.raise_floor((1, 1))
    mine.collect()
    return dict(files.disk)


@dataclass
class World:
    """What survives a crash outside the disk: what peers were told, what was loaded."""

    healthy: bool
    told: set[bytes] = field(default_factory=set)
    loads: int = 0


def install(files: ModelFiles, world: World) -> None:
    blobs = KIND(files)
    mine = Slots(files, blobs, "slots/m")
    mine.load()
    blobs.put(NEW)
    mine.install(slot_of(NEW_RELEASE, NEW))


def end_trial(mine: Slots, world: World) -> None:
    if world.healthy:
        mine.promote()
    else:
        mine.reject()


def recover(files: ModelFiles, world: World) -> Slots:
    """What the daemon does at its start: run the active one, then go on with the trial."""
    blobs = KIND(files)
    mine = Slots(files, blobs, "slots/m")
    mine.start()
    trial = mine.begin_trial()
    if trial is not None:
        world.loads += 1
        end_trial(mine, world)
    if mine.record.active is not None and mine.record.active.release == NEW_RELEASE:
        world.told.add(NEW_RELEASE)
    mine.collect()
    return mine


def violation(disk: dict[str, bytes], world: World, final: bool) -> str | None:
    files = ModelFiles(disk)
    blobs = KIND(files)
    mine = Slots(files, blobs, "slots/m")
    record = mine.load()
    if mine.damaged or record.active is None:
        return "no readable record with an active release"
    if not all(blobs.verify(digest) for _, digest in record.active.files):
        return "the active release is missing or torn"
    if record.trial is not None and not all(blobs.verify(digest) for _, digest in record.trial.files):
        return "the record names a trial whose blobs are not there"
    if record.floor < (1, 1):
        return "the floor went down"
    if NEW_RELEASE in world.told and record.active.release != NEW_RELEASE:
        return "told peers about v2, then lost it"
    if final and not world.healthy and record.active.release == NEW_RELEASE:
        return "an unhealthy release is active"
    if world.loads and record.trial is not None and record.tries >= TRIES:
        return "a trial was loaded and no try was spent"
    if world.healthy and NEW_RELEASE in record.rejected:
        return "a crash turned a good release into a rejected one"
    if (
        world.healthy
        and record.trial is None
        and record.active.release != NEW_RELEASE
        and NEW_RELEASE in record.backed_off
    ):
        return "two power cuts used up the tries of a good release"
    return None


def explore(healthy: bool, drop: frozenset[str] = frozenset()) -> tuple[int, set[str]]:
    """Every crash point of install and trial; for every disk it leaves, every crash point of the recovery."""
    start = first_disk()

    def script(files: ModelFiles, world: World) -> None:
        install(files, world)
        recover(files, world)

    whole = ModelFiles(start)
    script(whole, World(healthy))
    states, found = 0, set()
    for point in range(whole.count + 1):
        files, world = ModelFiles(start, point, drop), World(healthy)
        with contextlib.suppress(Crash):
            script(files, world)
        for disk in files.crash_states():
            states += 1
            found.add(violation(disk, world, False))
            again, after = explore_recovery(disk, world, drop)
            states += again
            found |= after
    return states, {one for one in found if one}


def explore_recovery(disk: dict[str, bytes], world: World, drop: frozenset[str]) -> tuple[int, set[str | None]]:
    probe = ModelFiles(disk)
    recover(probe, World(world.healthy, set(world.told), world.loads))
    states, found = 0, set()
    for point in range(probe.count + 1):
        files, after = ModelFiles(disk, point, drop), World(world.healthy, set(world.told), world.loads)
        with contextlib.suppress(Crash):
            recover(files, after)
        for last in files.crash_states(64):
            states += 1
            found.add(violation(last, after, False))
            final = ModelFiles(last)
            recover(final, World(world.healthy, set(after.told), after.loads))
            found.add(violation(final.cache, after, True))
    return states, found


@pytest.fixture
def _sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KIND", Sealed)
    # Frames of a byte's length cost nothing here, and a random nonce would make every disk a new one.
    monkeypatch.setattr(at_rest.os, "urandom", lambda count: b"r" * count)


@pytest.mark.usefixtures("_sealed")
@pytest.mark.parametrize("healthy", [True, False])
def test_no_crash_breaks_the_slots_with_encryption(healthy: bool) -> None:
    states, found = explore(healthy)
    assert not found
    assert states > 300, f"only {states} states"


@pytest.mark.usefixtures("_sealed")
@pytest.mark.parametrize("drop", ["fsync blobs", "fsync_folder blobs"])
def test_with_encryption_too_a_missing_sync_is_noticed(drop: str) -> None:
    assert explore(True, frozenset({drop}))[1]


@pytest.mark.usefixtures("_sealed")
def test_with_encryption_no_disk_that_a_crash_leaves_holds_plaintext_and_bit_flips_are_noticed() -> None:
    start = first_disk()

    def script(files: ModelFiles, world: World) -> None:
        install(files, world)
        recover(files, world)

    whole = ModelFiles(start)
    script(whole, World(True))
    for point in range(whole.count + 1):
        files = ModelFiles(start, point)
        with contextlib.suppress(Crash):
            script(files, World(True))
        for disk in files.crash_states(64):
            assert not any(part in data for data in disk.values() for part in (OLD[:8], NEW[:8]))
    for path, data in start.items():
        for at in range(len(data)):
            flipped = data[:at] + bytes([data[at] ^ 1 << (at % 8)]) + data[at + 1 :]
            slot = Slots(files := ModelFiles({**start, path: flipped}), Sealed(files), "slots/m").start()
            assert slot is None if path.startswith("blobs/") else slot in (None, slot_of(OLD_RELEASE, OLD))


@pytest.mark.parametrize("healthy", [True, False])
def test_no_crash_breaks_the_slots(healthy: bool) -> None:
    states, found = explore(healthy)
    assert not found
    assert states > 300, f"only {states} states"


def _record_first(patch: pytest.MonkeyPatch) -> None:
    """The record names the trial before its blob is durable."""

    def hasty(files: ModelFiles, world: World) -> None:
        blobs = KIND(files)
        mine = Slots(files, blobs, "slots/m")
        mine.load()
        mine.save(msgspec.structs.replace(mine.record, trial=slot_of(NEW_RELEASE, NEW), tries=TRIES))
        blobs.put(NEW)

    patch.setitem(globals(), "install", hasty)


def _collect_early(patch: pytest.MonkeyPatch) -> None:
    whole = globals()["install"]

    def eager(files: ModelFiles, world: World) -> None:
        whole(files, world)
        KIND(files).keep_only(frozenset({sha256(NEW).digest()}))

    patch.setitem(globals(), "install", eager)


def _tell_first(patch: pytest.MonkeyPatch) -> None:
    whole = end_trial

    def boastful(mine: Slots, world: World) -> None:
        world.told.add(NEW_RELEASE)
        whole(mine, world)

    patch.setitem(globals(), "end_trial", boastful)


def _load_before_the_try(patch: pytest.MonkeyPatch) -> None:
    def lazy(self: Slots) -> Slot | None:
        return self.record.trial

    patch.setattr(Slots, "begin_trial", lazy)


MUTANTS: dict[str, tuple[frozenset[str], Callable[[pytest.MonkeyPatch], None] | None]] = {
    "blobs are not synced": (frozenset({"fsync blobs"}), None),
    "names of blobs are not synced": (frozenset({"fsync_folder blobs"}), None),
    "the record is not synced": (frozenset({"fsync slots"}), None),
    "the record's name is not synced": (frozenset({"fsync_folder slots"}), None),
    "the record comes before the blob": (frozenset(), _record_first),
    "garbage is collected early": (frozenset(), _collect_early),
    "peers are told first": (frozenset(), _tell_first),
    "the try is spent after the load": (frozenset(), _load_before_the_try),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drop, patch = MUTANTS[mutant]
    if patch is not None:
        patch(monkeypatch)
    found: set[str] = set()
    for healthy in (True, False):
        found |= explore(healthy, drop)[1]
    assert found, "the suite does not notice"


def test_two_power_cuts_leave_a_good_release_its_third_try() -> None:
    files = ModelFiles(first_disk())
    install(files, World(True))
    for _ in range(TRIES - 1):
        mine = Slots(files, KIND(files), "slots/m")
        mine.load()
        assert mine.begin_trial() is not None
    recovered = recover(files, World(True))
    assert recovered.record.active is not None
    assert recovered.record.active.release == NEW_RELEASE


def test_a_failed_gate_rejects_for_good_and_used_up_tries_only_back_off() -> None:
    files = ModelFiles(first_disk())
    install(files, World(False))
    mine = recover(files, World(False))
    assert mine.record.rejected == (NEW_RELEASE,)
    with pytest.raises(errors.SlotError, match="rejected"):
        mine.install(slot_of(NEW_RELEASE, NEW))
    files = ModelFiles(first_disk())
    install(files, World(True))
    mine = Slots(files, KIND(files), "slots/m")
    mine.load()
    for _ in range(TRIES):
        mine.begin_trial()
    assert mine.begin_trial() is None
    assert mine.record.backed_off == (NEW_RELEASE,)
    KIND(files).put(NEW)
    mine.install(slot_of(NEW_RELEASE, NEW))


def test_every_bit_flip_of_the_record_and_of_the_blob_is_noticed() -> None:
    disk = first_disk()
    for path, data in disk.items():
        for at in range(len(data)):
            flipped = data[:at] + bytes([data[at] ^ 1 << (at % 8)]) + data[at + 1 :]
            files = ModelFiles({**disk, path: flipped})
            mine = Slots(files, KIND(files), "slots/m")
            slot = mine.start()
            assert slot is None or slot == slot_of(OLD_RELEASE, OLD)
            if path.startswith("blobs/"):
                assert slot is None, "a damaged model must not be loaded"


def test_a_failing_disk_changes_nothing() -> None:
    class Full(ModelFiles):
        def fsync(self, path: str) -> None:
            raise OSError(28, "No space left on device")

    disk = first_disk()
    files = Full(disk)
    mine = Slots(files, KIND(files), "slots/m")
    before = mine.load()
    with pytest.raises(errors.SlotError, match="No space left"):
        KIND(files).put(NEW)
    with pytest.raises(errors.SlotError, match="No space left"):
        mine.raise_floor((2, 2))
    assert mine.load() == before
    assert not [name for name in files.cache if name.endswith(".tmp")]
    assert fsx.RealFiles("/nowhere").names("x") == []
