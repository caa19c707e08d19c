"""Where each member is, as it says itself: one small signed register a node, told around and soon out of date.

Rules this file keeps:

- A node says its place to every reachable member directly, at most once in `period_ns`, later the more members there
  are, so that it costs a node about `messages_per_s` datagrams a second whatever the size of the swarm. A node that has
  not moved says so five times as rarely.
- Once in `relay_ns` a datagram that leaves anyway carries the newest place of one other member, in turn: so members
  that reach each other only through others hear of each other too. The signature is the subject's, not the carrier's.
- The later number wins, for as long as an older letter could still be young enough: so a node that lost its journal,
  and counts from below, is unheard for a minute at most.
- Only members (`on_peers`) are listened to, so nobody without a valid enrolment has a place.
- No fix, no place: a node that loses its fix says so, and its place is gone everywhere.
- Nothing is journalled and nothing is repaired: the next message is the repair. A reader judges by the age.

    byte 0         1    17           25       33        37         41          45      47       49        51
    | version u8 | node 16 | number u64 | ms u64 | lat 1e-7 i32 | lon i32 | height cm i32 | yaw u16 | sigma u16 |
    | battery u16 | flags u8 | signature 64 |

Little endian. `number` is the boot shifted left by 28 plus a count; `ms` swarm time of the position, milliseconds since
2020; yaw in hundredths of a degree clockwise from north; sigma in centimetres; battery in thousandths; 65535 in yaw and
battery means unknown. Flag 1: there is a fix; without it all that follows `ms` is zero.
"""

import struct
from collections.abc import Callable, Mapping, Sequence

import msgspec

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.effects import Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Signer
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect

NAME = "where"
SAY_NS = 1_000_000_000
"""A node that moves says where it is so often, nanoseconds: a drone flies some 10 m in it."""
_VERSION = 1
"""First byte of a message; others are refused."""
_TAG = b"swarmd/where/v1\0"
_BODY = struct.Struct("<B16sQQiiiHHHB")
MESSAGE_BYTES = _BODY.size + SIGNATURE_BYTES
_HAS_FIX = 1
"""Bit of the flags."""
_UNKNOWN = 0xFFFF
"""Stands for a value that the node does not know."""
_BOOT_SHIFT = 28
"""Messages of one boot: 2^28, eight years at one a second."""
_DUE: TimerKey = (NAME, "say")
_MS = 1_000_000
_MOVED_E7 = 45
"""Half a metre of latitude."""
_MOVED_CM = 50
"""Height that counts as a move."""


class PositionsConfig(msgspec.Struct, frozen=True):
    """Rates; they may differ between nodes."""

    period_ns: int = SAY_NS
    """Least time between two messages of this node; 0: it never says where it is."""
    messages_per_s: int = 4
    """In a larger swarm the period grows, so that about so many datagrams a second leave this node."""
    relay_ns: int = 1_000_000_000
    """One other member's place rides along this often."""
    relay_age_ns: int = 15_000_000_000
    """Older ones do not."""
    still_factor: int = 5
    """A node that stands still says so this much more rarely."""
    future_ms: int = 500
    """A place from farther in the future than this is refused."""
    gap_ns: int = 100_000_000
    """What a member says sooner than this after its last word is not read: nobody can keep a node busy verifying."""
    past_ms: int = 60_000
    """One that is older than this on arrival is refused too: somebody keeps old letters."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a node is, in the integers that travel."""

    latitude_e7: int
    longitude_e7: int
    height_agl_cm: int
    yaw_cdeg: int | None
    """Hundredths of a degree clockwise from north, 0 to 35,999."""
    sigma_cm: int
    battery_milli: int | None

    def __post_init__(self) -> None:
        """Refuse what cannot travel."""
        if abs(self.latitude_e7) > 900_000_000 or abs(self.longitude_e7) > 1_800_000_000:
            raise StateError(f"({self.latitude_e7}, {self.longitude_e7}) is no place on Earth")
        if not (-10_000_000 <= self.height_agl_cm <= 10_000_000 and 0 <= self.sigma_cm <= _UNKNOWN):
            raise StateError("a height beyond 100 km, or a sigma beyond 655 m")
        if not (self.yaw_cdeg is None or 0 <= self.yaw_cdeg < 36_000):
            raise StateError(f"yaw_cdeg is {self.yaw_cdeg}; it must be 0 to 35999")
        if not (self.battery_milli is None or 0 <= self.battery_milli <= 1_000):
            raise StateError(f"battery_milli is {self.battery_milli}; it must be 0 to 1000")


