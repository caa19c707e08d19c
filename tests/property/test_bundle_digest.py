"""Two bundles that could answer differently never share a digest; layout alone never makes two of one."""

import hashlib
import json
import random
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_models import bundle, bundle_digest
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from tests.support.bundle_vectors import BARE, PATH, document
from tests.support.mutants import assert_found

MODEL = (8).to_bytes(4, "little") + b"TFL3" + bytes(8)
DESCRIPTION: dict[str, Any] = {
    "format": 1,
    "name": "m",
    "version": "1",
    "decoder": "anchor_free",
    "labels": ["hot", "cold", "broken"],
    "model": {"file": "m.tflite", "sha256": hashlib.sha256(MODEL).hexdigest()},
    "input": {"width": 320, "height": 256, "channels": "gray", "mean": 0.0, "std": 255.0},
    "decode": {"strides": [8, 16], "score_threshold": 0.4, "class_thresholds": {"hot": 0.3, "cold": 0.5}},
    "calibration": {"scale": [1.0, 2.0, 3.0], "bias": [0.0, -1.0, 1.0]},
    "track": {"min_hits": 2, "static": True},
    "reference": {"detections_per_frame": 2.5},
}
OTHER_VALUES: dict[tuple[str, ...], Any] = {
    ("name",): "n",
    ("version",): "2",
    ("decoder",): "yolo",
    ("labels",): ["cold", "hot", "broken"],
    ("input", "width"): 640,
    ("input", "height"): 512,
    ("input", "channels"): "rgb",
    ("input", "mean"): 1.0,
    ("input", "std"): 1.0,
    ("decode", "strides"): [8, 32],
    ("decode", "score_threshold"): 0.41,
    ("decode", "class_thresholds"): {"hot": 0.5, "cold": 0.3},
    ("calibration", "scale"): [2.0, 1.0, 3.0],
    ("calibration", "bias"): [0.0, 1.0, -1.0],
    ("track", "min_hits"): 3,
    ("track", "static"): False,
    ("reference", "detections_per_frame"): 2.6,
}


def written(value: Any, rng: random.Random) -> str:
    """TOML of a description in an order, with blanks and comments, that the generator draws."""
    plain = [(k, v) for k, v in value.items() if not isinstance(v, dict)]
    tables = [(k, v) for k, v in value.items() if isinstance(v, dict)]
    rng.shuffle(plain)
    rng.shuffle(tables)
    lines = [f"{k}{' ' * rng.randrange(3)}= {_text(v)}{rng.choice(['', '  # why'])}" for k, v in plain]
    for name, table in tables:
        lines += ["", f"[{name}]", *written_items(table, rng)]
    return "\n".join(lines) + "\n" * rng.randrange(3)


