"""What a gateway and a region ask of a pipe between them, and how both name places in it.

    PREFIX/SWARM/up/GATEWAY        gateway → region      frames, `wire.Way.UP`
    PREFIX/SWARM/down/GATEWAY      region → gateway      frames, `wire.Way.DOWN`
    PREFIX/SWARM/beside/OTHER      gateways of the swarm OTHER → gateways of SWARM, `BESIDE` and `INTRODUCE`
    PREFIX/SWARM/ask/GATEWAY       a question, `ASK`, and its answer, `TELL`; only where a pipe has questions

SWARM, OTHER and GATEWAY are 32 hexadecimal digits. A gateway listens at its own `down` place, and where it speaks with
neighbours at every `beside` place of its swarm; a region listens to every `up` place below PREFIX (`+` in MQTT, `*` in
Zenoh). A pipe may lose, repeat and reorder frames, and keeps nothing: the outbox does. It must not change one, and what
it delivers is bytes from anybody.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from swarmd_protocols.federation.wire import SWARM_KEY_BYTES, Way
from swarmd_protocols.ids import NODE_ID_BYTES, NodeId

PREFIX = "swarm-fed/1"
"""Before every place; the digit is `wire.WIRE_VERSION`."""
_PLACE = re.compile(rf"/([0-9a-f]{{{2 * SWARM_KEY_BYTES}}})/(up|down|beside)/([0-9a-f]{{{2 * NODE_ID_BYTES}}})")


class Place(NamedTuple):
    """Where a frame goes."""

    swarm: bytes
    way: Way
    gateway: NodeId
    """Or, in places of `Way.BESIDE`, the key of the swarm that speaks, as long as a node's id."""

    def path(self, prefix: str = PREFIX) -> str:
        """As a topic, or as a key expression."""
        return f"{prefix}/{self.swarm.hex()}/{self.way.name.lower()}/{self.gateway.hex()}"


def read_place(path: str, prefix: str = PREFIX) -> Place | None:
    """The place that a topic or key names; None where it is none of ours.

    >>> place = Place(bytes(16), Way.UP, NodeId(bytes(16)))
    >>> read_place(place.path()) == place, read_place("swarm-fed/1/x/up/y")
    (True, None)
    """
    found = _PLACE.fullmatch(path.removeprefix(prefix)) if path.startswith(prefix) else None
    if found is None:
        return None
    return Place(bytes.fromhex(found[1]), Way[found[2].upper()], NodeId(bytes.fromhex(found[3])))


class Uplink(Protocol):
    """One path: a connection that comes and goes. Every call is on the event loop and returns at once."""

    @property
    def name(self) -> str:
        """The path as people configured it, without secrets."""
        ...

    @property
    def connected(self) -> bool:
        """Whether frames can leave at this moment, as far as the pipe knows."""
        ...

    @property
    def problem(self) -> str:
        """Why it is not connected and what to do about it; "" while all is well."""
        ...

    def send(self, place: Place, frame: bytes) -> bool:
        """Hand a frame over; False where it cannot leave now. It is not kept for later: who sends, sends again."""
        ...

    async def run(self) -> None:
        """Connect, serve and connect again; ends only by cancellation."""
        ...


@runtime_checkable
class Askable(Protocol):
    """A path whose pipe carries questions and brings answers back to who asked (Zenoh's queryables)."""

    def answer_at(self, place: Place, on_question: "OnQuestion") -> None:
        """Answer questions at a place, from the next connection on; called once, before `Uplink.run`."""
        ...


OnFrame: TypeAlias = Callable[[Place, bytes], None]
"""Called on the loop for each frame that arrives at a place of ours; bytes from anybody."""
OnQuestion: TypeAlias = Callable[[bytes], Awaitable[Sequence[bytes]]]
"""A question came: bytes from anybody; the frames of its answer, none where it gets no answer."""
MakeUplink: TypeAlias = Callable[[str, Sequence[str], OnFrame], Uplink]
"""(address, patterns to listen to, on_frame) -> path; patterns use `+` for one part (`*` in Zenoh)."""
