"""The swarm's picture on an MQTT 5 broker: state, members, detections, objects, jobs; commands in.

Everything retained has an expiry or is taken back, so that no ghost outlives its swarm. What comes in as a command is
limited to read verbs and user events.
"""

import asyncio
import contextlib
import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from swarmd.api import geojson
from swarmd.api.daemon import BusEvent, DaemonView, NodeInfo, PoseSeen, PositionSeen
from swarmd.api.histogram import Histogram
from swarmd.bridges.mqtt.aggregate import HourlyCounts, Privacy
from swarmd.bridges.mqtt.commands import Commands
from swarmd.bridges.mqtt.homeassistant import homeassistant_device, homeassistant_topic
from swarmd.bridges.mqtt.homie import HomieDevice, device_topic
from swarmd.bridges.mqtt.leftovers import leftovers
from swarmd.bridges.mqtt.link import Incoming, MqttLink
from swarmd.bridges.mqtt.picture import PictureOnDemand
from swarmd.bridges.mqtt.shares import DEAD, Shares
from swarmd.bridges.mqtt.topics import TOPICS, spec, topic_token
from swarmd.bridges.trace import trace_of_view
from swarmd.config.bridges import MqttConfig
from swarmd.errors import DaemonError
from swarmd.events.record import Happened
from swarmd_protocols.effects import MemberChanged, MemberState, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellChanged, CellView, DetectionLearned, ObjectChanged

REFRESH_S = 15.0
"""Well below the 30 s expiry of `members`."""
GOODBYE_S = 1.0
"""How long a stop waits for the broker to have taken what is buffered."""
SETTLE_S = 0.5
"""Seconds until a picture is told: the broker says meanwhile who else is there."""
RETELL_S = 2.0
"""Seconds between two whole pictures, at least: anybody on the broker may say that devices come and go."""
_EYE_CHANGES, _REMOVALS = ("eye-ready", "eye-model"), ("dismissed", "revoked")
"""Kinds of events after which a birth is told anew, and a member taken back."""
_TOLD_AGAIN = 3
"""Retained objects and cells are told again this often within their expiry: what lives does not vanish."""