def written_items(table: dict[str, Any], rng: random.Random) -> list[str]:
    items = list(table.items())
    rng.shuffle(items)
    return [f"{key} = {_text(value)}" for key, value in items]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_text(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def digest_of(description: dict[str, Any], seed: int, given: list[str] | None = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.tflite").write_bytes(MODEL)
        path = Path(folder) / "m.toml"
        path.write_text(written(description, random.Random(seed)), encoding="utf-8")
        labels = None
        if given is not None:
            labels = Path(folder) / "labels.txt"
            labels.write_text("\n".join(given), encoding="utf-8")
        return load_bundle(path, labels).digest


def changed(*path: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(DESCRIPTION))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = OTHER_VALUES[path]
    return copy


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_layout_order_and_comments_do_not_count(first: int, second: int) -> None:
    assert digest_of(DESCRIPTION, first) == digest_of(DESCRIPTION, second)


@given(st.lists(st.sampled_from(sorted(OTHER_VALUES)), min_size=1, max_size=4, unique=True), st.integers(0, 1 << 30))
@settings(max_examples=80, deadline=None)
def test_whatever_is_changed_the_digest_is_another(paths: list[tuple[str, ...]], seed: int) -> None:
    digests = [digest_of(DESCRIPTION, seed), *(digest_of(changed(*path), seed) for path in paths)]
    assert len(set(digests)) == len(digests), f"two of {paths} share a digest"


@pytest.mark.parametrize("path", sorted(OTHER_VALUES), ids=".".join)
def test_every_key_counts(path: tuple[str, ...]) -> None:
    assert digest_of(changed(*path), 1) != digest_of(DESCRIPTION, 1)


def test_labels_count_wherever_they_come_from(tmp_path: Path) -> None:
    own = digest_of(DESCRIPTION, 1)
    assert digest_of(DESCRIPTION, 1, ["cold", "hot", "broken"]) != own, "given labels"
    by_file = {**{k: v for k, v in DESCRIPTION.items() if k != "labels"}, "labels_file": "names.txt"}
    (tmp_path / "m.tflite").write_bytes(MODEL)
    (tmp_path / "m.toml").write_text(written(by_file, random.Random(1)), encoding="utf-8")
    digests = set()
    for names in ("hot\ncold\nbroken", "cold\nhot\nbroken"):
        (tmp_path / "names.txt").write_text(names)
        digests.add(load_bundle(tmp_path / "m.toml").digest)
    assert len(digests) == 2, "a file of labels"
    (tmp_path / "names.txt").write_text("cold\nhot\nbroken\n\n")
    assert load_bundle(tmp_path / "m.toml").digest in digests, "blank lines at the end are no labels"


def test_a_bare_model_is_its_file_and_the_labels_given_with_it(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(MODEL)
    assert load_bundle(path).digest == hashlib.sha256(MODEL).hexdigest()
    digests = {load_bundle(path).digest}
    for names in ("hot\ncold", "cold\nhot"):
        (tmp_path / "names.txt").write_text(names)
        digests.add(load_bundle(path, tmp_path / "names.txt").digest)
    assert len(digests) == 3


def test_a_description_that_nests_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(ArtefactError, match="nests too deeply"):
        bundle_digest.digest_of_bundle(deep, ())


@pytest.mark.parametrize("number", ["9" * 5_000, "0x" + "f" * 5_000])
def test_a_number_without_end_is_refused(tmp_path: Path, number: str) -> None:
    """Python writes and reads no whole number of so many digits, and says so with an error of its own."""
    path = tmp_path / "bundle.toml"
    path.write_text(f'format = 1\nname = "m"\nx = {number}\n')
    with pytest.raises(ArtefactError):
        load_bundle(path)


def test_golden_vectors() -> None:
    assert json.loads(PATH.read_text()) == document()
    for vector in json.loads(PATH.read_text())["vectors"]:
        assert hashlib.sha256(vector["line"].encode("ascii")).hexdigest() == vector["digest"], vector["name"]
        assert json.loads(vector["line"])["labels"] == vector["labels"]
    digests = [v["digest"] for v in document()["vectors"] + document()["bare"]]
    assert len(set(digests)) == len(digests)
    assert document()["bare"][0]["digest"] == hashlib.sha256(BARE).hexdigest()
    assert tomllib.loads(document()["vectors"][0]["toml"])["labels"] == ["hot", "cold"]


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _only_the_file_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bundle, "digest_of_bundle", lambda document, labels: document["model"]["sha256"])


def _order_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bundle, "digest_of_bundle", lambda document, labels: hash_of(json.dumps([document, labels])))


def _labels_are_a_set(patch: pytest.MonkeyPatch) -> None:
    whole = bundle_digest.digest_of_bundle
    patch.setattr(
        bundle,
        "digest_of_bundle",
        lambda document, labels: whole({k: v for k, v in document.items() if k != "labels"}, sorted(labels)),
    )


def _given_labels_do_not_count(patch: pytest.MonkeyPatch) -> None:
    whole = bundle_digest.digest_of_bundle
    patch.setattr(bundle, "digest_of_bundle", lambda document, labels: whole(document, ()))


def _rounded(patch: pytest.MonkeyPatch) -> None:
    whole = bundle_digest.digest_of_bundle

    def coarse(document: Any, labels: Any) -> str:
        return whole(json.loads(json.dumps(document), parse_float=lambda text: round(float(text), 1)), labels)

    patch.setattr(bundle, "digest_of_bundle", coarse)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_only_the_file_counts, test_whatever_is_changed_the_digest_is_another),
        (_order_counts, test_layout_order_and_comments_do_not_count),
        (_labels_are_a_set, lambda: test_every_key_counts(("labels",))),
        (_rounded, lambda: test_every_key_counts(("decode", "score_threshold"))),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], object], monkeypatch) -> None:
    assert_found(fault, law, monkeypatch)


def test_mutant_of_given_labels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert_found(_given_labels_do_not_count, lambda: test_labels_count_wherever_they_come_from(tmp_path), monkeypatch)
