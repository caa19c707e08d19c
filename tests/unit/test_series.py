"""Bundles of series and ensembles: files, features, what is refused, and what a device answers."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from swarmd.cli.infer_series import pieces, read_series, rows_of
from swarmd.worker.checks import agrees
from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.detector import DetectorOptions
from swarmd_models.errors import ArtefactError, FrameError
from swarmd_models.series import WINDOWS_MAX, Bands, features_of, resampled, windows_of
from swarmd_models.series_rule import SeriesRule
from swarmd_models.service import GRAPH, SERIES, Service, Tensors
from swarmd_recipes.mlp import Layers, Lesson, as_onnx, as_tflite, said, taught
from swarmd_recipes.series import write_bundle

RULE = {"task": "classify", "rate_hz": 10.0, "window": 4, "hop": 2, "features": "samples"}


def mean_net(labels: int = 2) -> Layers:
    """The first label's logit rises with the mean of four samples; the others are nought."""
    weights = np.zeros((labels, 4))
    weights[0] = 1.0
    return [(weights, np.zeros(labels))]


def written(folder: Path, name: str, net: Layers, labels: tuple[str, ...] = ("high", "low"), **rule: object) -> Path:
    write_bundle(folder, name, labels, net, RULE | rule, "a test", "none", "", {})
    return folder / f"{name}.toml"


def opened(path: Path, kind: str = "litert") -> Service:
    return Service.open(load_bundle(path), DetectorOptions((kind,)), lambda text: None)


def judged(service: Service, samples: list[float]) -> Tensors:
    run = service.steps(SERIES, {"samples": np.array(samples, np.float32)[:, None]})
    for _ in range(run.units):
        run.step()
    return run.result()


@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_a_series_is_judged_window_by_window(tmp_path: Path, kind: str) -> None:
    service = opened(written(tmp_path, "levels", mean_net()), kind)
    assert service.lanes == (GRAPH, SERIES)
    found = judged(service, [1, 1, 1, 1, -1, -1, -1, -1])
    assert found["at_s"].tolist() == pytest.approx([0.0, 0.2, 0.4])
    assert found["labels"].tolist() == ["high", "high", "low"]
    assert found["scores"].sum(axis=1) == pytest.approx(1.0)
    assert [port.name for port in service.outputs(SERIES)] == list(found)
    service.close()


def test_a_regression_gives_numbers(tmp_path: Path) -> None:
    service = opened(written(tmp_path, "sums", mean_net(1), ("sum",), task="regress", unit="V"))
    assert judged(service, [1, 2, 3, 4])["values"].tolist() == [[10.0]]
    service.close()


@pytest.mark.parametrize(
    ("samples", "says"),
    [([1.0] * 3, "looks at 4 at once"), ([1.0] * 300, "64 at once"), ([np.nan] * 4, "no number")],
)
def test_what_is_no_series_of_the_model_is_refused(tmp_path: Path, samples: list[float], says: str) -> None:
    service = opened(written(tmp_path, "levels", mean_net()))
    with pytest.raises(FrameError, match=says):
        judged(service, samples)
    service.close()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"window": 8}, "takes 4 numbers"),
        ({"features": "spectrum", "frame": 2, "bands": 3, "low_hz": 1.0, "high_hz": 9.0}, "low_hz < high_hz"),
        ({"features": "spectrum", "frame": 8, "low_hz": 1.0}, "fit into the window"),
        ({"task": "guess"}, "task"),
    ],
)
def test_a_description_that_does_not_fit_the_net_is_refused(
    tmp_path: Path, changed: dict[str, object], says: str
) -> None:
    path = written(tmp_path, "levels", mean_net(), **changed)
    with pytest.raises(ArtefactError, match=says):
        opened(path)


def test_a_spectrum_knows_a_tone_however_loud() -> None:
    rule = SeriesRule("classify", 8_000.0, 4_096, 2_048, 1, "spectrum", 1_024, 32, 20.0, 3_900.0, "mean")
    bands, t = Bands(rule), np.arange(4_096) / 8_000.0

    def of(hz: float, loud: float) -> np.ndarray:
        noise = np.random.default_rng(1).normal(size=(4_096, 1)) * 0.01
        return features_of((loud * (np.sin(2 * np.pi * hz * t)[:, None] + noise)).astype(np.float32), rule, bands)

    assert len(of(440.0, 0.5)) == rule.features_count == 64
    np.testing.assert_allclose(of(440.0, 0.5), of(440.0, 0.05), atol=0.01)
    assert of(440.0, 0.5)[:32].argmax() < of(1_760.0, 0.5)[:32].argmax()


