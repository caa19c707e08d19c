"""Second copies: what a lender holds while another works on it is not dropped in silence, nor held for ever.

- `offload.copy_dropped`: what a lender holds begins, or ends by a refusal, a cancel or with its borrower, never by its
  deadline; it is refused as "busy" only for work that begins in its place, and as "late" only where what waits there
  may leave no time for it. Said of each request, whether or not the first lender dies with it: a copy that is gone
  without a word is one that nobody replaces.
- `offload.held`: nothing is held for longer than its borrower asked, ten seconds at most; no work is refused as "busy"
  where something that is held could go; and no job is begun twice, however often its borrower says so.

Judged at each lender by itself, from what it was told and what it said, so that no fault of the air excuses or accuses
it. Hostile borrowers are served by the same rules; hostile lenders are not judged.
"""

from dataclasses import dataclass, field

from swarmd_protocols.effects import Order
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.messages import HELD_MAX_MS, REASONS, Cancel, Refusal, Request
from swarmd_protocols.offload.under_way import split_number
from swarmd_protocols.subprotocol import Send, SubEffect
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.checkers.offload import GRACE_NS
from swarmd_sim.run.offload import OffloadWorld
from swarmd_sim.run.offload_device import Device
from swarmd_sim.run.offload_overheard import Overheard, Turned

_MS = 1_000_000
_BUSY, _LATE = REASONS.index("busy"), REASONS.index("late")
_Copy = tuple[NodeId, int]
"""Borrower, and its number of the request as it was on the wire."""


@dataclass(slots=True)
class _Holder:
    """One life of a lender."""

    life: int
    held: dict[_Copy, tuple[int, int]] = field(default_factory=dict)
    """Until when each is to be held, and its deadline, by the lender's clock."""
    jobs: set[int] = field(default_factory=set)
    """Jobs that were begun."""


def _begun(effects: list[SubEffect]) -> dict[_Copy, int]:
    """What a lender has just handed to its runtime, and as which job."""
    orders = [effect.request for effect in effects if isinstance(effect, Order)]
    return {
        (one.borrower, one.request): one.job
        for one in orders
        if isinstance(one, requests.Infer) and one.borrower is not None
    }


def _refused(effects: list[SubEffect]) -> dict[_Copy, int]:
    """What a lender has just refused, and why."""
    sends = [effect for effect in effects if isinstance(effect, Send) and effect.reliable]
    said = [(one.to, messages.decode_message(one.payload)) for one in sends]
    return {(to, one.id): one.reason for to, one in said if isinstance(one, Refusal)}


def _is_fair(device: Device, reason: int | None, left_ns: int, held: int, *, is_begun: bool) -> bool:
    """Whether a lender had cause to refuse what it held.

    Args:
        device: The lender.
        reason: What it said; None: nothing.
        left_ns: Before the request's deadline.
        held: What it still holds.
        is_begun: It begins with something else in its place.
    """
    if reason is None or device.protocol is None:
        return False
    if reason != _LATE:
        return reason != _BUSY or is_begun
    longest_ns = max(device.about.lending.turn_ns, *(unit_ns for _, unit_ns in device.held()))
    return left_ns <= max(device.queues_ns) + (device.protocol.jobs - held + 1) * longest_ns


class HoldingChecker(CheckerBase):
    """See the module.

    Args:
        run: The run.
        world: Its borrowing.
    """

    def __init__(self, run: RunContext, world: OffloadWorld) -> None:
        super().__init__(run)
        self._world = world
        self._holders: dict[int, _Holder] = {}
        world.overheard = self.on_turned

    def on_turned(self, device: Device, turned: Turned) -> None:
        """A lender was told something, or its time came."""
        protocol, holder = device.protocol, self._of(device)
        if not isinstance(protocol, Overheard):
            return
        message, sender = turned.message, turned.sender
        if not holder.held and not isinstance(message, Request):
            return
        begun, refused = _begun(turned.effects), _refused(turned.effects)
        if isinstance(message, Request) and sender is not None and not message.held_ms:
            self._judge_refusal(device, holder, (sender, message.id), refused)
        for copy, job in begun.items():
            if job in holder.jobs:
                self._violate(device, "offload.held", f"begins with {self._name(copy)} twice")
            holder.jobs.add(job)
        now_held = {(node, wire) for node in protocol.jobs_by_borrower() for wire in protocol.held_for(node)}
        for copy in [copy for copy in holder.held if copy not in now_held]:
            left_ns = holder.held.pop(copy)[1] - turned.now_ns
            is_cancelled = isinstance(message, Cancel) and copy == (sender, message.id)
            is_over = copy in begun or is_cancelled or not protocol.lends_to(copy[0])
            reason = refused.get(copy)
            if not is_over and not _is_fair(device, reason, left_ns, len(now_held), is_begun=bool(begun)):
                word = "without a word" if reason is None else f'as "{REASONS[reason]}"'
                text = f"held {self._name(copy)}, and drops it {word} {left_ns // _MS} ms before its deadline"
                self._violate(device, "offload.copy_dropped", text)
        if isinstance(message, Request) and sender is not None and (copy := (sender, message.id)) in now_held:
            for_ms = min(message.held_ms, HELD_MAX_MS)
            due = turned.now_ns + for_ms * _MS, turned.now_ns + message.left_ms * _MS
            holder.held.setdefault(copy, due)  # A second word about it changes nothing.

    def on_step(self, now_ns: int) -> None:
        """Nothing is held beyond its time, while its lender runs."""
        for device in self._world.devices.values():
            host = device.host
            if not host.process_up or host.stalled or now_ns - host.last_ran_ns > 0 or host.hostile:
                continue
            local_ns, holder = host.clock.local_ns(now_ns), self._of(device)
            busy_ns = host.clock.local_ns(host.cpu.busy_until_ns)
            for copy, (due_ns, _) in list(holder.held.items()):
                if local_ns > max(due_ns, busy_ns) + GRACE_NS:
                    del holder.held[copy]
                    late_ms = (local_ns - due_ns) // _MS
                    text = f"holds {self._name(copy)} {late_ms} ms longer than it was asked to"
                    self._violate(device, "offload.held", text)

    def _of(self, device: Device) -> _Holder:
        index, life = device.host.index, device.host.boots
        if index not in self._holders or self._holders[index].life != life:
            self._holders[index] = _Holder(life)
        return self._holders[index]

    def _judge_refusal(self, device: Device, holder: _Holder, asked: _Copy, refused: dict[_Copy, int]) -> None:
        """Work that is to begin at once has the place of what is held; who has all its places, of its own."""
        if refused.get(asked) != _BUSY or device.protocol is None:
            return
        has = device.protocol.jobs_by_borrower().get(asked[0], 0)
        may_go = [copy for copy in holder.held if copy[0] == asked[0] or has < device.about.lending.jobs_each]
        if may_go:
            text = f"refuses {self._name(asked)} as busy, and holds {self._name(may_go[0])}"
            self._violate(device, "offload.held", text)

    def _violate(self, device: Device, rule: str, text: str) -> None:
        if not device.host.hostile:
            self.run.watch.violate(rule, f"{device.host.name} {text}")

    def _name(self, copy: _Copy) -> str:
        host = self.run.watch.by_id.get(copy[0])
        return f"request {split_number(copy[1])[0]} of {host.name if host is not None else copy[0].hex()}"
