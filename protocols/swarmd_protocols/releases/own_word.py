"""What this node says of itself: its signed health reports, numbered so that no number is ever used twice."""

from collections.abc import Callable

from swarmd_protocols.effects import Persist
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.releases import reports
from swarmd_protocols.releases.local import LocalModel
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.reports import Report, SignedReport, Verdict
from swarmd_protocols.releases.statements import Release
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.trust.envelopes import Envelope, Verify, key_id, signed_bytes

OWN = b"releases/o/"
"""Journal keys of the own last report of each model."""
MAX_OFFERS = 256
"""Reports that ride in datagrams; news beyond that waits for the repair."""


class OwnWord:
    """Signs this node's reports, and lets the newest reports of all ride in datagrams.

    Args:
        public_key: This node's Ed25519 key.
        sign: Signs bytes with it.
    """

    def __init__(self, public_key: bytes, sign: Callable[[bytes], bytes]) -> None:
        self.node = node_id_of(public_key)
        self._public_key = public_key
        self._sign = sign
        self._offers: dict[bytes, int] = {}

    def say(self, model: str, local: LocalModel, running: Release | None) -> tuple[SignedReport, SubEffect]:
        """The next report about a model, and its record: durable first, so that its number never goes back."""
        local.sequence += 1
        report = Report(
            self._public_key,
            model,
            local.sequence,
            local.active,
            running.epoch if running else 0,
            running.version if running else 0,
            local.phase,
            local.about,
            local.verdict,
            local.soak_s,
            local.samples,
            local.reason[: reports.MAX_REASON],
        )
        payload = report.payload()
        signature = self._sign(signed_bytes("health", payload))
        envelope = Envelope("health", payload, ((key_id(self._public_key), signature),))
        local.said = envelope.digest
        data = envelope.encode()
        self.offer(data)
        return SignedReport(envelope, report), Persist(OWN + model.encode(), data)

    def restore(self, envelope: Envelope, local: dict[str, LocalModel], verify: Verify) -> SignedReport | None:
        """An own report from the journal; None when it is another node's, or about a model that is not run any longer.

        Raises:
            IdentityError: Its signature does not hold.
            WireError: It is no report.
        """
        report = reports.admit_report(envelope, verify)
        mine = local.get(report.model)
        if report.node != self.node or mine is None:
            return None
        mine.said = envelope.digest
        mine.sequence, mine.verdict, mine.about = report.sequence, report.verdict, report.release
        mine.soak_s, mine.samples, mine.reason = report.soak_s, report.samples, report.reason
        if report.verdict is Verdict.FAIL:
            mine.failed.add(report.release)
        return SignedReport(envelope, report)

    def offer(self, report: bytes) -> None:
        """Let a report, this node's or another's, ride in datagrams."""
        if len(self._offers) >= MAX_OFFERS:
            del self._offers[max(self._offers, key=lambda one: self._offers[one])]
        self._offers[report] = 0

    def piggyback(self, budget_bytes: int, peers: int) -> list[bytes]:
        """The reports offered least, as far as the budget goes; each a number of times that grows as log n."""
        payloads: list[bytes] = []
        limit = 3 * max(1, (peers + 1).bit_length())
        for data in sorted(self._offers, key=lambda one: self._offers[one])[:4]:
            payload = encode_message(Push((), (), (data,)))
            if len(payload) > budget_bytes:
                continue
            budget_bytes -= len(payload)
            payloads.append(payload)
            self._offers[data] += 1
            if self._offers[data] >= limit:
                del self._offers[data]
        return payloads
