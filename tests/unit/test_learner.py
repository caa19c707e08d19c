"""The child that trains: labels to rows, rows to a change; what cannot be used is said, and ends nothing."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarmd.api.geojson import object_feature
from swarmd.learner import teaching, words
from swarmd.learner.teaching import teach
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.frame_ring import FrameRing
from swarmd_models.geo.positions import enu_cm_to_wgs84
from swarmd_models.head_rows import HeadNet, Rows, drawn_scenes, mean_loss
from swarmd_models.labelling.forms import LabelError
from swarmd_models.labelling.training_set import load_set
from swarmd_models.synthetic.thermal import FAULT_LABELS
from swarmd_models.types import Frame, GroundPosition, TrackEvent
from tests.support.bundles import seen
from tests.support.label_sets import CONTRAST, MODEL, drawn_set
from tests.support.paths import ROOT
from tests.unit.test_frame_reviews import INFO, ORIGIN, thing

WEIGHTS = 715


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    drawn_set(folder / "a", 41, 4)
    return folder


@pytest.fixture(autouse=True)
def few_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drawn scenes take a third of a second, as many as a daemon has take three."""
    monkeypatch.setattr(teaching, "DRAWN_SCENES", 2)


def task(folder: Path, cache: Path) -> words.Teach:
    cache.mkdir(exist_ok=True)
    return words.Teach(MODEL, load_bundle(MODEL).digest, str(folder), str(cache), (0,) * WEIGHTS)


def test_labels_teach_and_what_is_held_back_judges(labelled: Path, tmp_path: Path) -> None:
    wanted = task(labelled, tmp_path / "cache")
    found = teach(wanted)
    assert found.rows > 80
    assert 20 < found.held < found.rows
    assert found.start == found.now
    assert found.problems == ()
    assert found.sets == (load_set(labelled / "a").digest,)
    net = HeadNet(load_bundle(MODEL))
    rows = teaching._recalled(tmp_path / "cache" / "rows.npz", *_key(tmp_path / "cache"))
    assert rows is not None
    moved = net.head + np.array(found.change).reshape(net.head.shape)
    assert mean_loss(moved, rows[0][0]) < mean_loss(net.head, rows[0][0])


def _key(cache: Path) -> tuple[str, int]:
    with np.load(cache / "rows.npz") as arrays:
        return str(arrays["key"]), arrays["taught_x"].shape[1]


def test_pictures_are_read_once(labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = task(labelled, tmp_path / "cache")
    first = teach(wanted)
    monkeypatch.setattr(HeadNet, "rows_of", lambda self, scene: pytest.fail("a picture was read again"))
    assert teach(wanted) == first


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no archive", b"\x00" * 4096])
def test_a_damaged_store_of_rows_is_read_anew(labelled: Path, tmp_path: Path, damage: bytes) -> None:
    wanted = task(labelled, tmp_path / "cache")
    first = teach(wanted)
    (tmp_path / "cache" / "rows.npz").write_bytes(damage)
    assert teach(wanted) == first


@pytest.mark.parametrize(("at", "bits"), [(6, 0x80), (8, 0x01)], ids=["another form of archive", "encrypted"])
def test_one_flipped_bit_in_the_store_of_rows_is_damage_too(tmp_path: Path, at: int, bits: int) -> None:
    """In the archive's directory, of which each entry begins with PK 1 2."""
    path, rows = tmp_path / "rows.npz", [Rows(np.ones((3, 65)), np.array([0, 1, 2]))] * 3
    teaching._remember(path, "key", rows, [])
    assert teaching._recalled(path, "key", 65) is not None
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + at] ^= bits
    path.write_bytes(data)
    assert teaching._recalled(path, "key", 65) is None


def test_a_set_that_is_still_being_copied_counts_once_it_is_whole(labelled: Path, tmp_path: Path) -> None:
    shutil.copytree(labelled / "a", tmp_path / "labels" / "a")
    images = sorted((tmp_path / "labels" / "a" / "images").iterdir())
    whole = [one.read_bytes() for one in images]
    images[0].unlink()
    images[1].write_bytes(whole[1][:100])
    wanted = task(tmp_path / "labels", tmp_path / "cache")
    assert len(teach(wanted).problems) == 2
    for path, data in zip(images, whole, strict=True):
        path.write_bytes(data)
    found = teach(wanted)
    assert found.problems == ()
    assert found.rows > 80


def test_a_pipe_for_a_picture_is_refused_and_nobody_waits_for_it(labelled: Path, tmp_path: Path) -> None:
    shutil.copytree(labelled / "a", tmp_path / "set")
    one = load_set(tmp_path / "set")
    path = one.folder / one.pictures[0].file
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LabelError, match="is no regular file"):
        one.read(one.pictures[0])