def test_a_longer_series_goes_in_pieces_of_whole_windows() -> None:
    samples = np.arange(1_000, dtype=np.float32)[:, None]
    rule = SeriesRule("classify", 10.0, 4, 2)
    rows = [(at + start, piece[start, 0]) for at, piece in pieces(samples, 4, 2)
            for start in windows_of(len(piece), rule)]  # fmt: skip
    assert [at for at, _ in rows] == list(range(0, 997, 2)) == [int(first) for _, first in rows]
    assert all(len(windows_of(len(piece), rule)) <= WINDOWS_MAX for _, piece in pieces(samples, 4, 2))


def test_a_sound_is_brought_to_the_models_rate(tmp_path: Path) -> None:
    import wave

    t = np.arange(16_000) / 16_000.0
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(np.repeat(np.rint(16_000 * np.sin(2 * np.pi * 440 * t)), 2).astype("<i2").tobytes())
    found = read_series(tmp_path / "a.wav", 8_000.0, 1)
    wanted = np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000.0) * 16_000 / 32_768
    assert found.shape == (8_000, 1)
    np.testing.assert_allclose(found[200:-200, 0], wanted[200:-200], atol=2e-3)
    assert resampled(found, 8_000.0, 12_000.0).shape == (12_000, 1)


def test_a_log_may_name_its_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("volts;amperes\n3.9;5\n3.8;6\n", encoding="utf-8")
    assert read_series(tmp_path / "a.csv", 1.0, 2).tolist() == [[3.9000000953674316, 5.0], [3.799999952316284, 6.0]]


# --- Ensembles --------------------------------------------------------------------------------------------------------


def ensemble(folder: Path, least: float = 0.0, **members: tuple[str, ...]) -> Path:
    """A router that says `high` or `low`, and experts that answer `yes` and `no`, each in its own way."""
    digests = {name: load_bundle(folder / f"{name}.toml").digest for name in ("router", *members)}
    rows = [
        f'[[ensemble.expert]]\nbundle = "{name}.toml"\ndigest = "{digests[name]}"\nwhen = {json.dumps(list(when))}'
        for name, when in members.items()
    ]
    text = "\n".join([
        "format = 1", 'name = "both"', 'decoder = "ensemble"', 'labels = ["yes", "no"]', "[ensemble]",
        'router = "router.toml"', f'router_digest = "{digests["router"]}"', f"least = {least}", *rows,
    ])  # fmt: skip
    (folder / "both.toml").write_text(text, encoding="utf-8")
    return folder / "both.toml"


@pytest.fixture
def members(tmp_path: Path) -> Path:
    written(tmp_path, "router", mean_net())
    weights = np.zeros((2, 4))
    for name, offsets in (("yea", [9.0, 0.0]), ("nay", [0.0, 9.0])):
        written(tmp_path, name, [(weights, np.array(offsets))], ("yes", "no"))
    return tmp_path


def test_the_router_chooses_who_answers_each_window(members: Path) -> None:
    service = opened(ensemble(members, yea=("high",), nay=()))
    assert service.lanes == (SERIES,)
    found = judged(service, [1, 1, 1, 1, -1, -1, -1, -1])
    assert found["routed"].tolist() == ["yea", "yea", "nay"]
    assert found["labels"].tolist() == ["yes", "yes", "no"]
    assert [port.name for port in service.outputs(SERIES)] == list(found)
    service.close()


def test_where_the_router_is_unsure_the_other_answers(members: Path) -> None:
    service = opened(ensemble(members, 0.95, yea=("high",), nay=()))
    assert judged(service, [1, 1, 1, 1])["routed"].tolist() == ["yea"]
    assert judged(service, [0.5, 0, 0, 0])["routed"].tolist() == ["nay"]
    service.close()


def test_an_expert_that_was_exchanged_makes_no_version_of_the_ensemble(members: Path) -> None:
    path = ensemble(members, yea=("high",), nay=())
    before = load_bundle(path).digest
    written(members, "yea", [(np.zeros((2, 4)), np.array([8.0, 0.0]))], ("yes", "no"))
    with pytest.raises(ArtefactError, match=r"yea\.toml is not the bundle that the ensemble was made with"):
        load_bundle(path)
    assert load_bundle(ensemble(members, yea=("high",), nay=())).digest != before


def test_a_release_of_an_ensemble_has_all_of_its_files(members: Path) -> None:
    from swarmd.release.author import bundle_files

    found = bundle_files(ensemble(members, yea=("high",), nay=()))
    assert {name for name, (role, _) in found.items() if role == "bundle"} == {"both.toml"}
    assert sum(role == "model" for role, _ in found.values()) == 1
    other = members / "elsewhere"
    other.mkdir()
    for name, (_, data) in found.items():
        (other / name).write_bytes(data)
    service = opened(other / "both.toml")
    assert judged(service, [1, 1, 1, 1])["routed"].tolist() == ["yea"]
    service.close()


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"yea": ("high",), "nay": ("low",)}, "exactly one expert"),
        ({"yea": ("odd",), "nay": ()}, "no label of the router"),
        ({"yea": ("high",), "nay": (), "router": ("low",)}, "labels of router are not"),
    ],
)
def test_an_ensemble_that_leaves_something_open_is_refused(
    members: Path, chosen: dict[str, tuple[str, ...]], says: str
) -> None:
    with pytest.raises(ArtefactError, match=says):
        load_bundle(ensemble(members, **chosen))


