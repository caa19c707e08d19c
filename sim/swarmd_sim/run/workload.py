"""What people and programs ask of the nodes: events, status, counters, notes, and detections where there is no site."""

from collections.abc import Callable
from functools import partial

from swarmd_protocols.effects import SetMeta, UserEvent
from swarmd_protocols.state.observations import Count, LocalDetection, Observed, SetNote, StatusReport
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.sections import WorkloadSection
from swarmd_sim.run.thumbs import ThumbsWorld

_NS_PER_S = 1_000_000_000
_MINUTE_NS = 60 * _NS_PER_S
_NOTE_KEYS = 8


class Workload:
    """The asking side of a run.

    Args:
        engine: Virtual time.
        choices: All randomness.
        hosts: All hosts.
        ledger: Told what was acknowledged.
        config: How much is asked.
        extent_cm: The ground on which synthetic detections fall.
        thumbs: Their pictures; None: there are none.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Choices,
        hosts: list[Host],
        ledger: Ledger,
        config: WorkloadSection,
        extent_cm: tuple[int, int],
        thumbs: ThumbsWorld | None = None,
    ) -> None:
        self._engine = engine
        self._choices = choices
        self._hosts = hosts
        self._ledger = ledger
        self._config = config
        self._extent_cm = extent_cm
        self._thumbs = thumbs
        self._until_ns = 0
        self._number = 0

    def start(self, until_ns: int) -> None:
        """Begin to ask.

        Args:
            until_ns: Nothing is asked after this.
        """
        self._until_ns = until_ns
        config = self._config
        for rate, call in (
            (config.user_events_per_min, self._user_event),
            (config.notes_per_min, self._note),
            (config.meta_per_min, self._meta),
            (config.detections_per_min, self._detection),
            (config.looks_per_min, self._look),
        ):
            if rate > 0:
                self._repeat(int(_MINUTE_NS / rate), call)
        for seconds, call_host in ((config.status_s, self._status), (config.counters_s, self._count)):
            if seconds > 0:
                period_ns = int(seconds * _NS_PER_S)
                for host in self._hosts:
                    phase_ns = self._choices.choose("work.phase", period_ns)
                    self._engine.at(phase_ns, self._periodic, (period_ns, call_host, host))

    def _repeat(self, mean_ns: int, call: Callable[[Host], None]) -> None:
        wait_ns = 1 + self._choices.choose("work.wait", 2 * mean_ns)
        self._engine.at(self._engine.now_ns + wait_ns, self._again, (mean_ns, call))

    def _again(self, what: tuple[int, Callable[[Host], None]]) -> None:
        mean_ns, call = what
        if self._engine.now_ns < self._until_ns:
            call(self._hosts[self._choices.choose("work.host", len(self._hosts))])
            self._repeat(mean_ns, call)

    def _periodic(self, what: tuple[int, Callable[[Host], None], Host]) -> None:
        period_ns, call, host = what
        if self._engine.now_ns < self._until_ns:
            call(host)
            self._engine.at(self._engine.now_ns + period_ns, self._periodic, what)

    def _user_event(self, host: Host) -> None:
        if host.process_up and not host.life.left and not host.stalled:
            self._number += 1
            name = f"e{self._number}"
            event = UserEvent(name, b"x" * (1 + self._choices.choose("work.bytes", 200)))
            host.ask(event, partial(self._ledger.user_event, host, name))

    def _note(self, host: Host) -> None:
        if host.process_up and not host.stalled:
            key = f"note-{self._choices.choose('work.key', _NOTE_KEYS)}"
            self._number += 1
            value = b"" if self._choices.choose("work.remove", 8) == 7 else b"v%d" % self._number
            host.command("state", SetNote(key, value), partial(self._ledger.note, host, key, value))

    def _meta(self, host: Host) -> None:
        if host.process_up and not host.life.left and not host.stalled:
            self._number += 1
            host.ask(SetMeta(f"meta-{self._choices.choose('work.meta', 3)}", b"m%d" % self._number))

    def _status(self, host: Host) -> None:
        if host.process_up and not host.stalled:
            self._number += 1
            host.command("state", StatusReport(b"status %d" % self._number))

    def _count(self, host: Host) -> None:
        if host.process_up and not host.stalled:
            increments = (("frames_inferred", 1 + self._choices.choose("work.frames", 50)),)
            host.command("state", Count(increments), partial(self._ledger.count, host, increments))

    def _look(self, host: Host) -> None:
        if self._thumbs is not None and host.process_up and not host.stalled:
            self._thumbs.look(host)

    def _detection(self, host: Host) -> None:
        if not host.process_up or host.stalled:
            return
        self._number += 1
        draw = self._choices.stream("work.place")
        thumb = b"" if self._thumbs is None else self._thumbs.shelve(host, self._number)
        found = LocalDetection(
            kind="new",
            track_id=self._number,
            label="hot-spot",
            score_milli=500 + draw(500),
            east_cm=draw(self._extent_cm[0] + 1),
            north_cm=draw(self._extent_cm[1] + 1),
            covariance_cm2=(2_500, 0, 2_500),
            asset="",
            moving=False,
            captured_ns=host.clock.local_ns(self._engine.now_ns),
            model_digest=b"sim-eye\0",
            thumb=thumb,
        )
        host.command("state", Observed((found,)), partial(self._ledger.observed, host, (found,)))
