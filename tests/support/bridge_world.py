"""What bridge tests share: a daemon view with a picture in it, and a real mosquitto."""

import contextlib
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from swarmd.api.daemon import BusEvent, Look, NodeInfo, NodePosition, PictureSeen, PoseSeen
from swarmd.errors import DaemonError
from swarmd.events.record import EventRecord, Happened
from swarmd_protocols.effects import MemberState, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.requests import NeighbourView
from swarmd_protocols.state.observations import CellView, DetectionLearned, DetectionView, ObjectView
from swarmd_protocols.summary import MemberView
from tests.support.exclusive import own_port

ALICE, BOB = NodeId(b"a" * 16), NodeId(b"b" * 16)


def sighting(
    origin: NodeId = BOB, label: str = "hot-spot", east_cm: int | None = 1000, name: str = "hot-spot|1|(1, 2)"
) -> DetectionView:
    north_cm, covariance_cm2 = (None, None) if east_cm is None else (2000, (400, 0, 400))
    return DetectionView(
        origin, "o1", label, 900, east_cm, north_cm, covariance_cm2, "t01-m02", False, 1, 42, 1, b"\1" * 8, name
    )


def detection(number: int = 1, label: str = "hot-spot", east_cm: int | None = 1000) -> StateChanged:
    """A peer's sighting becomes known; each number is another one."""
    return StateChanged("state", DetectionLearned(sighting(BOB, label, east_cm, f"{label}|1|({number}, 0)")))


def own_detection(track_id: int = 1, kind: str = "new", name: str = "hot-spot|1|(1, 2)") -> StateChanged:
    """An own sighting becomes known."""
    return StateChanged("state", DetectionLearned(sighting(ALICE, name=name), kind, track_id, time.monotonic_ns()))


def happened(number: int = 1, kind: str = "failed", origin: NodeId = ALICE, subject: str = "drone-3") -> Happened:
    """An event of a node."""
    name = {ALICE: "alice", BOB: "bob"}[origin]
    return Happened(
        EventRecord(1_790_000_000_123, name, origin.hex(), 7, number, kind, subject, "no answer", "alive to failed")
    )


def object_view(object_id: str = "o1") -> ObjectView:
    return ObjectView(object_id, "hot-spot", 900, 1000, 2000, (400, 0, 400), "t01-m02", (ALICE, BOB), 1, 2, True, 3)


def pose(*, has_fix: bool = True) -> PoseSeen:
    return PoseSeen(-18.88, -70.11, 25.0, 0.5, 0.1, has_fix, 800, time.monotonic_ns())


class World:
    """A `DaemonView` whose picture the test sets; commands are recorded."""

    def __init__(self, name: str = "alice", swarm: str = "farm") -> None:
        self.name, self.swarm = name, swarm
        self.callbacks: list[Callable[[BusEvent], None]] = []
        self.commands: list[tuple[str, Mapping[str, object]]] = []
        self.views = [object_view()]
        self.looks: dict[int, Look] = {}
        self.peer_name = "bob"
        self.places: dict[NodeId, NodePosition] = {}
        self.watchers: list[Callable[[PictureSeen], None]] = []
        self.wishes: list[tuple[int, int, int]] = []
        self.asked: list[bytes] = []
        self.keeps_thumbs = False

    def info(self) -> NodeInfo:
        return NodeInfo(ALICE, self.name, self.swarm, "0.1.0", -18.88, -70.11, "small-320", "ab" * 32, ("hot-spot",))

    def members(self) -> Sequence[MemberView]:
        def one(node: NodeId, name: str, state: MemberState, rtt_ns: int | None) -> MemberView:
            return MemberView(node, name, "127.0.0.1:7946", state, 3, rtt_ns, 0.0, "good", (), "0.1.0", "eye", {})

        return [one(ALICE, "alice", MemberState.ALIVE, None), one(BOB, "bob", MemberState.FAILED, 2_000_000)]

    def objects(self) -> Sequence[ObjectView]:
        return self.views

    def positions(self) -> Mapping[NodeId, NodePosition]:
        return self.places

    def watch_pictures(
        self, callback: Callable[[PictureSeen], None], interval_ms: int, width: int, quality: int
    ) -> Callable[[], None]:
        self.watchers.append(callback)
        self.wishes.append((interval_ms, width, quality))
        return lambda: self.watchers.remove(callback)

    def fetch_thumb(self, name: bytes) -> bool:
        self.asked.append(name)
        return self.keeps_thumbs

    def look(self, track_id: int) -> Look | None:
        return self.looks.get(track_id)

    def name_of(self, node: NodeId) -> str:
        return {ALICE: self.name, BOB: self.peer_name}.get(node, node.hex())

    def cells(self) -> Sequence[CellView]:
        return [CellView("c01", 1000, 2000, "done", None, (BOB,))]

    @property
    def in_parts(self) -> "Parts":
        return Parts(self)

    def counters(self) -> Mapping[str, int]:
        return {"frames": 1}

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "") -> Mapping[str, object]:
        if arguments.get("fail"):
            raise DaemonError("asked to fail")
        self.commands.append((verb, arguments))
        return {"verb": verb}

    def say(self, event: BusEvent) -> None:
        for callback in list(self.callbacks):
            callback(event)


