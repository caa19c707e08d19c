"""How often each topic may speak: one rate for all, and others by pattern."""

import re
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from swarmd.errors import TransportError

_ENTRY = re.compile(r"(/[^=\s]*)=([0-9]+(?:\.[0-9]+)?)")
HZ_MIN, HZ_MAX = 0.01, 1000.0


class TopicLimits:
    """Says of each topic whether it is its turn."""

    def __init__(self, entries: tuple[str, ...], clock_s: Callable[[], float] = time.monotonic) -> None:
        """Read `TOPIC=HZ` entries; the first that matches a topic counts.

        Raises:
            TransportError: An entry is none; shows how one is written.
        """
        self._rules: list[tuple[str, float]] = []
        self._clock_s = clock_s
        self._last_s: dict[str, float] = {}
        for entry in entries:
            match = _ENTRY.fullmatch(entry.strip())
            if match is None or not HZ_MIN <= float(match[2]) <= HZ_MAX:
                raise TransportError(
                    f"dds.topic_max_hz has {entry!r}; write TOPIC=HZ with a topic that begins with / and "
                    f"{HZ_MIN:g} to {HZ_MAX:g} messages a second, such as /*/fix=1"
                )
            self._rules.append((match[1], float(match[2])))

    def hz(self, topic: str, usual_hz: float) -> float:
        """The rate of a topic: the first rule that matches, else the usual one."""
        return next((hz for pattern, hz in self._rules if fnmatchcase(topic, pattern)), usual_hz)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._last_s.pop(topic, None)

    def is_due(self, topic: str, usual_hz: float) -> bool:
        """Whether the topic may speak now; then it has."""
        now_s = self._clock_s()
        last_s = self._last_s.get(topic)
        # A tenth of slack: a source of ten a second that is a millisecond early is not told to wait for its next.
        if last_s is not None and (now_s - last_s) * self.hz(topic, usual_hz) < 0.9:
            return False
        self._last_s[topic] = now_s
        return True
