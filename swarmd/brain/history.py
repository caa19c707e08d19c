"""The history of one node: its file, its recorder, what stands, and what watches the brain for it, as one part."""

import time
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from swarmd.brain.dismissals import dismiss, dismissed
from swarmd.brain.event_watch import EventWatch
from swarmd.brain.journal import Journal
from swarmd.brain.parts import Parts
from swarmd.brain.past_link import PastLink
from swarmd.errors import DaemonError
from swarmd.events.alerts import Acknowledged, Alert, Alerts
from swarmd.events.kinds import ALERTS, KINDS, Level, level_of
from swarmd.events.record import EventRecord, Happened
from swarmd.events.recorder import Recorder
from swarmd.events.store import FOUND_MAX, Bounds, EventStore, Query
from swarmd_protocols.effects import MemberState
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.crdt.records import EventRow
from swarmd_protocols.state.observations import SayEvent
from swarmd_protocols.state.positions import NAME as WHERE
from swarmd_protocols.state.positions import SayPlace
from swarmd_protocols.trust.trust import Trust

ROSTER_S = 1.0
"""Seconds for which the list of members is taken as it was: rows of a thousand take milliseconds to make."""
FOLLOW_S = 600.0
"""Seconds after which an observer fetches what others wrote down since, 18 kB of a drone with a place a second: for
what it slept through, what a cut hid, and events that their authors told nobody."""
_DAY_MS = 86_400_000
_LOGGED_ELSEWHERE = ("alarm", "started", "stopped", "reloaded", "eye-", "release-")
"""Beginnings of kinds whose lines in the log come from where they happen."""


def acknowledged(rows: Iterable[EventRecord]) -> dict[tuple[str, str], Acknowledged]:
    """Which alerts were acknowledged and not solved since, of events oldest first."""
    found: dict[tuple[str, str], Acknowledged] = {}
    for row in rows:
        code, _, subject = row.subject.partition(" ")
        if row.kind == "alert-acknowledged":
            found[code, subject] = Acknowledged(row.evidence, row.at_ms, row.reason)
        else:
            found.pop((code, subject), None)
    return found


