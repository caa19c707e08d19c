"""The loop that learns, from a kept frame to a canary: every step by the command that a person types.

The frames are drawn, and another camera's (less contrast); the labels are the truth of what was drawn.
"""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from swarmd.cli.main import main
from swarmd.release.author import read_publication
from swarmd_models import evaluate
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import nominal_pixel_m
from swarmd_models.frame_ring import FrameRing
from swarmd_models.golden import check_golden
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.thermal import FAULT_LABELS
from swarmd_models.types import Frame
from swarmd_recipes import labelled
from tests.support.release_world import MODEL, World
from tests.support.syncs import recorded
from tests.unit.test_draft_folder import leave_dead_draft

STEP_NS = 3_000_000_000
RUNNING = "zoo:small-320"


def fly(folder: Path, count: int) -> dict[int, Scene]:
    """The eye of a drone keeps what it is unsure of; returns the truth by the time of capture."""
    bundle = load_bundle(RUNNING)
    options = SceneOptions(
        bundle.input.width, bundle.input.height, pixel_m=nominal_pixel_m(bundle), real_share=0.0, plain_share=0.0
    )
    maker, detector = SceneMaker(options, 4711), Detector.open(bundle, DetectorOptions())
    ring = FrameRing(folder, 64 << 20)
    truth = {}
    for index in range(count):
        scene = maker.scene(index)
        image = np.clip(scene.image * 0.45 + 110, 0, 255).astype(np.uint8)
        frame = Frame(index, (index + 1) * STEP_NS, image)
        if ring.consider(frame, detector.detect(image), bundle.threshold_of, 0.0, bundle.digest):
            truth[frame.captured_ns] = scene
    detector.close()
    return truth


def correct(export: Path, labels: Path, truth: dict[int, Scene]) -> None:
    """What a person does in a labelling tool: every guess goes, every fault is boxed."""
    document = json.loads((export / "annotations.json").read_bytes())
    document["categories"] = [{"id": at + 1, "name": name} for at, name in enumerate(FAULT_LABELS)]
    document["annotations"] = [
        {
            "id": 1,
            "image_id": picture["id"],
            "category_id": int(label) + 1,
            "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
        }
        for picture in document["images"]
        for scene in [truth[picture["captured_ns"]]]
        for box, label in zip(scene.boxes.tolist(), scene.label_index, strict=True)
        if label >= 0
    ]
    labels.write_text(json.dumps(document))


@pytest.mark.slow
def test_from_kept_frames_to_a_canary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """About eight seconds, most of them for training and the figures of both models."""

    def step(*command: object) -> None:
        assert main([str(part) for part in command]) == 0, capsys.readouterr().err

    truth = fly(tmp_path / "kept", 64)
    assert len(truth) > 30
    step("frames", "export", "--folder", tmp_path / "kept", "--out", tmp_path / "export")
    correct(tmp_path / "export", tmp_path / "corrected.json", truth)
    step(
        *("frames", "import", "--export", tmp_path / "export", "--labels", tmp_path / "corrected.json"),
        *("--by", "alice", "--out", tmp_path / "set"),
    )
    learn = [RUNNING, str(tmp_path / "new"), str(tmp_path / "set"), "--version", "4", "--steps", "100"]
    capsys.readouterr()
    with recorded(monkeypatch) as syncs:
        assert labelled.main(learn) == 0
        syncs.assert_durable(tmp_path / "new")
    learned = json.loads(capsys.readouterr().out)
    assert learned["after"]["loss"] < learned["before"]["loss"] * 0.95
    bundle = tmp_path / "new" / "small-320.toml"
    told = tomllib.loads(bundle.read_text())["provenance"]["labels"]
    assert told["labelled_by"] == ["alice"]
    assert told["from"] == load_bundle(RUNNING).digest

    figures = []
    for model in (RUNNING, str(bundle)):
        assert evaluate.main(["--labelled", str(tmp_path / "set"), "--model", model, "--json"]) == 0
        figures.append(json.loads(capsys.readouterr().out))
    assert figures[1]["ap"] > figures[0]["ap"] - labelled.WORSE_AP
    assert figures[0]["set"] == figures[1]["set"] == told["sets"][0]

    step(
        *("model", "build", bundle, "-o", tmp_path / "pub", "--model", MODEL, "--version", 1, "--epoch", 1),
        *("--soak", 1, "--samples", 1, "--rollout", "25,100", "--swap-when", "any"),
    )
    publish(tmp_path)


