"""What an operator should know of the statements: two releases of one version, some that nobody passes on, silence."""

from swarmd_protocols.effects import Alarm
from swarmd_protocols.releases.signed_time import SignedTime
from swarmd_protocols.releases.versions import View
from swarmd_protocols.subprotocol import SubEffect

_WITHHELD_NS = 600_000_000_000
"""A release that the newest heartbeat names is missed after so long; repair takes seconds."""


class Lookout:
    """Names each thing once.

    Args:
        time: How late it is, and how long the publisher has been silent.
        alarmed: What was named; shared with who steers, which takes out what is over.
    """

    def __init__(self, time: SignedTime, alarmed: set[str]) -> None:
        self._time = time
        self._alarmed = alarmed
        self._whole_ns = 0
        """When all was here last that the newest heartbeat names."""

    def on_heartbeat(self, now_ns: int) -> None:
        """The publisher speaks again."""
        self._time.on_heartbeat(now_ns)
        self._alarmed.discard("stale")

    def forks(self, view: View) -> list[SubEffect]:
        """Two releases of one version are signed."""
        effects: list[SubEffect] = []
        for name, model in view.models.items():
            for release in model.releases.values():
                code = f"fork/{name}/{release.epoch}/{release.version}"
                if model.is_forked(release) and code not in self._alarmed:
                    self._alarmed.add(code)
                    text = f"two different releases of {name} {release.version} are signed; both are blocked"
                    effects.append(Alarm("release-equivocation", text))
        return effects

    def withheld(self, view: View, now_ns: int) -> list[SubEffect]:
        """The newest heartbeat names releases that do not come, though the heartbeat itself did."""
        if not view.withheld:
            self._whole_ns = now_ns
            self._alarmed.discard("withheld")
        if now_ns - self._whole_ns < _WITHHELD_NS or "withheld" in self._alarmed:
            return []
        self._alarmed.add("withheld")
        named = ", ".join(one.hex()[:16] for one in view.withheld[:4])
        return [Alarm("releases-withheld", f"the newest heartbeat names releases that nobody passes on: {named}")]

    def staleness(self, view: View, now_ns: int) -> list[SubEffect]:
        """No heartbeat was new for so long that what is known may be old."""
        if not view.models or not self._time.is_stale(view, now_ns) or "stale" in self._alarmed:
            return []
        self._alarmed.add("stale")
        days = self._time.silent_ns(now_ns) // 86_400_000_000_000
        return [Alarm("releases-stale", f"no new heartbeat of the publisher for {days} days; releases may be withheld")]
