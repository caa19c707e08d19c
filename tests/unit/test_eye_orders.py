"""What the brain makes of a swap: an order is what the next eye starts with, the eye's own choice is not."""

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from swarmd.api.bus import Bus
from swarmd.api.daemon import PoseSeen
from swarmd.api.node_verbs import register_verbs
from swarmd.api.verbs import Verbs
from swarmd.brain.armed import MAX_AGE_NS, ArmedWord
from swarmd.brain.eyelink import EyeLink
from swarmd.brain.view import View
from swarmd.eye import ipc
from swarmd.logs import Logger
from swarmd.release.trial import EyeRunner


class _Supervisor:
    def __init__(self) -> None:
        self.model = "zoo:auto"
        self.sent: list[ipc.ToEye] = []

    def use_model(self, model: str) -> None:
        self.model = model

    def send(self, message: ipc.ToEye) -> bool:
        self.sent.append(message)
        return True


def _link() -> tuple[EyeLink, _Supervisor]:
    link, supervisor = EyeLink.__new__(EyeLink), _Supervisor()
    link.on_event = lambda event, text: None
    link._supervisor = supervisor  # type: ignore[assignment]
    link._log = Logger("n", stream=io.StringIO())
    link.model_path, link.pose = "zoo:auto", None
    return link, supervisor


def _done(path: str, chosen: bool) -> ipc.SwapDone:
    return ipc.SwapDone(True, "small", "1", "ab" * 32, ("cell",), "", path, chosen)


def test_the_eyes_own_choice_is_not_what_the_next_eye_starts_with() -> None:
    """It once was "", and the next eye found no model at all."""
    link, supervisor = _link()
    link._on_swapped(_done("/zoo/small-320.toml", chosen=True))
    assert (link.model, link.model_digest) == ("small 1", "ab" * 32), "what runs is told all the same"
    assert link.model_path == supervisor.model == "zoo:auto"
    link._on_swapped(_done("/releases/x.toml", chosen=False))
    assert link.model_path == supervisor.model == "/releases/x.toml"


def test_the_autopilots_battery_reaches_the_eye_and_its_own_does_not_come_back() -> None:
    link, supervisor = _link()
    seen = PoseSeen(
        latitude_deg=0.0, longitude_deg=0.0, height_agl_m=20.0, yaw_rad=0.0, position_sigma_m=1.0, has_fix=True,
        battery_milli=170, captured_ns=1,
    )  # fmt: skip
    link.update_pose(seen)
    assert supervisor.sent == [ipc.Power(170)]
    link._bus = Bus(link._log)
    link._on_here(ipc.Here(None, 170, ""))
    assert len(supervisor.sent) == 1


def test_what_the_autopilot_says_of_arms_is_what_a_release_waits_for() -> None:
    """A model that asks for "disarmed" is swapped in once the vehicle says so, and not before."""
    log, clock = Logger("n", stream=io.StringIO()), [0]
    parts = SimpleNamespace(bus=Bus(log), eye=None, is_armed=ArmedWord(lambda: clock[0]))
    view = View(parts, None, lambda: None)  # type: ignore[arg-type]
    verbs = Verbs()
    register_verbs(view, verbs)
    said: list[object] = []
    parts.bus.subscribe(said.append)
    pose = {
        "camera_to_ned": [1.0, 0.0, 0.0, 0.0], "latitude_deg": 1.0, "longitude_deg": 2.0, "height_agl_m": 3.0,
        "position_sigma_m": 0.1, "yaw_rad": 0.5, "has_fix": True, "captured_ns": 7,
    }  # fmt: skip
    for armed in (True, False, None):
        verbs.answer_inside("pose", {**pose, "armed": armed})
        assert parts.is_armed() is armed
    verbs.answer_inside("pose", {**pose, "armed": False})
    clock[0] += MAX_AGE_NS + 1
    assert parts.is_armed() is None, "an autopilot that has fallen silent may have taken off"
    assert [type(one) for one in said] == [PoseSeen] * 4


def test_the_log_says_of_an_eye_that_goes_on_only_once() -> None:
    """Its numbers are in status and metrics; a line each ten seconds would be most of the log."""
    link, supervisor = _link()
    out = io.StringIO()
    link._log = Logger("n", level="info", stream=out)
    link._said, link.model, link.model_digest = None, "small 1", "ab"
    link.telemetry = SimpleNamespace(count=lambda: None, report=lambda *_: {"fps": 30.0})  # type: ignore[assignment]
    link._pilot = SimpleNamespace(tick=lambda: None)  # type: ignore[assignment]
    for state in ["running"] * 5 + ["degraded"] * 5:
        supervisor.state = state
        link.tick()
    assert [json.loads(line)["state"] for line in out.getvalue().splitlines()] == ["running", "degraded"]


def test_the_answer_to_an_order_that_was_given_up_is_none_to_the_next() -> None:
    """A trial that loads for too long is given up; that it is in, after all, does not mean that the eye has left it."""
    heard: list[Callable[[ipc.FromEye], None]] = []
    sent: list[str] = []
    eye = SimpleNamespace(listen=lambda callback: heard.append(callback) or (lambda: None), swap_model=sent.append)
    runner = EyeRunner(cast("Any", eye), lambda: False)
    answers: list[tuple[str, bool]] = []
    runner.swap("trial", lambda answer: answers.append(("trial", answer.ok)))
    runner.swap("back", lambda answer: answers.append(("back", answer.ok)))
    heard[0](_done("trial", chosen=False))
    assert (sent, answers) == (["trial", "back"], [])
    heard[0](_done("back", chosen=True))
    heard[0](_done("back", chosen=False))
    assert answers == [("back", True)]
