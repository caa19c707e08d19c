"""Between the worker and the sub-protocol `offload`: what programs borrow goes out, what was lent comes in.

A worker's requests are renumbered, since one that is started anew counts from one, and what belongs to one that has
ended is dropped.
"""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from swarmd.api.daemon import LendingSpan
from swarmd.brain.lending_audit import LendingAudit
from swarmd.brain.lending_rules import sentence, told
from swarmd.worker import words
from swarmd.worker.lent import kept_answer, source_of
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import WAYS, Address, NodeId, without_zone
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.lending import NAME
from swarmd_protocols.offload.messages import bound_by
from swarmd_protocols.offload.offload import Offload
from swarmd_protocols.offload.under_way import split_number, wire_number
from swarmd_protocols.summary import MemberView

_MS = 1_000_000
_LOST_MAX = 8
"""Broken connections that are shown."""
_LIFE_BITS, _COUNT_BITS = 28, 32
"""Of a request's number, which has 60: which life of the daemon asked it, and its count in that life."""
_JUDGED_MAX = 256
"""Answers that the worker may judge; what it says of older ones is lost."""
_UNANSWERED = (
    "no device has answered in time, or none offers this model (`swarmd status --json` shows who offers what), or the "
    "request does not fit it (its metadata can be borrowed likewise)"
)


_UNPROVEN = ("indirect", "heard-only")
"""Qualities of links over which a member does not answer what is sent to its address."""


