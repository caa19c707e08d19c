"""Language models: vocabulary, tokens one after the other, and the zoo's own, which tells events in a sentence."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from swarmd.events.kinds import KINDS
from swarmd.worker.checks import agrees
from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, FrameError
from swarmd_models.service import GRAPH, TEXT, Service
from swarmd_models.texts import Going, TextNet, TextRule, Vocabulary, choose
from swarmd_recipes import reports

PROMPT = "drone-4 autopilot fix near row 12\n3 hot-spot review"
REPORT = "Drone 4 lost its fix near row 12; three hot spots wait for review."


@pytest.fixture(scope="module")
def service() -> Service:
    return Service.open(load_bundle("zoo:events-text"), DetectorOptions(), lambda text: None)


def told(net: TextNet, prompt: str, chunk: int, seed: int = 0, temperature: float = 0.0) -> list[int]:
    row = net.words.tokens_of(prompt)
    made: list[int] = []
    while net.words.end not in made and len(made) < 64:
        *_, outputs = net.run(Going((*row, *made), chunk, seed + len(made), temperature))
        assert outputs is not None
        made += outputs["tokens"].tolist()
    return made


def test_the_zoos_model_tells_what_the_issue_of_its_making_wanted(service: Service) -> None:
    assert service.lanes == (GRAPH, TEXT)
    assert service.text is not None
    made = told(service.text, PROMPT + reports.ARROW, 4)
    assert service.text.words.text_of(made).strip() == REPORT


def test_unseen_events_are_told_rightly_as_often_as_the_bundle_says(service: Service) -> None:
    net, rng = service.text, random.Random(4711)
    assert net is not None
    lines = [reports.draw(rng) for _ in range(30)]
    right = sum(
        net.words.text_of(told(net, reports.prompt_of(one) + reports.ARROW, 64)).strip() == reports.report_of(one)
        for one in lines
    )
    claimed = service.bundle.provenance["scores"]["tflite"]["right"]
    assert claimed >= 0.9
    assert right >= 30 * claimed - 4, "four of thirty beyond what is claimed are no chance"


def test_what_the_model_was_taught_are_kinds_that_a_swarm_has() -> None:
    assert set(reports.KINDS) | {"autopilot"} <= set(KINDS)


def test_a_prompt_has_one_report_and_each_line_is_in_it() -> None:
    rng = random.Random(7)
    for _ in range(300):
        lines = reports.draw(rng)
        text = reports.report_of(lines)
        assert text == reports.report_of([*lines, *lines]), "what is told twice is told once"
        for one in lines:
            for number in re.findall(r"\d+", one.subject if one.kind in reports.SHARED else ""):
                assert re.search(rf"\b{number}\b", text), (one, text)


@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_how_many_tokens_are_asked_for_at_once_changes_no_token(service: Service, temperature: float) -> None:
    net = service.text
    assert net is not None
    prompt = "drone-2 failed drone-9\ndrone-3 failed drone-17" + reports.ARROW
    ways = [told(net, prompt, chunk, 99 * 1024, temperature) for chunk in (1, 3, 64)]
    assert ways[0] == ways[1] == ways[2]


def test_both_forms_of_the_zoos_model_say_the_same() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed (swarmd[onnx])")
    bundle = load_bundle("zoo:events-text")
    said = []
    for kind in ("litert", "onnx"):
        net = Service.open(bundle, DetectorOptions((kind,)), lambda text: None).text
        assert net is not None
        said.append(told(net, PROMPT + reports.ARROW, 8))
    assert said[0] == said[1]


def test_the_likeliest_token_is_chosen_without_heat_and_drawn_by_the_odds_with_it() -> None:
    logits = np.log(np.array([0.1, 0.6, 0.3]))
    assert choose(logits, 5, 0.0) == (1, pytest.approx(np.log(2.0)))
    drawn = [choose(logits, seed, 1.0)[0] for seed in range(3_000)]
    assert np.bincount(drawn) / 3_000 == pytest.approx([0.1, 0.6, 0.3], abs=0.03)


def test_a_text_has_the_longest_pieces_and_comes_back_whole(service: Service) -> None:
    assert service.text is not None
    words = service.text.words
    rng = random.Random(3)
    for _ in range(200):
        text = "".join(rng.choice(words.pieces[1:]) for _ in range(12))
        assert words.text_of(words.tokens_of(text)) == text
    with pytest.raises(FrameError, match="no word for 'ß'"):
        words.tokens_of("heiß")
    with pytest.raises(ArtefactError, match="is to end a text"):
        Vocabulary(["a"])
    assert words.end not in words.tokens_of("<end>"), "nobody's text ends a text"


@pytest.mark.parametrize(
    "going",
    [Going(()), Going((0,) * 129), Going((-1,)), Going((260_000,)), Going((1,), 0), Going((1,), 65), Going((1,), 1, -1),
     Going((1,), 1, 0, 11.0), Going((1,), 1, 0, float("nan"))],
)  # fmt: skip
def test_nonsense_is_refused_before_anything_runs(service: Service, going: Going) -> None:
    assert service.text is not None
    with pytest.raises(FrameError):
        next(service.text.run(going))


class Shaped:
    """A loaded graph of these tensors."""

    def __init__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> None:
        self.inputs, self.outputs = tuple(inputs), (output,)


def spec(name: str, shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, shape, np.dtype(dtype))


LABELS = ("<end>", "a", "b")


@pytest.mark.parametrize(
    ("inputs", "output", "match"),
    [
        ([spec("ids", (1, 8), "int64"), spec("mask", (1, 8), "int64")], spec("logits", (1, 8, 3)), "one tensor"),
        ([spec("ids", (1, 8, 1))], spec("logits", (1, 8, 3)), "one tensor"),
        ([spec("ids", (1, 8), "int8")], spec("logits", (1, 8, 3)), "one tensor"),
        ([spec("ids", (1, 8), "int64")], spec("logits", (1, 8, 4)), "vocabulary of 3"),
        ([spec("ids", (1, 8), "int64")], spec("logits", (1, 3)), "vocabulary of 3"),
    ],
)
def test_other_graphs_are_no_text_models(inputs: list[TensorSpec], output: TensorSpec, match: str) -> None:
    with pytest.raises(ArtefactError, match=match):
        TextNet(Shaped(inputs, output), LABELS, TextRule())  # type: ignore[arg-type]


def test_an_eye_refuses_a_language_model_with_a_sentence() -> None:
    with pytest.raises(ArtefactError, match="is a language model"):
        Detector.open(load_bundle("zoo:events-text"), DetectorOptions())


def test_a_lenders_tokens_agree_up_to_a_near_tie() -> None:
    def said(tokens: list[int], margins: list[float]) -> dict[str, np.ndarray]:
        return {"tokens": np.array(tokens, np.int32), "margins": np.array(margins, np.float32)}

    own = said([5, 6, 7], [3.0, 0.01, 2.0])

    def is_right(*tokens: int) -> bool:
        return agrees(TEXT, own, said(list(tokens), [9.0] * len(tokens)), lambda label: 0.5)

    assert is_right(5, 6, 7)
    assert is_right(5, 9, 9), "the second was a near tie, and what follows a different word is different"
    assert not is_right(4, 6, 7)
    assert not is_right(5, 6, 8)
    assert not is_right(5, 6)
    assert not is_right(5, 6, 7, 7)
    assert not agrees(TEXT, own, {"margins": own["margins"]}, lambda label: 0.5), "what says no token cannot be judged"


def test_the_files_are_small_and_say_nothing_of_where_they_were_made() -> None:
    for path in ZOO.glob("events-text.*"):
        assert b"site-packages" not in path.read_bytes(), path
    assert sum(path.stat().st_size for path in Path(ZOO).glob("events-text.*")) <= 5_000_000
