"""Turns what the parts of the brain tell and show into events and standing alerts; nothing it does changes them.

Most events are notices of the bus. What no notice speaks of (clock, trust, disk) is looked at once a second, and
whenever somebody asks how this node is.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from swarmd.api.bus import Notice
from swarmd.brain.other_wires import OtherWires
from swarmd.brain.parts import Parts
from swarmd.events.alerts import Alerts
from swarmd.events.record import EventRecord
from swarmd.events.recorder import Recorder
from swarmd.identity.remedies import OUT_CODES, out_code
from swarmd.rates import TokenBuckets
from swarmd_protocols.effects import Alarm, MemberChanged, MemberState, Rejected, StateChanged, UserEventDelivered
from swarmd_protocols.ids import WAYS, NodeId
from swarmd_protocols.releases.agent import Note
from swarmd_protocols.releases.requests import RolloutChanged
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.observations import EventsLearned, ObjectChanged, ObjectView
from swarmd_protocols.trust.requests import TrustChanged
from swarmd_protocols.trust.trust import Trust

CLOCK_STEP_MS = 100
"""Swarm time that jumps by more between two looks was set, not slewed: slewing moves it by half a millisecond."""
CLOCK_WRONG_MS = 2_000
"""A device's clock that is farther from swarm time is wrong: four times what stamps may differ by."""
CLONED_S = 600.0
"""Seconds after the last sign of a second process with this identity until the alert is cleared."""
UNKNOWN_KEY_S = 120.0
"""The same for contacts under a group key that is not held: two rounds of a member that looks for its swarm."""
JOIN_S = 10.0
"""Seconds until somebody has to answer at the addresses to join: thirty hellos, and a radio that comes up meanwhile."""
JOINS_MAX = 16
"""Addresses asked for by the verb that are remembered, and named."""
SOURCE_SILENT_S = 10.0
"""Seconds without a frame after which the source is silent: four attempts to open it, or a camera plugged in again."""
NAMES_MAX = 4_096
"""Members whose names are remembered though they are members no longer: who is shut out is off the list at once."""
RELEASES_MAX = 4_096
"""Steps of releases that are remembered as written down: of some hundred releases; then they may be told again."""
REVIEWS_MAX = 8_192
"""Operators' statements that are remembered as written down: all that count of two operators (`OPERATOR_MAX`)."""
ALARMS_PER_S = 1 / 60
"""One code's alarms are written down at this rate after the first few: each is in the log as well."""
ALARMS_BURST = 3
_AWAY_STATES = (MemberState.FAILED, MemberState.LEFT, MemberState.AWAY, MemberState.UNREACHABLE)
_UNKNOWN_KEY = ("group key that this node does not hold", "does not open under its group key")
_SEEING = ("running", "degraded", "source_lost")
_EYE_EVENTS = {
    "eye_ready": "eye-ready",
    "eye_died": "eye-restarted",
    "eye_degraded": "eye-fallback",
    "eye_model": "eye-model",
}