def charge_ppb_s(watts: float, battery_j: float | None) -> int:
    """What a second of inference takes of the charge, billionths; 0: nobody knows, or there is no battery.

    >>> charge_ppb_s(3.0, 50 * 3600.0), charge_ppb_s(3.0, None)
    (16667, 0)
    """
    return 0 if not battery_j or watts <= 0.0 else round(watts / battery_j * 1e9)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A request that is under way, here for another or elsewhere for this device."""

    at_ns: int
    borrower: NodeId
    request: int
    """Its number on the wire; 0: it came back to this device, and is told by its borrower alone."""
    digest: str
    size_bytes: int
    cause: str = ""
    """`traceparent` of what the program was doing."""


class LendingLink:
    """Lends this device's worker out, and borrows others' for its programs."""

    def __init__(
        self,
        protocol: Offload,
        command: Callable[[str, object], None],
        battery_milli: Callable[[], int | None],
        name_of: Callable[[NodeId], str],
        members: Callable[[], Iterable[MemberView]] = tuple,
        audit: LendingAudit | None = None,
        is_hot: Callable[[], bool] = lambda: False,
        battery_j: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Know no worker yet; `bind` gives it one.

        Args:
            protocol: Decides.
            command: Gives a sub-protocol a request; raises `StateError`.
            battery_milli: The charge in thousandths; None: no battery, or unknown.
            name_of: A member's name.
            members: All of them, with their addresses.
            audit: Where it is written who lent what to whom; None: nowhere.
            is_hot: Whether the device is too hot to lend; asked once a second.
            battery_j: What the battery holds when it is full, joules; None: nobody knows, or there is none.
        """
        self._is_hot = is_hot
        self._battery_j = battery_j
        self._is_resting = False
        self._has_told = False
        """Whether the worker was told of a lender."""
        self._audit = audit
        self.protocol = protocol
        self._command = command
        self._battery_milli = battery_milli
        self._name_of = name_of
        self._members = members
        self._say: Callable[[words.ToWorker], bool] = lambda word: False
        self._numbers = secrets.randbits(_LIFE_BITS) << _COUNT_BITS
        """Of the last request: no other life of this device has used it, so that traces of both are told apart."""
        self._asked: dict[int, int] = {}
        """Requests of the living worker: the protocol's number to the worker's."""
        self._jobs: dict[int, _Begun] = {}
        """That the living worker has."""
        self._begun: dict[int, _Begun] = {}
        """What programs of the living worker wait for, by the protocol's number."""
        self.tell: Callable[[LendingSpan], None] | None = None
        """Who is told how long each request took; None: nobody."""
        self._lost: list[dict[str, Any]] = []
        """Whose connections broke, when, and how many requests went to others for it; the newest last."""
        self._judged: dict[int, NodeId] = {}
        """Who answered what the living worker asked, by the worker's number."""

    def _tell(self, begun: "_Begun | None", **attributes: str | int | bool) -> None:
        """A request is through, at its borrower or here."""
        if self.tell is None or begun is None or not begun.request:
            return
        number, attempt = split_number(begun.request)
        name = "borrow" if begun.borrower == self.protocol.node else "lend"
        said = {"model_digest": begun.digest, "swarmd.bytes": begun.size_bytes, **attributes}
        now_ns = time.monotonic_ns()
        self.tell(LendingSpan(name, begun.borrower, number, attempt, begun.at_ns, now_ns, said, begun.cause))

    def bind(self, say: Callable[[words.ToWorker], bool]) -> None:
        """How the worker is spoken to; False: there is none just now."""
        self._say = say

    def counts(self) -> dict[str, int]:
        """Of requests and offers, by what became of them."""
        return dict(self.protocol.counts())

    def status(self) -> dict[str, Any]:
        """For `swarmd status`."""
        return {
            "lenders": {self._name_of(node): list(digests) for node, digests in self.protocol.lenders().items()},
            "left_out": self._left_out(),
            "open": self.protocol.open_requests,
            "jobs": self.protocol.jobs,
            "lost": self._lost,
            "hot": self._is_resting,
            "asks": self._asks(),
            "counts": self.counts(),
        }

    def _left_out(self) -> dict[str, str]:
        """Who lends and may not be asked, and which key says so."""
        return told(self.protocol.left_out(time.monotonic_ns()), self._name_of)

    def _asks(self) -> dict[str, dict[str, float]]:
        """What an hour of inference costs at lenders that ask something: money, and hundredths of their charge."""
        return {
            self._name_of(one.node): {
                "price_hour": round(one.price_micro_s * 3600 / 1e6, 6), "charge_hour": one.charge_ppb_s * 3600 / 1e9,
            }
            for one in self.protocol.offers(time.monotonic_ns()) if one.price_micro_s or one.charge_ppb_s
        }  # fmt: skip

    def prices(self) -> dict[str, float]:
        """The least and the most that a lender asks for an hour; empty where none asks anything."""
        asked = [one["price_hour"] for one in self._asks().values() if one["price_hour"]]
        return {"least": min(asked), "most": max(asked)} if asked else {}

    def on_lost(self, address: Address) -> None:
        """A connection to a member was ended by it, or for it: what it works on is asked of others too."""
        lenders = self.protocol.lenders()
        if not lenders:
            return
        for one in self._members():
            if one.address == address and one.node in lenders:
                noticed_ns, before = time.monotonic_ns(), self.protocol.counts()["borrow_rerouted"]
                self._command(NAME, requests.Doubt(one.node))
                self._lost = [*self._lost, {
                    "lender": self._name_of(one.node), "monotonic_ns": noticed_ns,
                    "rerouted": self.protocol.counts()["borrow_rerouted"] - before,
                    "took_us": (time.monotonic_ns() - noticed_ns) // 1_000,
                }][-_LOST_MAX:]  # fmt: skip

    def close(self) -> None:
        """Write what has not been written."""
        if self._audit is not None:
            self._audit.close(self.protocol.ledger.take())

    def take(
        self, word: words.Borrow | words.Abandon | words.Judged | words.Malformed | words.Ran | words.Pulse
    ) -> None:
        """The worker speaks."""
        match word:
            case words.Borrow():
                self._borrow(word)
            case words.Abandon(asked):
                for number in [number for number, one in self._asked.items() if one == asked]:
                    self._command(NAME, requests.Abandon(number))
            case words.Judged(asked, is_right, is_silent):
                lender = self._judged.pop(asked, None)
                if lender is not None:
                    said = requests.Withheld(lender) if is_silent else requests.Judged(lender, is_right)
                    self._command(NAME, said)
            case words.Malformed(borrower):
                self._command(NAME, requests.Malformed(NodeId(bytes.fromhex(borrower))))
            case words.Ran(job, data):
                self._tell(self._jobs.pop(job, None), **{"swarmd.answered": data is not None})
                self._command(NAME, requests.Ran(job, data))
            case words.Pulse():
                self._is_resting = self._is_hot()
                held = [] if self._is_resting else [
                    requests.Held(bytes.fromhex(digest), ns, *word.able.get(digest, ("", 0)))
                    for digest, ns in word.held.items()
                ]  # fmt: skip
                self._command(
                    NAME,
                    requests.Stock(
                        tuple(held),
                        word.queue_ns,
                        self._battery_milli(),
                        charge_ppb_s(word.watts, self._battery_j()),
                        tuple(map(bytes.fromhex, word.asks)),
                    ),
                )
                self._tell_lenders()
                if self._audit is not None and self._audit.is_due:
                    self._audit.write(self.protocol.ledger.take(self._audit.resting()))

    def on_worker_gone(self) -> None:
        """It has ended: it holds nothing, runs nothing and waits for nothing, and lenders work on nothing for it."""
        asked, self._asked = self._asked, {}
        self._begun.clear()
        self._judged.clear()
        self._command(NAME, requests.Stock((), 0, self._battery_milli()))
        jobs, self._jobs = self._jobs, {}
        for number in sorted(asked):
            self._command(NAME, requests.Abandon(number))
        for job, begun in sorted(jobs.items()):
            self._tell(begun, **{"swarmd.answered": False})
            self._command(NAME, requests.Ran(job, None))

    def carry_out(self, order: object) -> None:
        """What the protocol orders."""
        match order:
            case requests.Infer(job, digest, data, units, deadline_ns, borrower, lane_bytes, turn_ns, request, own):
                left_ms = max(1, (deadline_ns - time.monotonic_ns()) // _MS)
                keeper = None if borrower is None or not lane_bytes else self._keeper(borrower, data)
                is_here = keeper is not None and keeper == self.protocol.node
                host = "" if is_here else self._host_of(keeper)
                who = "" if borrower is None else borrower.hex()
                lend = words.Lend(
                    job, digest.hex(), data, units, left_ms, borrower is None, lane_bytes, host, who, is_here, turn_ns,
                    self._asked.get(own, 0),
                )  # fmt: skip
                if self._say(lend):
                    size_bytes = len(data) + lane_bytes
                    whose = borrower or self.protocol.node
                    self._jobs[job] = _Begun(time.monotonic_ns(), whose, request, digest.hex(), size_bytes)
                else:
                    self._command(NAME, requests.Ran(job, None))
            case requests.Drop(job):
                self._tell(self._jobs.pop(job, None), **{"swarmd.answered": False, "swarmd.dropped": True})
                self._say(words.Drop(job))
            case requests.Settle(number, data, lender, digest, is_check_wanted, is_kept, proof, request, way_ns):
                asked, begun = self._asked.pop(number, None), self._begun.pop(number, None)
                if begun is not None:
                    begun = replace(begun, request=request or begun.request, digest=digest.hex())
                    by_whom = "" if lender is None else lender.hex()
                    said: dict[str, str | int | bool] = {"swarmd.answered": data is not None, "swarmd.kept": is_kept}
                    self._tell(begun, **said, **{"swarmd.lender": by_whom})
                if asked is not None:
                    name = "" if lender is None else self._name_of(lender)
                    reason = "" if data is not None else _UNANSWERED + sentence(self._left_out())
                    if lender is not None:
                        self._judged[asked] = lender
                        while len(self._judged) > _JUDGED_MAX:
                            del self._judged[next(iter(self._judged))]
                    is_checked = is_check_wanted and lender is not None
                    by = "" if data is None else digest.hex()
                    is_offered = data is None and self._is_offered(digest)
                    far = ("" if lender is None else lender.hex(), b"", "")
                    if lender is not None and data is not None and kept_answer(data) is not None:
                        far = (lender.hex(), proof, self._host_of(lender))
                    self._say(
                        words.Borrowed(asked, data, name, reason, is_checked, by, is_kept, is_offered, *far, way_ns)
                    )

    def _tell_lenders(self) -> None:
        """Who lends what, for batches that the worker places by itself."""
        bundles: dict[str, dict[str, int]] = {}
        for offer in self.protocol.offers(time.monotonic_ns()):
            for one in offer.bundles:
                bundles.setdefault(one.digest.hex(), {})[offer.node.hex()] = one.unit_ns
        if bundles or self._has_told:
            self._say(words.Lenders(bundles))
        self._has_told = bool(bundles)

    def _is_offered(self, digest: bytes) -> bool:
        """Whether a member offers a bundle, or for `b""`, which any able one may answer, anything."""
        offers = self.protocol.lenders().values()
        return any(not digest or digest.hex() in digests for digests in offers)

    def _keeper(self, borrower: NodeId, data: bytes) -> NodeId | None:
        """Who has the input of a request: its borrower, or another lender that has signed so for it; None: nobody."""
        if (source := source_of(data)) is None:
            return borrower
        if source.node == self.protocol.node:
            return self.protocol.node  # Nothing is connected to, and its own worker knows what it keeps.
        bound, signature = bound_by(source.proof, borrower, NodeId(source.node), source.digest)
        return bound.lender if self.protocol.has_said(bound, source.answer, signature) else None

    def _host_of(self, node: NodeId | None) -> str:
        """Where a member is; "": nobody knows.

        A record says only its own address, and this device connects to no host because somebody says so: it must be
        the one that the member's sealed frames come from, and where it answers.
        """
        member = next((one for one in self._members() if one.node == node), None)
        if member is None or member.quality in _UNPROVEN:
            return ""
        hosts = map(_host, member.address.split(WAYS))
        return _host(member.heard_at) if _host(without_zone(member.heard_at)) in hosts else ""

    def _borrow(self, word: words.Borrow) -> None:
        self._numbers += 1
        self._asked[self._numbers] = word.number
        self._begun[self._numbers] = _Begun(
            time.monotonic_ns(), self.protocol.node, wire_number(self._numbers, 0), word.digest,
            len(word.data) + word.lane_bytes, word.cause,
        )  # fmt: skip
        deadline_ns = time.monotonic_ns() + word.left_ms * _MS
        request = requests.Borrow(
            self._numbers, bytes.fromhex(word.digest), word.data, word.units, deadline_ns, word.local_ns,
            lane_bytes=word.lane_bytes, local_wait_ns=word.local_wait_ns, ability=word.ability,
            grade_min_milli=word.grade_min_milli, keep_ns=word.keep_ms * _MS, lane_key=word.lane_key,
            lane_at=word.lane_at, only=NodeId(bytes.fromhex(word.only)) if word.only else None,
            may_check=word.may_check, but=tuple(NodeId(bytes.fromhex(node)) for node in word.but),
            priority=word.priority, copies=word.copies,
        )  # fmt: skip
        try:
            self._command(NAME, request)
        except StateError as error:
            del self._asked[self._numbers], self._begun[self._numbers]
            self._say(words.Borrowed(word.number, None, "", str(error)))