class Parts:
    """The picture of a world, an object at a time."""

    is_partial = False

    def __init__(self, world: World) -> None:
        self._world = world

    def names(self) -> Mapping[NodeId, str]:
        return {member.node: member.name for member in self._world.members()}

    def members(self) -> Iterator[Sequence[MemberView]]:
        yield self._world.members()

    def objects(self) -> Iterator[Sequence[ObjectView]]:
        return ([view] for view in list(self._world.objects()))

    def detections(self) -> Iterator[Sequence[DetectionView]]:
        return iter(())

    def cells(self) -> Iterator[Sequence[CellView]]:
        return ([cell] for cell in list(self._world.cells()))

    def neighbours(self) -> Sequence[NeighbourView]:
        return ()


def mosquitto_binary() -> str | None:
    return shutil.which("mosquitto") or next((p for p in ("/usr/sbin/mosquitto",) if Path(p).exists()), None)


class Broker:
    """A real mosquitto on loopback; can be stopped and started again on the same port."""

    def __init__(self, directory: Path, extra: str = "", port: int = 0) -> None:
        self.port = port or own_port()
        self._config = directory / "mosquitto.conf"
        default = f"listener {self.port} 127.0.0.1\nallow_anonymous true\n"
        self._config.write_text((extra.format(port=self.port) if extra else default) + "set_tcp_nodelay true\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = mosquitto_binary()
        assert binary is not None
        self._process = subprocess.Popen(
            [binary, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
                return
            time.sleep(0.02)
        raise AssertionError("mosquitto did not start")

    def freeze(self) -> None:
        """It takes nothing any more, but its sockets stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None


@contextlib.contextmanager
def broker(directory: Path, extra: str = "") -> Iterator[Broker]:
    one = Broker(directory, extra)
    one.start()
    try:
        yield one
    finally:
        one.stop()


_STANDS = "$SYS/broker/version"
"""Retained by every mosquitto: it comes when the broker has taken the subscriptions that were asked for with it."""


class Subscriber:
    """`mosquitto_sub`, an implementation that we did not write; its subscriptions stand when it is made."""

    def __init__(self, port: int, *topics: str) -> None:
        arguments = [part for topic in (*topics, _STANDS) for part in ("-t", topic)]
        self._stands = threading.Event()
        self._process = subprocess.Popen(
            ["mosquitto_sub", "-V", "5", "-p", str(port), "-F", "%t\t%r\t%p", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._stands.wait(60), "the broker did not take the subscriptions"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_STANDS):
                self._stands.set()
            else:
                self._lines.put(line.rstrip("\n"))

    def wait_for(self, wanted: Callable[[str, bool, str], bool], timeout_s: float = 60) -> tuple[str, bool, str]:
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                topic, retained, payload = self._lines.get(timeout=left_s).split("\t", 2)
                if wanted(topic, retained == "1", payload):
                    return topic, retained == "1", payload
        raise AssertionError("the message did not come")

    def rest(self, enough: int = 0, quiet_s: float = 0.3, timeout_s: float = 60) -> list[tuple[str, bool, str]]:
        """Messages until there are `enough`, and then until none has come for a while: what is said twice is heard."""
        deadline = time.monotonic() + timeout_s
        found: list[tuple[str, bool, str]] = []
        looks = 0
        while time.monotonic() < deadline:
            try:
                topic, retained, payload = self._lines.get(timeout=quiet_s / 10).split("\t", 2)
            except queue.Empty:
                looks += 1  # Several, since a process that was stopped for a while was not quiet.
                if looks >= 10 and len(found) >= enough:
                    break
            else:
                looks = 0
                found.append((topic, retained == "1", payload))
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()
