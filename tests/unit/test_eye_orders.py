"""What the brain makes of a swap: an order is what the next eye starts with, the eye's own choice is not."""

import io

from swarmd.api.bus import Bus
from swarmd.api.daemon import PoseSeen
from swarmd.brain.eyelink import EyeLink
from swarmd.eye import ipc
from swarmd.logs import Logger


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