def publish(folder: Path) -> None:
    """Two officers sign; four nodes fetch it, and a canary tries the very files before the others do."""
    publication = read_publication(folder / "pub")
    blobs = [path.read_bytes() for path in sorted((folder / "pub" / "blobs").iterdir())]

    def is_sound(node: int, release: bytes) -> bool:
        assert release == publication.digest
        there = folder / f"node-{node}"
        there.mkdir()
        for file in publication.release.bundle:
            (there / file.path).write_bytes(world.stores[node].blob(file.blob))
        check_golden(Detector.open(load_bundle(there / "small-320.toml"), DetectorOptions()))
        return True

    world = World(4, healthy=is_sound)
    world.publish(0, [world.keys.sign("release", publication.envelope.payload, "release")], *blobs)
    world.run(120, lambda: any(world.tried))
    assert sum(map(bool, world.tried)) == 1, "one canary first"
    world.run(300, lambda: world.versions() == [1] * 4)
    assert world.versions() == [1] * 4


def test_what_nobody_has_labelled_enough_is_not_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = fly(tmp_path / "kept", 4)
    assert main(["frames", "export", "--folder", str(tmp_path / "kept"), "--out", str(tmp_path / "export")]) == 0
    correct(tmp_path / "export", tmp_path / "corrected.json", truth)
    command = ["frames", "import", "--export", str(tmp_path / "export"), "--labels", str(tmp_path / "corrected.json")]
    assert main([*command, "--by", "alice", "--out", str(tmp_path / "set")]) == 0
    leave_dead_draft(tmp_path)
    assert labelled.main([RUNNING, str(tmp_path / "new"), str(tmp_path / "set"), "--version", "4"]) == 1
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")], "what a killed run left has gone"
    assert "at least 10 and 4 are needed" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("now", [{"loss": float("nan")}, {"drawn_loss": float("nan")}, {"loss": 1.0}])
def test_a_model_whose_figures_are_no_numbers_is_refused(now: dict[str, float]) -> None:
    """As `--rate 1e300` makes one; where nothing was held back as a whole, no average precision stands against it."""
    before = labelled.Judged(1.0, None, None, None, 1.0)
    with pytest.raises(ArtefactError):
        labelled._refuse_worse(before, replace(before, **{"loss": 0.9, **now}))


def test_what_is_refused_takes_nobody_elses_model_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that learn into one folder at once: who is done second leaves what the first has made."""
    truth = fly(tmp_path / "kept", 32)
    assert main(["frames", "export", "--folder", str(tmp_path / "kept"), "--out", str(tmp_path / "export")]) == 0
    correct(tmp_path / "export", tmp_path / "corrected.json", truth)
    command = ["frames", "import", "--export", str(tmp_path / "export"), "--labels", str(tmp_path / "corrected.json")]
    assert main([*command, "--by", "alice", "--out", str(tmp_path / "set"), "--held-share", "0.4"]) == 0
    new = tmp_path / "new"

    def refuse(before: labelled.Judged, after: labelled.Judged) -> None:
        assert not new.exists(), "what nobody has judged does not stand there"
        new.mkdir()
        (new / "small-320.toml").write_text("the first")
        raise ArtefactError("no better")

    monkeypatch.setattr(labelled, "_refuse_worse", refuse)
    monkeypatch.setattr(labelled, "_judged", lambda *args: labelled.Judged(1.0, None, None, None, 1.0))
    assert labelled.main([RUNNING, str(new), str(tmp_path / "set"), "--version", "4", "--steps", "1"]) == 1
    assert "no better" in capsys.readouterr().err
    assert (new / "small-320.toml").read_text() == "the first"
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")], "no draft is left"