class History:
    """What happened at one node, and what still stands."""

    def __init__(self, parts: Parts, trust: Trust, journal: Journal, pages: PastLink) -> None:
        """Compose it; `open` and `begin` follow.

        Args:
            parts: The brain's.
            trust: Who counts.
            journal: Whose folder the file shares.
            pages: The same for others, page by page, and theirs for this node.
        """
        self._parts = parts
        self.pages = pages
        self._trust = trust
        settings = parts.config.events
        bounds = Bounds(settings.max_mib << 20, settings.max_age_days * _DAY_MS, settings.author_rows)
        self.store = EventStore(journal.folder, bounds, lambda text: self.alerts.set("events-failing", text))
        self.alerts = Alerts(self._on_alert)
        self.recorder = Recorder(
            parts.identity.node,
            parts.identity.name,
            parts.replica.views.incarnation,
            self.store,
            now_ms=self._now_ms,
            name_of=self._name_of,
            members=lambda: list(self._roster()),
            publish=self._publish,
            say=self._say,
        )
        self.watch = EventWatch(parts, self.recorder, self.alerts, trust)
        pages.name_of = self._name_of
        self._last_kind = ""
        self._names: dict[NodeId, str] = {}
        self._wanted_s = 0.0
        """Until when others' past is wanted."""
        self._roster_s = float("-inf")

    async def open(self) -> None:
        """Open the file."""
        self._last_kind = await self.store.open()
        await self.pages.open()
        once = tuple(kind for kind in KINDS if kind.startswith("release-") or kind == "reviewed")
        rows = await self.store.find(Query(kinds=once, origin=self._parts.identity.node.hex()))
        self.watch.know_past(rows)
        words = Query(kinds=("alert-acknowledged", "alert-cleared"), origin=self._parts.identity.node.hex())
        self.alerts.restore(acknowledged(await self.store.find(words)))

    def begin(self) -> None:
        """The node has started: say so, and how the last life ended."""
        ended = {"": "its first life, as far as the file of events goes", "stopped": "after a clean stop"}
        reason = ended.get(self._last_kind, "after an end without a good-bye: a crash, a kill or a power cut")
        self.recorder.record("started", self._parts.identity.name, reason)
        if self.store.moved_aside is not None:
            self.recorder.record("alarm", "events-damaged", f"the file of events was moved to {self.store.moved_aside}")
        self.watch.tick()
        self.pages.begin()
        self._want()

    def end(self) -> None:
        """The daemon leaves."""
        self.recorder.record("stopped", self._parts.identity.name)

    def tick(self) -> None:
        """Once a second."""
        self.watch.tick()
        self.store.tick()
        self.pages.tick()
        self._want()

    def close(self) -> None:
        """Write what waits; may be called twice."""
        self.store.close()
        self.pages.close()

    # --- standing ---------------------------------------------------------------------------------------------------

    def standing(self) -> list[Alert]:
        """What stands now."""
        self.watch.look()
        return self.alerts.standing()

    def set_alert(self, code: str, text: str, subject: str = "") -> None:
        """Raise a standing alert, or clear it with an empty text."""
        self.alerts.set(code, text, subject)

    def on_command(
        self, verb: str, arguments: Mapping[str, Any], by: str, problem: str, *, is_outside: bool = False
    ) -> None:
        """A verb that changes something was asked for; see `EventWatch.on_command`."""
        self.watch.on_command(verb, arguments, by, problem, is_outside=is_outside)
        if verb == "acknowledge" and not problem:
            subject, note = str(arguments.get("subject", "")), str(arguments.get("note", ""))
            self.acknowledge(str(arguments["code"]), subject, by, note)

    def acknowledge(self, code: str, subject: str, by: str, note: str) -> None:
        """Somebody has seen an alert."""
        alert = self.alerts.acknowledge(code, subject, by, note)
        if alert is not None and alert.acknowledged is not None:
            about = f"{alert.code} {alert.subject}".strip()
            self.recorder.record("alert-acknowledged", about, alert.acknowledged.note, alert.acknowledged.by)

    def say_place(self, request: SayPlace) -> None:
        """Where this node is: to the swarm, and written down."""
        self._parts.driver.command(WHERE, request)
        self.pages.note_place(request)

    def note(self, kind: str, subject: str, reason: str) -> None:
        """Write down what a bridge saw happen; however often it does, it takes the room of its own kind alone."""
        self.recorder.record(kind, subject, reason, account=kind)

    async def find(self, query: Query) -> list[EventRecord]:
        """Events, oldest first: those that were heard, and those that were fetched afterwards."""
        found = await self.store.find(query)
        fetched = await self.pages.events(query)
        if not fetched:
            return found
        every = {record.event_id: record for record in (*fetched, *found)}
        newest = sorted(every.values(), key=lambda one: (one.at_ms, one.origin_id, one.life, one.number))
        return newest[max(0, len(newest) - min(query.limit, FOUND_MAX)) :]

    def problems(self) -> list[str]:
        """What makes this node unhealthy, in sentences."""
        return [alert.sentence() for alert in self.standing() if alert.level is Level.ERROR]

    # --- dismissed members ------------------------------------------------------------------------------------------

    def dismissed(self) -> dict[NodeId, NodeId]:
        """Failed members that an operator dismissed, and at which member that was."""
        failed = chain.from_iterable(self._parts.node.member_parts(MemberState.FAILED))
        return dismissed(failed, self._parts.replica.views.note)

    def dismiss(self, name: str) -> NodeId:
        """Take a failed member off the lists of the whole swarm until it returns.

        Raises:
            DaemonError: There is no such member, or it has not failed.
        """
        members = [one for one in self._parts.node.members() if name in (one.name, one.node.hex())]
        if not members:
            raise DaemonError(f"no member {name!r} is known here; `swarmd members` lists them")
        member = members[0]
        if member.state.value != "failed":
            raise DaemonError(f"{name} is {member.state.value}, not failed: only a failed member can be dismissed")
        self._parts.driver.command("state", dismiss(member))
        self.recorder.record("dismissed", member.name, "until it returns", f"incarnation {member.incarnation}")
        return member.node

    # --- inside -----------------------------------------------------------------------------------------------------

    def _want(self) -> None:
        """Where others' past is fetched: from before this node began, and from then on what it may have missed."""
        hours, now_s = self._parts.config.history.fetch_h, time.time()
        if hours and abs(now_s - self._wanted_s) >= FOLLOW_S:
            self.pages.want(max(self._wanted_s, now_s - hours * 3_600), now_s)
            self._wanted_s = now_s

    def _now_ms(self) -> int:
        return (self._parts.replica.clock.physical_ns(time.monotonic_ns()) + EPOCH_2020_NS) // 1_000_000

    def _name_of(self, node: NodeId) -> str:
        named = self._roster().get(node)
        if named:
            return named
        # A newcomer has never met who is gone, but knows its certificate, which came with its words.
        certificate = self._trust.certified(node)
        return node.hex()[:16] if certificate is None else certificate.name

    def _roster(self) -> dict[NodeId, str]:
        """Members and their names, made anew at most once a second: a swarm that falls apart has a thousand events."""
        now_s = time.monotonic()
        if now_s - self._roster_s > ROSTER_S:
            self._roster_s = now_s
            self._names = self._parts.node.names()
        return self._names

    def _say(self, row: EventRow) -> None:
        try:
            self._parts.driver.command("state", SayEvent(row))
        except StateError as error:
            self._parts.log.warning("event_not_said", kind=row.kind, error=str(error))

    def _on_alert(self, alert: Alert, is_raised: bool) -> None:
        about = f"{alert.code} {alert.subject}".strip()
        if is_raised:
            self.recorder.record("alert-raised", about, alert.text, alert.remedy, account="alerts")
        else:
            solved = ALERTS[alert.code].solved
            self.recorder.record("alert-cleared", about, solved, f"it was: {alert.text}", account="alerts")

    def _publish(self, record: EventRecord) -> None:
        """Tell the bus; the log too, of what happened here and what nobody else has logged."""
        log = self._parts.log
        if record.origin_id == self._parts.identity.node.hex():
            self.pages.note_event(record)
        if record.origin_id == self._parts.identity.node.hex() and not record.kind.startswith(_LOGGED_ELSEWHERE):
            say = {Level.INFO: log.info, Level.WARNING: log.warning, Level.ERROR: log.error}
            fields = {"subject": record.subject, "reason": record.reason, "evidence": record.evidence}
            told = {name: value for name, value in fields.items() if value}
            say[level_of(record.kind)](record.kind.replace("-", "_"), **told)
        self._parts.bus.publish(Happened(record))