def test_a_folder_that_nobody_may_enter_ends_no_other(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").symlink_to(labelled / "a")
    (tmp_path / "b").mkdir()
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path.parent.name == "b":  # As for a user who is not root.
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    problems: list[str] = []
    assert [one.folder.name for one in teaching.sets_below(tmp_path, problems)] == ["a"]
    assert problems == [f"{tmp_path / 'b'} cannot be read: Permission denied"]


def test_reviews_for_which_there_is_no_room_end_no_set(labelled: Path, tmp_path: Path) -> None:
    """The cache is on a disk that takes nothing more: as here, where something else stands in its place."""
    (tmp_path / "kept").mkdir()
    wanted = task(labelled, tmp_path / "cache")
    (tmp_path / "cache").rmdir()
    (tmp_path / "cache").write_bytes(b"")
    said = dict(object_feature(thing("a", 5, "relabelled", FAULT_LABELS[3], "class0"), INFO, {}))
    found = teach(msgspec.structs.replace(wanted, frames=str(tmp_path / "kept"), reviews=(said,)))
    assert found.rows > 80
    assert found.problems[0].startswith("reviews teach nothing here")


def law_what_is_held_back_in_one_set_teaches_in_none(labelled: Path, tmp_path: Path) -> None:
    """The same pictures in a second set, all of them to judge."""
    one = load_set(labelled / "a")
    held = replace(one, pictures=tuple(replace(picture, is_held=True) for picture in one.pictures))
    chosen = teaching._chosen([one, held])
    assert len(chosen) == len(one.pictures)
    assert all(is_held for _, _, is_held in chosen)


def test_law_what_is_held_back_in_one_set_teaches_in_none(labelled: Path, tmp_path: Path) -> None:
    law_what_is_held_back_in_one_set_teaches_in_none(labelled, tmp_path)


def test_the_newest_pictures_count_and_no_more(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "PICTURES_MAX", 2)
    one = load_set(labelled / "a")
    newest = sorted(picture.captured_ns for picture in one.pictures)[-2:]
    assert [picture.captured_ns for _, picture, _ in teaching._chosen([one])] == newest


def test_a_broken_set_is_named_and_the_others_count(labelled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "a").symlink_to(labelled / "a")
    for name, text in (("b", "{"), ("c", '{"format": 1, "images": 7}')):
        (folder / name).mkdir()
        (folder / name / "set.json").write_text(text)
    found = teach(task(folder, tmp_path / "cache"))
    assert found.rows > 80
    assert len(found.problems) == 2
    assert all("set.json" in text for text in found.problems)


def test_without_labels_nothing_is_trained(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    found = teach(task(tmp_path / "labels", tmp_path / "cache"))
    assert (found.change, found.rows, found.start) == ((), 0, None)
    assert teach(task(tmp_path / "no-such", tmp_path / "cache")).problems[0].endswith("No such file or directory")


def law_another_bundle_is_not_taught(folder: Path, cache: Path) -> None:
    with pytest.raises(ArtefactError, match="another bundle by now"):
        teach(words.Teach(MODEL, "0" * 64, str(folder), str(cache), (0,) * WEIGHTS))


def test_law_another_bundle_is_not_taught(labelled: Path, tmp_path: Path) -> None:
    law_another_bundle_is_not_taught(labelled, tmp_path)
    with pytest.raises(ArtefactError, match="3 weights for a head of 715"):
        teach(words.Teach(MODEL, load_bundle(MODEL).digest, str(labelled), str(tmp_path), (0, 0, 0)))


def test_what_operators_said_of_things_in_kept_frames_is_a_label(tmp_path: Path) -> None:
    kept, cache = tmp_path / "kept", tmp_path / "cache"
    ring = FrameRing(kept, 16 << 20)
    place = GroundPosition(*enu_cm_to_wgs84(0, 0, *ORIGIN), (0.01, 0.0, 0.01))
    for index, scene in enumerate(drawn_scenes(load_bundle(MODEL), 43, 5, CONTRAST)):
        found = seen(100, 100, score=0.45)
        event = TrackEvent("new", 0, 0, found.label, found.score, found.box, 1, 3, place)
        frame = Frame(index, (index + 1) * 3_000_000_000, scene.image)
        assert ring.consider(frame, [found], lambda _: 0.4, 0.0, "m", [event])
    said = dict(object_feature(thing("a", 5, "relabelled", FAULT_LABELS[3], "class0"), INFO, {}))
    nothing = task(tmp_path / "none", cache)
    with_reviews = msgspec.structs.replace(nothing, folder="", frames=str(kept), reviews=(said,))
    found = teach(with_reviews)
    assert (found.rows, found.held) == (4, 1)
    assert teach(with_reviews) == found
    assert len(list(cache.glob("reviews-*"))) == 1
    assert not list(cache.glob("draft-*"))
    # What nobody agrees on, or nobody says any more, is no label, and what was made of it goes.
    disputed = dict(object_feature(thing("a", 5, "disputed", FAULT_LABELS[3], "class0"), INFO, {}))
    assert teach(msgspec.structs.replace(with_reviews, reviews=(disputed,))).rows == 0
    assert teach(msgspec.structs.replace(with_reviews, reviews=())).rows == 0
    assert not list(cache.glob("reviews-*"))


def test_the_process_answers_once_and_says_why_it_cannot() -> None:
    def answered(word: words.ToLearner) -> words.FromLearner:
        command = [sys.executable, "-m", "swarmd.learner"]
        done = subprocess.run(command, input=words.encode(word), capture_output=True, check=True, cwd=ROOT)
        return words.decode_from_learner(done.stdout)

    found = answered(words.Describe(MODEL))
    assert found == words.Described("solar-small-320", load_bundle(MODEL).digest, WEIGHTS)
    refused = answered(words.Describe("/no/such/bundle.toml"))
    assert isinstance(refused, words.Failed)
    assert "/no/such/bundle.toml" in refused.text