class MqttBridge:
    """One broker; comes and goes without anybody noticing in the swarm."""

    name = "mqtt"

    def __init__(self, config: MqttConfig, traced_ratio: float = 0.0) -> None:
        """Prepare; connects in `run`.

        Args:
            config: The `[mqtt]` section.
            traced_ratio: Part of the sightings that `[otel]` exports; 0: none.
        """
        self._traced_ratio = traced_ratio
        self._config = config
        self._link: MqttLink | None = None
        self.round_trips = Histogram()
        """From sending to the broker's acknowledgement."""
        self._daemon: DaemonView | None = None
        self._base = self._discovery_topic = ""
        self._node = ""
        self._is_lost = False
        self._asker = ""
        """Who sent the command at hand, by where its reply goes."""
        self._members_due = asyncio.Event()
        self._homie: HomieDevice | None = None
        self._last_told_s: dict[str, float] = {}
        self._hours: HourlyCounts | None = None
        self._retell_due = asyncio.Event()
        """Set where this device's share may have changed since the picture was begun to be told."""
        self._counts: Counter[str] = Counter()
        self._commands = Commands(self._run_command, config.reply_prefix or f"{config.base}/+/reply")
        self._shares = Shares("")
        self._born: NodeInfo | None = None
        self._picture = PictureOnDemand(lambda jpeg: self._publish("picture", jpeg))
        self._ids: dict[str, NodeId] = {}
        """Members by topic level: what is left of one on the broker is taken back when it is dismissed or revoked."""

    def counters(self) -> dict[str, int]:
        """Monotonic counts of the bridge and its connection."""
        return {**self._counts, **(self._link.counters() if self._link else {})}

    def gauges(self) -> dict[str, int]:
        """Messages that wait for the broker."""
        return self._link.gauges() if self._link else {}

    def topics(self) -> list[tuple[str, str]]:
        """What `swarmd topics` shows: each topic and what is on it; empty before `run`."""
        if not self._base:
            return []
        rows = []
        for entry in TOPICS:
            if entry.name == "aggregate" and not self._config.aggregate_epsilon:
                continue
            if entry.name == "picture" and not self._config.pictures:
                continue
            values = dict.fromkeys(entry.parameters, "+") | {"node": self._node}
            rows.append((f"{self._base}/{entry.path.format(**values)}", entry.summary))
        if self._config.homeassistant:
            rows.append((self._discovery_topic, "Home Assistant discovery"))
        if self._config.homie:
            rows.append((f"{device_topic(self._node)}/$state", "Homie 5 state"))
        return rows

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled."""
        info = daemon.info()
        self._daemon = daemon
        self._node = topic_token(info.name)
        self._base = f"{self._config.base}/{topic_token(info.swarm)}"
        self._shares = Shares(self._node)
        self._look_who_lives()
        self._commands = Commands(self._run_command, self._config.reply_prefix or f"{self._base}/reply")
        self._discovery_topic = homeassistant_topic(self._config.homeassistant_prefix, info)
        link = MqttLink(
            self._config,
            client_id=f"swarmd-{info.node.hex()[:16]}",
            will_topic=self._topic("state"),
            will_payload=b"offline",
            on_connected=self._announce,
            on_message=self._on_message,
            subscriptions=(
                *(f"{self._base}/cmd/{who}/+" for who in (self._node, "all")),
                f"{self._base}/node/+/state",
            ),
            on_problem=self._on_problem,
        )
        link.round_trips = self.round_trips
        self._link = link
        unsubscribe = daemon.subscribe(self._on_event)
        tasks = [asyncio.create_task(link.run()), asyncio.create_task(self._refresh())]
        tasks += [asyncio.create_task(self._tell_again()), asyncio.create_task(self._tell_anew())]
        if self._config.homie:
            self._homie = HomieDevice(self._config, info.node, self._node)
            tasks.append(asyncio.create_task(self._homie.link.run()))
        if self._config.aggregate_epsilon > 0:
            tasks.append(asyncio.create_task(self._aggregate(info)))
        try:
            # Not `gather`: cancelled, it would cancel the connections before they have said good-bye.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            unsubscribe()
            self._picture.close()
            if link.connected:
                link.publish(self._topic("state"), b"offline", retain=True)
            links = [link]
            if self._homie is not None:
                self._homie.say_state("disconnected")
                links.append(self._homie.link)
            await asyncio.gather(*(one.flush(GOODBYE_S) for one in links))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- out --------------------------------------------------------------------------------------------------------

    def _topic(self, name: str, **values: str) -> str:
        return f"{self._base}/{spec(name).path.format(**{'node': self._node, **values})}"

    def _publish(self, name: str, body: object, *, traceparent: str = "", **values: str) -> None:
        if self._link is None:
            return
        entry = spec(name)
        self._link.publish(
            self._topic(name, **values),
            body if isinstance(body, bytes) else msgspec.json.encode(body),
            qos=entry.qos,
            retain=entry.retained,
            expiry_s=self._config.object_expiry_s if name == "object" else entry.expiry_s,
            traceparent=traceparent,
        )

    def _announce(self) -> None:
        daemon, link = self._daemon, self._link
        if daemon is None or link is None:
            return
        self._alert("")
        self._shares.forget_all()
        self._publish("state", b"online")
        self._tell_birth(daemon.info(), link)
        self._retell_due.set()

    def _tell_birth(self, info: NodeInfo, link: MqttLink) -> None:
        """Who this device is; again when its eye is ready, or has another model."""
        self._born = info
        self._publish(
            "birth",
            {
                "id": info.node.hex(),
                "name": info.name,
                "swarm": info.swarm,
                "version": info.version,
                "model": info.model,
                "model_digest": info.model_digest,
                "labels": list(info.labels),
                "topics": [f"{self._base}/{name}" for name in ("members", "detections", "objects/#", "jobs/#")],
            },
        )
        if self._config.homeassistant:
            device = homeassistant_device(info, self._base, self._node, pictures=self._config.pictures)
            link.publish(self._discovery_topic, msgspec.json.encode(device), retain=True)

    async def _tell_anew(self) -> None:
        """The picture, after a change of the share; to its end each time: else who flaps would keep it back."""
        while True:
            await self._retell_due.wait()
            began_s = time.monotonic()
            await asyncio.sleep(SETTLE_S)  # Who else is on the broker is heard of in the meantime.
            self._retell_due.clear()
            if self._link is not None and self._link.connected:
                await self._publish_members()
                await self._tell_picture()
            await asyncio.sleep(began_s + RETELL_S - time.monotonic())

    async def _tell_picture(self) -> None:
        """Every object and cell of this device's share, no faster than the broker takes them."""
        daemon, link = self._daemon, self._link
        assert daemon is not None
        assert link is not None
        info, names = daemon.info(), self._names
        async for view in link.paced(daemon.in_parts.objects()):
            object_id = topic_token(view.object_id)
            if self._shares.is_mine(f"object {object_id}"):
                self._publish("object", geojson.object_feature(view, info, names), id=object_id)
        async for cell in link.paced(daemon.in_parts.cells()):
            self._publish_job(cell, names)

    async def _tell_again(self) -> None:
        """The whole picture anew before it expires at the broker."""
        expiry_s = min(self._config.object_expiry_s, spec("job").expiry_s or self._config.object_expiry_s)
        while True:
            await asyncio.sleep(expiry_s / _TOLD_AGAIN)
            if self._link is not None and self._link.connected:
                await self._tell_picture()

    def _on_problem(self, text: str) -> None:
        """The log says it, at a bounded rate; the swarm does not notice."""
        assert self._daemon is not None
        with contextlib.suppress(DaemonError):
            self._daemon.command("note_problem", {"where": "mqtt", "text": text})
            if self._link is not None and not self._link.connected:
                self._alert(text)

    def _alert(self, text: str) -> None:
        """The broker is lost, or ("") there again."""
        assert self._daemon is not None
        if not text and not self._is_lost:
            return
        self._is_lost = bool(text)
        subject = f"{self._config.host}:{self._config.port}"
        with contextlib.suppress(DaemonError):
            self._daemon.command("alert", {"code": "broker-lost", "text": text, "subject": subject})

    @property
    def _names(self) -> Mapping[NodeId, str]:
        assert self._daemon is not None
        return self._daemon.in_parts.names()

    async def _publish_members(self) -> None:
        daemon = self._daemon
        if daemon is None:
            return
        members = daemon.members()
        self._ids.update((topic_token(member.name), member.node) for member in members)
        if self._shares.is_mine("members"):
            self._publish(
                "members",
                {
                    topic_token(member.name): {
                        "id": member.node.hex(),
                        "state": member.state.value,
                        "incarnation": member.incarnation,
                        "rtt_ms": None if member.rtt_ns is None else round(member.rtt_ns / 1e6, 3),
                        "loss": member.loss,
                    }
                    for member in members
                },
            )
        count = confirmed = 0
        for part in daemon.in_parts.objects():
            count += len(part)
            confirmed += sum(view.confirmed for view in part)
            await asyncio.sleep(0)
        alive = sum(member.state in (MemberState.ALIVE, MemberState.DEGRADED) for member in members)
        summary = {
            "objects": count,
            "confirmed": confirmed,
            "members": len(members),
            "alive": alive,
            "detections": self._counts["detections"],
        }
        self._publish("summary", summary)
        if self._homie is not None:
            self._homie.tell_summary(summary)

    async def _refresh(self) -> None:
        """Members and counts: at once after a change (at most once a second), else before they expire."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self._members_due.wait()
            self._members_due.clear()
            self._look_who_lives()
            if self._link is not None and self._link.connected:
                assert self._daemon is not None
                if (info := self._daemon.info()) != self._born:
                    self._tell_birth(info, self._link)
                await self._publish_members()
            await asyncio.sleep(1.0)

    async def _aggregate(self, info: NodeInfo) -> None:
        """Noisy counts, once an hour of swarm time."""
        config, daemon = self._config, self._daemon
        assert daemon is not None
        privacy = Privacy(
            Fraction(str(config.aggregate_epsilon)), Fraction(str(config.aggregate_epsilon_day)), config.aggregate_scope
        )
        hours = HourlyCounts(info.node, privacy, secrets.randbelow, time.time())
        self._hours = hours
        while True:
            # In pieces, so that a clock that was set meanwhile is noticed.
            await asyncio.sleep(min(60.0, hours.wait_s(time.time()) + 0.1))
            labels = config.aggregate_labels or daemon.info().labels
            message = hours.close(daemon.objects(), labels, time.time())
            if message is not None and not labels:
                self._on_problem("no labels to count: set mqtt.aggregate_labels, this device has no model")
            elif message is not None:
                self._publish("aggregate", message)

    # --- in from the daemon -----------------------------------------------------------------------------------------

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=DetectionLearned(view) as learned):
                self._counts["detections"] += 1
                assert self._daemon is not None
                info, origin = self._daemon.info(), self._daemon.name_of(view.origin)
                if not self._shares.is_mine(f"detection {view.detection_id}", first=topic_token(origin)):
                    return  # Where its origin is on this broker, that tells it, in order and with its track.
                feature = geojson.detection_feature(learned, info, origin)
                context = trace_of_view(view).traceparent(info.node, self._traced_ratio)
                self._publish("detections", feature, traceparent=context)
            case StateChanged(detail=ObjectChanged() as change):
                self._on_object(change)
            case StateChanged(detail=CellChanged(view=cell)):
                self._publish_job(cell, self._names)
            case PositionSeen():
                self._on_position(event)
            case MemberChanged():
                self._look_who_lives()
                self._members_due.set()
            case Happened(record):
                # Each device tells its own; of one without a broker, whose share it is.
                origin = topic_token(record.origin)
                if self._shares.is_mine(f"event {record.event_id}", first=origin):
                    self._publish("event", record.row(), node=origin)
                if record.kind in _EYE_CHANGES:
                    self._members_due.set()  # Its model and labels are known now.
                elif record.kind in _REMOVALS:
                    self._take_back(record.subject)
            case PoseSeen():
                self._on_pose(event)
            case _:
                pass

    def _look_who_lives(self) -> None:
        """Who is dead in the swarm tells nothing, however long its will takes, nor who is no member of it."""
        assert self._daemon is not None
        if self._shares.look(self._daemon):
            self._retell_due.set()

    def _take_back(self, names: str) -> None:
        """Members that were dismissed or shut out: what stays of them on the broker is no device any more.

        That is another member's word: of one that is heard, nothing is taken back for it.
        """
        link, daemon = self._link, self._daemon
        if link is None or daemon is None:
            return
        living = {topic_token(member.name) for member in daemon.members() if member.state not in DEAD}
        for name in names.split(", "):
            node = topic_token(name)
            if node == self._node or node in living or not self._shares.is_mine(f"node {node}", never=node):
                continue
            for topic in leftovers(self._base, node, self._ids.get(node), self._config):
                link.publish(topic, b"", retain=True)

    def _publish_job(self, cell: CellView, names: Mapping[NodeId, str]) -> None:
        cell_id = topic_token(cell.cell_id)
        if self._shares.is_mine(f"job {cell_id}"):
            self._publish(
                "job",
                {
                    "cell": cell.cell_id,
                    "state": cell.state,
                    "owner": None if cell.holder is None else names.get(cell.holder, cell.holder.hex()[:8]),
                    "done_by": [names.get(node, node.hex()[:8]) for node in cell.done_by],
                },
                id=cell_id,
            )

    def _on_object(self, change: ObjectChanged) -> None:
        assert self._daemon is not None
        if change.kind == "expired" and self._hours is not None:
            self._hours.expired(change.view)
        object_id = topic_token(change.view.object_id)
        if not self._shares.is_mine(f"object {object_id}"):
            pass
        elif change.kind in ("superseded", "expired"):
            self._publish("object", b"", id=object_id)
        else:
            feature = geojson.object_feature(change.view, self._daemon.info(), self._names)
            self._publish("object", feature, id=object_id)
        self._members_due.set()

    def _is_due(self, what: str) -> bool:
        """Whether `what` may be told again, at `telemetry_hz`."""
        now_s = time.monotonic()
        if now_s - self._last_told_s.get(what, -math.inf) < 1 / max(0.01, self._config.telemetry_hz):
            return False
        self._last_told_s[what] = now_s
        return True

    def _on_pose(self, pose: PoseSeen) -> None:
        if not pose.has_fix or not self._is_due("telemetry"):
            return
        telemetry = {
            "lat": round(pose.latitude_deg, 8),
            "lon": round(pose.longitude_deg, 8),
            "height_agl_m": round(pose.height_agl_m, 2),
            "yaw_rad": round(pose.yaw_rad, 4),
            "sigma_m": round(pose.position_sigma_m, 3),
            "battery": None if pose.battery_milli is None else pose.battery_milli / 1000,
        }
        self._publish("telemetry", telemetry)
        if self._homie is not None:
            self._homie.tell_telemetry(telemetry)

    def _on_position(self, seen: PositionSeen) -> None:
        """Another member's place, also of one that has no broker itself; without a fix it is taken back at once."""
        name, one = topic_token(seen.name), seen.position
        if not self._shares.is_mine(f"position {name}", never=name):
            return
        if one is None:
            self._last_told_s.pop(f"position {name}", None)
            self._publish("position", b"", peer=name)
        elif self._is_due(f"position {name}"):
            self._publish("position", geojson.member_feature(one, seen.name, time.monotonic_ns()), peer=name)

    # --- in from the broker -----------------------------------------------------------------------------------------

    def _on_message(self, message: Incoming) -> None:
        node = f"{self._base}/node/"
        if message.topic.startswith(node):
            name, online = message.topic.removeprefix(node).split("/")[0], message.payload == b"online"
            if self._shares.heard(name, online=online) and not message.retained:
                self._retell_due.set()
        elif message.retained:
            # It was meant for whoever was there then, and would be run at each connection.
            self._counts["commands_retained"] += 1
        else:
            self._on_command(message)

    def _on_command(self, message: Incoming) -> None:
        """Answer one command where it may be answered; whatever the bytes are, the bridge goes on."""
        # Its name is its own word: the broker says who may ask, and nothing proves who did.
        self._asker = message.response_topic.removeprefix(f"{self._base}/")[:64] or "somebody who wants no reply"
        answer = self._commands.answer(message.topic.rsplit("/", 1)[-1], message.payload, message.response_topic)
        self._counts[answer.outcome] += 1
        if answer.reply is not None:
            assert self._link is not None
            self._link.publish(
                message.response_topic,
                answer.reply,
                retain=False,
                expiry_s=spec("command").expiry_s,
                correlation=message.correlation,
            )

    def _run_command(self, verb: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        assert self._daemon is not None
        if verb != "picture":
            return self._daemon.command(verb, arguments, f"{self._asker} over MQTT")
        if not self._config.pictures:
            raise DaemonError("this device shows no pictures: mqtt.pictures is off")
        self._picture.ask(self._daemon)
        return {"topic": self._topic("picture")}
