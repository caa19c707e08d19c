"""What another judge needs is said where it is configured, and without one nothing is different."""

from typing import Any

import pytest

from swarmd.cli.diagnosis import _judge
from swarmd.config.loading import load
from swarmd.errors import ConfigError

JUDGED = {"judge.model": "zoo:medium-640", "eye.thumbnails": True, "inference.listen": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("less", "why"),
    [
        ({"eye.thumbnails": False}, "needs pictures of candidates"),
        ({"inference.listen": ""}, "needs a worker"),
        ({"judge.borrow": True}, r"needs lending\.borrow"),
    ],
)
def test_what_a_judge_needs_is_said(less: dict[str, object], why: str) -> None:
    assert load(None, {}, JUDGED).config.judge.model == "zoo:medium-640"
    assert not load(None, {}, {}).config.judge.model
    with pytest.raises(ConfigError, match=why):
        load(None, {}, {**JUDGED, **less})


WAITED_FOR: dict[str, Any] = {
    **JUDGED,
    "eye.model": "zoo:small-320",
    "eye.candidates_per_1000": 10.0,
    "eye.false_alarms_per_1000": 1.0,
    "inference.models": ("eye", "zoo:medium-640"),
}


def found(**more: Any) -> list[tuple[str, str]]:
    flags = {**WAITED_FOR, **{name.replace("__", "."): value for name, value in more.items()}}
    findings = list(_judge(load(None, {}, flags).config))
    assert all(one.check == "judge" and (one.remedy or one.verdict == "ok") for one in findings)
    return [(one.verdict, one.found) for one in findings]


def test_the_doctor_finds_a_judge_that_is_there() -> None:
    assert found() == [("ok", "zoo:medium-640 is asked here, 6 times a minute at most")]
    assert found(judge__model="solar-medium-640")[0][0] == "ok", "by its name as served"
    assert found(inference__models=("eye",), judge__borrow=True, lending__borrow=True)[0][0] == "ok"
    assert found(judge__model="able:pv", inference__abilities=("zoo:medium-640 pv 0.8",))[0][0] == "ok"
    assert not list(_judge(load(None, {}, {}).config)), "who configures none reads nothing of it"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"judge__model": "", "judge__need": 0.5}, "judge.model is empty: nobody is asked"),
        ({"judge__model": "zoo:none"}, "the zoo has no model 'none'"),
        ({"judge__model": "/no/such.toml"}, "no model at /no/such.toml"),
        ({"inference__models": ("eye",)}, "not served here, and nobody is borrowed from; served here: solar-small-320"),
        ({"judge__model": "somebody"}, "somebody is not served here"),
        ({"judge__model": "able:pv"}, "no model here is said to be able to pv"),
        ({"eye__candidates_per_1000": 0.0}, "eye.candidates_per_1000 is 0"),
        ({"eye__enabled": False}, "the eye is off"),
    ],
)
def test_the_doctor_finds_a_judge_that_is_missing_or_waits_for_nothing(more: dict[str, Any], why: str) -> None:
    (verdict, text), *others = found(**more)
    assert verdict == "warn"
    assert why in text
    assert all(one == "ok" for one, _ in others)
