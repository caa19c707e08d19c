"""What every attack works with: the stolen node, whom it can reach, and the ways to say what the node never would."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Effect
from swarmd_protocols.swim.messages import Message, Sub
from swarmd_sim.radio.network import Network
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.host import Host
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.releases import ReleaseWorld


@dataclass(slots=True)
class Thief:
    """A hostile host during one attack.

    Attributes:
        host: Whose key and radio are in other hands.
        amount: The fault's amount.
        hosts: All hosts of the run.
        network: The air.
        choices: All randomness.
        crypto: The run's arithmetic of trust.
        releases: The run's models; None where none are published.
        officers: The fleet's keys, of which some are stolen; None where the run has none.
        acted: Strokes that left the host, by kind, of the whole run.
        memory: What the attack remembers between its strokes.
    """

    host: Host
    amount: int
    hosts: list[Host]
    network: Network
    choices: Choices
    crypto: ModelCrypto
    releases: ReleaseWorld | None
    officers: Officers | None
    acted: dict[str, int]
    kind: str = ""
    memory: dict[str, Any] = field(default_factory=dict)

    def did(self) -> None:
        """Count a stroke that left the host."""
        self.acted[self.kind] = self.acted.get(self.kind, 0) + 1

    def draw(self, n: int) -> int:
        """One of n."""
        return self.choices.choose(f"attack.{self.kind}", n)

    def noise(self, size: int) -> bytes:
        """Random bytes."""
        return self.choices.rng("attack.noise").randbytes(size)

    def others(self) -> list[Host]:
        """Hosts that run, this one excepted."""
        return [other for other in self.hosts if other is not self.host and other.process_up]

    def victim(self) -> Host | None:
        """One of them; None where nobody runs."""
        others = self.others()
        return others[self.draw(len(others))] if others else None

    @property
    def node(self) -> Any:
        """The stolen node itself."""
        return self.host.node

    @property
    def seed(self) -> bytes:
        """The stolen key."""
        seed: bytes = self.node._core.own.seed
        return seed

    def members(self) -> list[Any]:
        """Who the stolen node knows and can reach."""
        return [member for member in self.node._core.table.by_node.values() if member.where >= 0]

    def speak(self, to: bytes, messages: list[Message]) -> None:
        """Seal messages for a member in the node's name, on whichever path they fit.

        Args:
            to: Whom.
            messages: Whatever they are.
        """
        node = self.node
        member = node._core.table.by_node.get(to)
        if member is None or member.where < 0 or node._core.own.left:
            return
        node._core.now_ns = self.host.clock.local_ns(self.host.engine.now_ns)
        node._wire.effects = []
        node._wire.datagram_or_stream(member, [encode(message) for message in messages])
        effects: list[Effect] = node._wire.effects
        if effects:
            self.did()
        self.host._perform(effects, 0, None)

    def say(self, to: bytes, subprotocol: str, payload: bytes) -> None:
        """Send a payload of a sub-protocol, whatever it is."""
        self.speak(to, [Sub(subprotocol, payload)])

    def say_some(self, subprotocol: str, payload: bytes, how_many: int = 2) -> None:
        """The same to some members that are drawn."""
        members = self.members()
        for _ in range(min(how_many, len(members))):
            self.say(members[self.draw(len(members))].node, subprotocol, payload)


Stroke = Callable[[Thief], None]
"""One stroke of an attack."""