def test_an_ensemble_of_itself_is_refused(members: Path) -> None:
    path = ensemble(members, yea=("high",), nay=())
    text = path.read_text(encoding="utf-8").replace('"nay.toml"', '"both.toml"')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ArtefactError, match="no other bundle"):
        load_bundle(path)
    (members / "twin.toml").write_text(text, encoding="utf-8")
    path.write_text(text.replace('"both.toml"', '"twin.toml"'), encoding="utf-8")
    with pytest.raises(ArtefactError, match="is an ensemble"):
        load_bundle(path)


# --- Checks, rows, training -------------------------------------------------------------------------------------------


def threshold_of(label: str, /) -> float:
    return 0.5


def test_a_lie_about_a_window_is_found_and_a_near_tie_is_none() -> None:
    own = {
        "at_s": np.zeros(2, np.float32), "scores": np.array([[0.9, 0.1], [0.52, 0.48]], np.float32),
        "labels": np.array(["a", "b"], object),
    }  # fmt: skip
    assert agrees(SERIES, own, own, threshold_of)
    assert agrees(SERIES, own, own | {"labels": np.array(["a", "a"], object)}, threshold_of)
    assert not agrees(SERIES, own, own | {"labels": np.array(["b", "b"], object)}, threshold_of)
    assert not agrees(SERIES, own, own | {"scores": own["scores"][:, ::-1]}, threshold_of)
    assert not agrees(SERIES, own, own | {"labels": own["labels"][:1]}, threshold_of)


def test_rows_say_what_each_window_is() -> None:
    outputs = {"at_s": np.array([0.5], np.float32), "scores": np.array([[0.25, 0.75]], np.float32),
               "labels": np.array(["b"], object), "routed": np.array(["x"], object)}  # fmt: skip
    assert rows_of(outputs, ["a", "b"]) == [{"at_s": 0.5, "label": "b", "score": 0.75, "by": "x"}]
    numbers = {"at_s": np.array([0.0], np.float32), "values": np.array([[1.5]], np.float32)}
    assert rows_of(numbers, ["minutes"]) == [{"at_s": 0.0, "values": {"minutes": 1.5}}]


def test_a_net_learns_and_its_files_say_the_same() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(5.0, 3.0, (1_000, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)
    net = taught(x, y, 2, Lesson((16,), 40, 1e-2), lambda text: None)
    logits = said(net, x)
    assert (logits.argmax(1) == y).mean() > 0.95
    assert as_onnx(net) == as_onnx(net)
    assert hashlib.sha256(as_tflite(net)).digest() == hashlib.sha256(as_tflite(net)).digest()


# --- The zoo ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["propeller-sound", "propeller-experts", "battery-minutes"])
def test_the_zoos_series_say_where_they_come_from(name: str) -> None:
    bundle: Bundle = load_bundle(f"zoo:{name}")
    assert "seed 15" in bundle.provenance["recipe"]
    assert len(bundle.provenance["data_sha256"]) == 64
    assert sum(path.stat().st_size for path in bundle.files()) < 5_000_000


def test_the_zoo_tells_a_broken_propeller_from_a_whole_one() -> None:
    from swarmd_recipes.sounds import CRAFTS, FAULTS, sound

    rng = np.random.default_rng(99)
    service = opened(Path("models/swarmd_models/zoo/propeller-experts.toml"))
    right = routed = 0
    for at in range(40):
        craft, fault = list(CRAFTS)[at % 4], FAULTS[at // 4 % 5]
        found = judged(service, sound(rng, craft, fault).tolist())
        right += found["labels"][0] == fault
        routed += found["routed"][0] == f"propeller-{craft}"
    assert routed >= 34
    assert right >= 24, right
    service.close()


def test_no_eye_takes_a_model_that_hears() -> None:
    from swarmd_models.detector import Detector

    with pytest.raises(ArtefactError, match="a model of series"):
        Detector.open(load_bundle("zoo:propeller-sound"), DetectorOptions(("litert",)))
    bundle = dataclasses.replace(load_bundle("zoo:propeller-experts"))
    with pytest.raises(ArtefactError, match="several models in one"):
        Detector.open(bundle, DetectorOptions(("litert",)))