class EventWatch:
    """The eyes and ears of one node's history."""

    def __init__(self, parts: Parts, recorder: Recorder, alerts: Alerts, trust: Trust) -> None:
        """Listen from now on."""
        self._parts = parts
        self._recorder = recorder
        self._alerts = alerts
        self._trust = trust
        self._node = parts.identity.node
        self._troubled: set[NodeId] = set()
        self._names: dict[NodeId, str] = {}
        self._alarms = TokenBuckets(ALARMS_PER_S, ALARMS_BURST, 64)
        self._offset_ns: int | None = None
        self._cloned_s = self._unknown_key_s = float("-inf")
        self._joins = dict(parts.seeds)
        self._joining_s = self._framed_s = time.monotonic()
        self._frames = -1
        self._address = parts.transport.local_address
        self._wires = OtherWires()
        self._releases: set[tuple[str, str, str]] = set()
        """(kind, subject, evidence) of what has been written down of releases: a new life says nothing of it again."""
        self._reviews: dict[str, None] = {}
        """Evidence of the reviews that have been written down, the latest last."""
        self._promoted: dict[str, int] = {}
        self._halted: set[tuple[str, int]] = set()
        self._root = trust.root.version
        self._group = max(trust.group_keys, default=0)
        self._revocations = {(one.counter, one.nodes) for one in trust.revocations}
        parts.bus.subscribe(self.on_notice)

    # --- what is told -----------------------------------------------------------------------------------------------

    def on_notice(self, notice: Notice) -> None:
        """Something happened."""
        match notice:
            case MemberChanged():
                self._on_member(notice)
            case UserEventDelivered(origin, origin_name, name, payload):
                text = payload.decode("utf-8", "replace")
                said_by = f"said by {origin_name}"
                self._recorder.record("user-event", name, said_by, text, cause=origin, account="user events")
            case StateChanged(_, EventsLearned(origin, rows)):
                self._recorder.learn(origin, rows)
            case StateChanged(_, ObjectChanged("new" | "update", view)) if view.reviews:
                self._on_reviews(view)
            case StateChanged(_, RolloutChanged() as changed):
                self._on_rollout(changed)
            case StateChanged("node", TrustChanged()):
                self._on_trust()
            case Alarm(code, text):
                self._on_alarm(code, text)
            case Rejected(source, reason):
                if any(words in reason for words in _UNKNOWN_KEY):
                    self._unknown_key_s = time.monotonic()
                self._wires.refused(source, reason, time.monotonic())
            case _:
                pass

    def on_eye(self, event: str, text: str) -> None:
        """The eye's supervisor or link says something."""
        kind = _EYE_EVENTS.get(event)
        if kind is not None:
            self._recorder.record(kind, "eye", text, account="eye")

    def on_release_note(self, note: Note, version: int) -> None:
        """The agent of releases says what it did here."""
        subject, what = f"{self._parts.releases.config.model} {version}", note.what
        if what.startswith("verdict"):
            self._recorder.record("release-trial", subject, what, note.text)
        elif what == "unfit":
            self._recorder.record("release-trial", subject, f"not tried: {note.text}")
        elif what == "went_back":
            self._recorder.record("release-rolled-back", subject, note.text, note.release.hex()[:16])

    def on_command(
        self, verb: str, arguments: Mapping[str, Any], by: str, problem: str, *, is_outside: bool = False
    ) -> None:
        """A verb that changes something was asked for.

        Args:
            verb: Which.
            arguments: Of it; the long ones are left out.
            by: Who asked.
            problem: Why it was refused; "" where it was not.
            is_outside: Through a bridge, whose clients anybody may be.
        """
        said = ", ".join(f"{name}={value}" for name, value in sorted(arguments.items()) if len(str(value)) <= 128)
        told = f"by {by}" + (f"; refused: {problem}" if problem else "")
        # Who may only look can ask without end for what is refused.
        account = "bridges" if is_outside else "refused" if problem else ""
        self._recorder.record("command", verb, told, said, account=account)
        if verb == "join" and not problem and len(self._joins) < JOINS_MAX:
            address = str(arguments.get("address", ""))
            self._joins[address] = address
            self._joining_s = time.monotonic()

    def _on_reviews(self, view: ObjectView) -> None:
        """Each statement is told once, whichever object bears it then."""
        for said in view.reviews:
            evidence = f"review {said.digest.hex()[:16]} by key {said.key}"
            if evidence not in self._reviews:
                self._know_review(evidence)
                what = f"{said.operator}: {said.verdict} {said.text}".rstrip()
                self._recorder.record("reviewed", view.object_id, what, evidence, account="reviews")

    def _know_review(self, evidence: str) -> None:
        self._reviews[evidence] = None
        if len(self._reviews) > REVIEWS_MAX:
            del self._reviews[next(iter(self._reviews))]

    def know_past(self, rows: Iterable[EventRecord]) -> None:
        """What earlier lives have written down of releases and reviews, oldest first."""
        for row in rows:
            if row.kind == "reviewed":
                self._know_review(row.evidence)
            else:
                self._releases.add((row.kind, row.subject, row.evidence))

    # --- what is looked at ------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Once a second."""
        self._recorder.tick()
        offset_ns, before_ns = self._parts.replica.clock.offset_ns, self._offset_ns
        self._offset_ns = offset_ns
        if before_ns is not None and abs(offset_ns - before_ns) > CLOCK_STEP_MS * 1_000_000:
            step_s = (offset_ns - before_ns) / 1e9
            self._recorder.record("clock-set", "", f"by {step_s:+.3f} s, to what most members agree on")
        address = self._parts.transport.local_address
        if address != self._address:
            self._recorder.record("address-changed", address, f"it was {self._address}")
            self._address = address
        self.look()

    def look(self) -> None:
        """Which alerts stand, by what the parts show now."""
        parts, now_s = self._parts, time.monotonic()
        self._set("journal-failing", parts.journal.degraded, "own facts wait in memory")
        eye = parts.eye
        is_failed = eye is not None and eye.state == "failed"
        self._set("eye-given-up", is_failed, f"the eye is given up: {eye.problem}" if eye is not None else "")
        why_out = self._trust.why_out(self._node)
        for code in OUT_CODES:
            self._set(code, code == out_code(why_out), f"the swarm does not hear this node: it is {why_out}")
        self._set("identity-cloned", now_s - self._cloned_s < CLONED_S, "peers hear two processes with it")
        # Anybody can send junk; it means something where nobody of the swarm is heard.
        is_alone = len(parts.node.summary().members) < 2
        is_unknown = is_alone and now_s - self._unknown_key_s < UNKNOWN_KEY_S
        self._set("group-key-unknown", is_unknown, "nobody is reached, and who calls uses a key that is not held")
        self._alerts.set("join-unanswered", self._unanswered(now_s) if is_alone else "")
        self._alerts.set("source-silent", self._source_silent(now_s))
        self._alerts.set("wire-version", self._wires.told(parts.node.members, now_s))
        problem = parts.transport.reach.problem
        self._set("loopback-advertised", bool(problem), problem)
        self._look_at_clock()

    def _unanswered(self, now_s: float) -> str:
        """Where nobody answers, once there was time to; its own address may be among them, and waits for nobody."""
        own = self._parts.transport.local_address.split(WAYS)
        others = [name for name, address in self._joins.items() if address not in own]
        if not others or now_s - self._joining_s < JOIN_S:
            return ""
        return f"nobody answers at {', '.join(others[:JOINS_MAX])}"

    def _source_silent(self, now_s: float) -> str:
        """Why no frame comes though the eye works."""
        eye = self._parts.eye
        frames = -1 if eye is None or eye.state not in _SEEING else eye.telemetry.frames
        if eye is None or frames < 0 or frames != self._frames:
            self._frames, self._framed_s = frames, now_s
        if eye is None or now_s - self._framed_s < SOURCE_SILENT_S or frames < 0:
            return ""
        return eye.problem or f"no frame for {SOURCE_SILENT_S:g} s"

    def _look_at_clock(self) -> None:
        clock = self._parts.replica.clock
        wall_ns = time.time_ns() - time.monotonic_ns() - EPOCH_2020_NS
        off_ms = (wall_ns - clock.offset_ns) // 1_000_000
        is_wrong = clock.synced and abs(off_ms) > CLOCK_WRONG_MS
        if is_wrong and not self._alerts.stands("clock-wrong"):
            self._alerts.set("clock-wrong", f"this device's clock is {off_ms / 1000:+.1f} s off swarm time")
        elif not is_wrong:
            self._alerts.set("clock-wrong", "")

    def _set(self, code: str, stands: bool, text: str) -> None:
        self._alerts.set(code, text if stands else "")

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_member(self, change: MemberChanged) -> None:
        node, old, new = change.node, change.old, change.new
        self._names.pop(node, None)
        self._names[node] = change.name
        if len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]
        if old is new or node == self._node:
            return
        kind = ""
        if new is MemberState.FAILED:
            kind = "failed" if old is not None else ""
        elif new is MemberState.LEFT:
            kind = "left"
        elif new is MemberState.AWAY:
            kind = "away"
        elif new is MemberState.UNREACHABLE:
            kind = "unreachable"
        elif old is None:
            kind = "joined"
        elif old in _AWAY_STATES:
            kind = "returned"
        elif new is MemberState.DEGRADED:
            kind = "link-trouble"
            self._troubled.add(node)
        elif new is MemberState.ALIVE and node in self._troubled:
            kind = "link-restored"
        if new not in (MemberState.DEGRADED, MemberState.SUSPECT):
            self._troubled.discard(node)
        if kind:
            states = f"{'unknown' if old is None else old.value} to {new.value}"
            self._recorder.record(kind, change.name, change.reason, states, cause=node)

    def _on_rollout(self, changed: RolloutChanged) -> None:
        subject, evidence = f"{changed.model} {changed.version}", f"release {changed.digest.hex()[:16]}"
        kind, reason = "release-rollout", changed.what
        match changed.what:
            case "promoted" | "revoked" | "halted":
                kind, reason = f"release-{changed.what}", self._why(changed)
                self._halts(changed, reason)
            case "stage":
                reason = f"stage {changed.stage + 1}"
                evidence += f", {reason}"
        if (kind, subject, evidence) not in self._releases:
            if len(self._releases) >= RELEASES_MAX:
                self._releases.clear()
            self._releases.add((kind, subject, evidence))
            self._recorder.record(kind, subject, reason, evidence)

    def _halts(self, changed: RolloutChanged, reason: str) -> None:
        """A halt stands until that release is revoked, or a newer one of its model is promoted."""
        model, version = changed.model, changed.version
        if changed.what == "promoted":
            self._promoted[model] = max(version, self._promoted.get(model, 0))
            for older in [older for name, older in self._halted if name == model and older <= version]:
                self._halted.discard((model, older))
                self._alerts.set("release-halted", "", f"{model} {older}")
        elif changed.what == "revoked":
            self._halted.discard((model, version))
            self._alerts.set("release-halted", "", f"{model} {version}")
        elif version > self._promoted.get(model, 0):
            self._halted.add((model, version))
            self._alerts.set("release-halted", reason, f"{model} {version}")

    def _why(self, changed: RolloutChanged) -> str:
        """Why a release is halted or revoked: the officer's words, or how many failed."""
        protocol = self._parts.releases.protocol
        mine, release = protocol.view.models.get(changed.model), protocol.release(changed.model, changed.digest)
        if mine is None or release is None or changed.what == "promoted":
            return ""
        statement = (mine.revoked if changed.what == "revoked" else mine.halted).get(changed.digest)
        if statement is not None:
            return f"an officer: {statement.reason}"
        fails = protocol.standing(changed.model, changed.digest, release).fails
        return f"{fails} of its canaries failed"

    def _on_trust(self) -> None:
        trust, name_of = self._trust, self._names | {one.node: one.name for one in self._parts.node.members()}
        if trust.root.version > self._root:
            self._root = trust.root.version
            self._recorder.record("root-replaced", f"root {self._root}", "officers signed a new root")
        fresh = {(one.counter, one.nodes): one for one in trust.revocations}
        for key in [key for key in fresh if key not in self._revocations]:
            names = ", ".join(name_of.get(NodeId(node), node.hex()) for node in fresh[key].nodes)
            evidence = f"revocation {key[0]} of {', '.join(node.hex()[:16] for node in fresh[key].nodes)}"
            self._recorder.record("revoked", names, fresh[key].reason, evidence)
        self._revocations |= set(fresh)
        group = max(trust.group_keys, default=0)
        if group > self._group:
            self._group = group
            self._recorder.record("group-key", f"group key {group}", "the swarm seals with a new key")

    def _on_alarm(self, code: str, text: str) -> None:
        if code == "identity-twice":
            self._cloned_s = time.monotonic()
        if self._alarms.take(code, time.monotonic_ns()):
            self._recorder.record("alarm", code, text, account="alarms")