class Located(msgspec.Struct, frozen=True, gc=False):
    """A member's place as this node knows it."""

    node: NodeId
    place: Place
    captured_ns: int
    """When the position was taken, on this node's monotonic clock."""


# --- requests and details ---------------------------------------------------------------------------------------------


class SayPlace(msgspec.Struct, frozen=True, gc=False):
    """This node is here (None: it has no fix); said at the next occasion."""

    place: Place | None
    captured_ns: int


class PlaceLearned(msgspec.Struct, frozen=True, gc=False):
    """Detail of `StateChanged("where", …)`: another member said where it is; None: it no longer knows."""

    node: NodeId
    located: Located | None


class Positions:
    """The sub-protocol `where`."""

    def __init__(
        self,
        node: NodeId,
        signer: Signer,
        config: PositionsConfig,
        boot: int,
        physical_ms: Callable[[int], int],
    ) -> None:
        """Know nothing yet.

        Args:
            node: This node.
            signer: Its key.
            config: Rates.
            boot: A number that grows with every boot, below 2^36.
            physical_ms: Swarm time in milliseconds at a moment of the monotonic clock.
        """
        self._node = node
        self._signer = signer
        self._config = config
        self._number = boot << _BOOT_SHIFT
        self._physical_ms = physical_ms
        self._keys: dict[NodeId, bytes] = {}
        self._reachable: list[NodeId] = []
        self._held: dict[NodeId, tuple[int, Located | None]] = {}
        self._raw: dict[NodeId, tuple[bytes, int]] = {}
        """What may be carried on: message and when it was heard."""
        self._relayed: dict[NodeId, tuple[int, int]] = {}
        """When a message was last carried on, and its number."""
        self._relay_ns = -(1 << 62)
        self._own: SayPlace | None = None
        self._said: SayPlace | None = None
        self._said_ns = -(1 << 62)
        self._armed_ns: int | None = None
        self.counts = {"said": 0, "learned": 0, "relayed": 0, "refused": 0, "too_soon": 0}

    # --- what can be read -------------------------------------------------------------------------------------------

    def located(self) -> Mapping[NodeId, Located]:
        """The last place of each member that has said one, this node included."""
        found = {node: where for node, (_, where) in self._held.items() if where is not None}
        if self._own is not None and self._own.place is not None:
            found[self._node] = Located(self._node, self._own.place, self._own.captured_ns)
        return found

    # --- SubProtocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """Nothing is said before there is a position."""
        return []

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Members: whom to tell, and whom to believe."""
        self._keys = {peer.node: peer.public_key for peer in peers if peer.public_key}
        before, self._reachable = set(self._reachable), [peer.node for peer in peers if peer.reachable]
        for node in [node for node in self._held if node not in self._keys]:
            del self._held[node]
            self._raw.pop(node, None)
            self._relayed.pop(node, None)
        if before.issuperset(self._reachable):
            return []
        # Somebody came who has heard nothing yet: what was said counts as unsaid.
        self._said = None
        return self._say_when_due(now_ns)

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """`SayPlace`; raises `StateError` for anything else."""
        if not isinstance(request, SayPlace):
            raise StateError(f"`where` knows no request {type(request).__name__}")
        self._own = request
        return self._say_when_due(now_ns)

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """It may be time to speak again."""
        if key != _DUE or self._armed_ns is None or now_ns < self._armed_ns:
            return []
        self._armed_ns = None
        return self._say_when_due(now_ns)

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """Somebody's place, from itself or carried on; whatever the bytes are, nothing is raised."""
        try:
            node, number, ms, place = _opened(payload)
        except (WireError, StateError) as error:
            return self._refuse(sender, str(error))
        held = self._held.get(node)
        if node == self._node or (held is not None and held[0] >= number and not self._is_stale(node, now_ns)):
            return []
        key = self._keys.get(node)
        if key is None:
            return []  # Not a member here yet, or no longer.
        if node in self._raw and now_ns - self._raw[node][1] < self._config.gap_ns:
            self.counts["too_soon"] += 1
            return []
        age_ms = self._physical_ms(now_ns) - ms
        if not -self._config.future_ms <= age_ms <= self._config.past_ms:
            return self._refuse(sender, f"a place of {node.hex()[:8]} is {age_ms} ms old")
        if not self._signer.verify(key, _TAG + payload[: _BODY.size], payload[_BODY.size :]):
            return self._refuse(sender, f"a place of {node.hex()[:8]} has no valid signature")
        where = None if place is None else Located(node, place, now_ns - max(0, age_ms) * _MS)
        self._held[node] = (number, where)
        self._raw[node] = (payload, now_ns)
        self.counts["learned"] += 1
        return [StateChanged(NAME, PlaceLearned(node, where))]

    def summary(self) -> bytes:
        """Nothing here is compared."""
        return b""

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """Nothing here is compared."""
        return []

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Now and then one other member's newest place, the one carried on least recently."""
        if budget_bytes < MESSAGE_BYTES or now_ns - self._relay_ns < self._config.relay_ns:
            return []
        never = (-(1 << 62), 0)
        for node in sorted(self._raw, key=lambda node: (self._relayed.get(node, never), node)):
            payload, heard_ns = self._raw[node]
            number = self._held[node][0]
            if now_ns - heard_ns <= self._config.relay_age_ns and number > self._relayed.get(node, never)[1]:
                self._relayed[node] = (now_ns, number)
                self._relay_ns = now_ns
                self.counts["relayed"] += 1
                return [payload]
        return []

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_stale(self, node: NodeId, now_ns: int) -> bool:
        """Whether what came before this member's last word is too old to be taken, so that any number may follow."""
        return now_ns - self._raw[node][1] > (self._config.past_ms + self._config.future_ms) * _MS

    def _say_when_due(self, now_ns: int) -> list[SubEffect]:
        own, said = self._own, self._said
        if own is None or not self._config.period_ns or own == said:
            return []
        if own.place is None and not self.counts["said"]:
            return []  # It never claimed to know.
        due_ns = self._said_ns + self._pause_ns(own, said)
        if now_ns >= due_ns:
            return self._say(own, now_ns)
        if self._armed_ns is None or due_ns < self._armed_ns:
            self._armed_ns = due_ns
            return [SetTimer(_DUE, due_ns)]
        return []

    def _pause_ns(self, own: SayPlace, said: SayPlace | None) -> int:
        config = self._config
        count = len(self._reachable)
        pause_ns = max(config.period_ns, count * 1_000_000_000 // config.messages_per_s)
        return pause_ns if said is None or _differ(own.place, said.place) else pause_ns * config.still_factor

    def _say(self, own: SayPlace, now_ns: int) -> list[SubEffect]:
        if not self._reachable:
            return []
        self._number += 1
        self._said, self._said_ns = own, now_ns
        self.counts["said"] += 1
        ms = self._physical_ms(min(own.captured_ns, now_ns))
        body = _packed(self._node, self._number, ms, own.place)
        payload = body + self._signer.sign(_TAG + body)
        return [Send(peer, payload, False, Priority.SYNC) for peer in self._reachable]

    def _refuse(self, sender: NodeId, reason: str) -> list[SubEffect]:
        self.counts["refused"] += 1
        return [Rejected(sender.hex(), reason)]


def _differ(a: Place | None, b: Place | None) -> bool:
    """Whether a node has moved so far that others want to know."""
    if a is None or b is None:
        return a is not b
    far = max(abs(a.latitude_e7 - b.latitude_e7), abs(a.longitude_e7 - b.longitude_e7)) > _MOVED_E7
    return far or abs(a.height_agl_cm - b.height_agl_cm) > _MOVED_CM


def _packed(node: NodeId, number: int, ms: int, place: Place | None) -> bytes:
    if place is None:
        return _BODY.pack(_VERSION, node, number, ms, 0, 0, 0, 0, 0, 0, 0)
    return _BODY.pack(
        _VERSION,
        node,
        number,
        ms,
        place.latitude_e7,
        place.longitude_e7,
        place.height_agl_cm,
        _UNKNOWN if place.yaw_cdeg is None else place.yaw_cdeg,
        place.sigma_cm,
        _UNKNOWN if place.battery_milli is None else place.battery_milli,
        _HAS_FIX,
    )


def _opened(payload: bytes) -> tuple[NodeId, int, int, Place | None]:
    """Read a message; raises `WireError` or `StateError` for what is none."""
    if len(payload) != MESSAGE_BYTES:
        raise WireError(f"a place has {MESSAGE_BYTES} bytes, not {len(payload)}")
    version, node, number, ms, *rest, flags = _BODY.unpack_from(payload)
    if version != _VERSION or flags & ~_HAS_FIX:
        raise WireError(f"version {version}, flags {flags} of a place are not known")
    if not flags:
        if any(rest):
            raise WireError("a place without a fix")
        return NodeId(node), number, ms, None
    latitude, longitude, height, yaw, sigma, battery = rest
    place = Place(
        latitude,
        longitude,
        height,
        None if yaw == _UNKNOWN else yaw,
        sigma,
        None if battery == _UNKNOWN else battery,
    )
    return NodeId(node), number, ms, place


assert MESSAGE_BYTES == 116
