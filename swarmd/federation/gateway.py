"""The gateway: a member that tells the region what its swarm has confirmed, and brings down what people above signed.

It joins as an observer does; its certificate names the role `shares.ROLE`. What it says is `publisher.py`'s, what waits
is `outbox.py`'s, what leaves when and by which path is `swarmd_protocols.federation.flow`'s, what comes down is
`descent.py`'s.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from swarmd.errors import ConfigError, DaemonError
from swarmd.federation.above import GatewayDaemon
from swarmd.federation.answering import Answering
from swarmd.federation.descent import Descent
from swarmd.federation.lives import LIFE_MAX
from swarmd.federation.outbox import FILE_NAME, Done, Outbox
from swarmd.federation.publisher import SCAN_S, Publisher
from swarmd.federation.sending import Sending
from swarmd.federation.unproven import Unproven
from swarmd.federation.uplink import Askable, MakeUplink, Place
from swarmd_protocols.crypto import PUBLIC_KEY_BYTES, Crypto
from swarmd_protocols.effects import MemberState
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.federation.shares import CLAIM_KEY, CLAIMED, ROLE, owned
from swarmd_protocols.federation.wire import (
    Down,
    Pair,
    Way,
    swarm_key,
)
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.envelopes import decode_envelope

PUMP_S = 0.05
"""Seconds between two looks at what can leave: a twentieth of what a row may take on its way up."""
CLAIM_S = 0.25
"""Seconds between two looks at who claims: a small part of the five in which shares change hands."""
FULL_S = 5.0
"""Seconds between two attempts at an outbox whose disk takes nothing: each compares all objects."""
TIDY_S = 60.0
"""Seconds between two looks for rows that are too old."""
SILENT_NS = 20_000_000_000
"""Without an answer for so long people are told: a region that starts again, or a path that changes, is no alert."""
ALERT = "region-lost"
_LIVING = (MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEGRADED)


class GatewaySettings(msgspec.Struct, frozen=True):
    """What a gateway is told; `[federation]` of the configuration."""

    paths: tuple[str, ...]
    region_key: bytes
    prefix: str
    outbox_bytes: int
    retain_s: float
    refresh_s: float
    health_s: float
    bundles: tuple[str, ...] = ()
    """Addresses and folders from below which bundles may be fetched."""


class Gateway:
    """Runs beside one daemon.

    Args:
        settings: What it is told.
        seed: The node's Ed25519 seed.
        crypto: The library.
        folder: Gives the folder of the outbox.
        make_uplink: Makes one path.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        seed: bytes,
        crypto: Crypto,
        folder: Callable[[], Path],
        make_uplink: MakeUplink,
    ) -> None:
        if not settings.paths:
            raise ConfigError('a gateway needs a way up: set federation.paths, such as ["mqtt://broker:1883"]')
        if len(settings.region_key) != PUBLIC_KEY_BYTES:
            raise ConfigError(
                "federation.region_key is the region's public key, 64 hexadecimal digits: swarmd region show"
            )
        self._settings = settings
        self._crypto = crypto
        try:
            self._pair = Pair(crypto, seed, settings.region_key)
        except IdentityError as error:
            raise ConfigError(f"federation.region_key: {error}") from error
        self._folder = folder
        self._make_uplink = make_uplink
        self._is_claimed: bool | None = None
        self._silence = ""
        self._is_copied = False
        self._wake = asyncio.Event()
        self.refused = 0
        """Rows that the region refused for good: this gateway is wrong, or lies."""

    async def run(self, daemon: GatewayDaemon) -> None:
        """Until cancelled.

        Raises:
            ConfigError: The certificate does not name the role.
            DaemonError: The outbox cannot be written.
        """
        try:
            await self._run(daemon)
        except Exception as error:
            # It is started again; until a region has answered people see why there is none.
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            self._silence = str(cause) if isinstance(cause, DaemonError) else f"{type(cause).__name__}: {cause}"
            daemon.command("alert", {"code": ALERT, "text": self._silence})
            raise

    async def _run(self, daemon: GatewayDaemon) -> None:
        above, node = daemon.above, daemon.info().node
        held = above.certificate(node)
        if held is None or ROLE not in held.roles:
            raise ConfigError(
                f"this node's certificate does not name the role {ROLE}: enrol it by swarmd keys enrol … --role {ROLE}"
            )
        self._daemon = daemon
        self._place = Place(swarm_key(decode_envelope(above.first_root).digest, daemon.info().swarm), Way.UP, node)
        settings = self._settings
        self._outbox = Outbox(self._folder() / FILE_NAME, settings.outbox_bytes, settings.retain_s)
        if (aside := self._outbox.moved_aside) is not None:
            daemon.note_problem("gateway", f"the outbox was damaged, or of a later version, and moved to {aside}")
        self._publisher = Publisher(daemon, self._outbox, self._crypto, settings.refresh_s, settings.health_s)
        self._unproven = Unproven(self._outbox, lambda node: above.certificate_statement(node) is not None)
        self._descent = Descent(daemon, self._outbox, self._crypto, settings.bundles)
        self._sending = Sending(self._outbox, self._pair, self._place, len(settings.paths), self._on_down)
        listens = [Place(self._place.swarm, Way.DOWN, node).path(settings.prefix)]
        uplinks = self._sending.uplinks
        uplinks += [self._make_uplink(path, listens, self._hearer(at)) for at, path in enumerate(settings.paths)]
        self._answering = Answering(self._place, self._pair, self._publisher, self._outbox)
        for uplink in uplinks:
            if isinstance(uplink, Askable):
                uplink.answer_at(self._place._replace(way=Way.ASK), self._answer)
        above.show(self.status)
        end = daemon.subscribe(self._publisher.on_event)
        try:
            async with asyncio.TaskGroup() as tasks:
                for uplink in uplinks:
                    tasks.create_task(uplink.run())
                for part in (self._keep_publishing(), self._keep_sending(), self._keep_claiming(), self._descent.run()):
                    tasks.create_task(part)
        finally:
            end()
            self._is_claimed = None
            above.tell(CLAIM_KEY, b"")
            self._outbox.close()

    # --- Up -----------------------------------------------------------------------------------------------------------

    async def _keep_publishing(self) -> None:
        tidy_s, told = 0.0, self._outbox.dropped_rows
        while True:
            try:
                if await self._publisher.scan():
                    self._wake.set()
                if time.monotonic() >= tidy_s:
                    tidy_s = time.monotonic() + TIDY_S
                    self._outbox.tidy(round(time.time() * 1000))
            except DaemonError as error:
                self._daemon.note_problem("gateway", str(error))
                await asyncio.sleep(FULL_S)
            if self._outbox.dropped_rows > told:
                told = self._outbox.dropped_rows
                kinds = ", ".join(f"{count} of kind {kind}" for kind, count in sorted(self._outbox.dropped.items()))
                self._daemon.note_problem(
                    "gateway",
                    f"the outbox had no room: rows dropped so far: {kinds}; the region is out of reach for longer than "
                    "federation.outbox_mib and federation.retain_days allow",
                )
            await asyncio.sleep(SCAN_S)

    async def _keep_sending(self) -> None:
        problems = [""] * len(self._sending.uplinks)
        while True:
            self._sending.pump(time.monotonic_ns())
            self._tell_silence(time.monotonic_ns())
            for at, uplink in enumerate(self._sending.uplinks):
                if uplink.problem != problems[at]:
                    problems[at] = uplink.problem
                    if uplink.problem:
                        self._daemon.note_problem("gateway", uplink.problem)
            try:
                async with asyncio.timeout(PUMP_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    def _tell_silence(self, now_ns: int) -> None:
        """The alert that the region does not answer, with what each path says of it, or that it is over."""
        told, self._silence = self._silence, self._why_silent(now_ns)
        if self._silence != told:
            self._daemon.command("alert", {"code": ALERT, "text": self._silence})

    def _why_silent(self, now_ns: int) -> str:
        """Why the region does not answer, as far as it is seen from here; "" while it does."""
        if self._sending.flow.silent_ns(now_ns) < SILENT_NS:
            # What an earlier run failed of is over once the region has answered.
            return "" if self._sending.flow.works(now_ns) else self._silence
        uplinks, swarm = self._sending.uplinks, self._daemon.info().swarm
        lost = [one.problem or f"{one.name}: not connected" for one in uplinks if not one.connected]
        mute = ", ".join(one.name for one in uplinks if one.connected)
        if mute:
            lost.append(f"nobody there answers for the swarm {swarm} by {mute}")
        return "; ".join(lost)

    # --- What is answered ---------------------------------------------------------------------------------------------

    def _hearer(self, path: int) -> Callable[[Place, bytes], None]:
        def hear(_: Place, frame: bytes) -> None:
            try:
                if self._sending.on_frame(path, frame, time.monotonic_ns()):
                    self._wake.set()
            except DaemonError as error:
                # What was not written down stays unanswered, and is asked for or sent again.
                self._daemon.note_problem("gateway", str(error))

        return hear

    async def _answer(self, frame: bytes) -> list[bytes]:
        return await self._answering.answer(frame, time.monotonic_ns())

    def _on_down(self, down: Down, done: Sequence[Done]) -> None:
        refused = dict(down.refused)
        out = [row for row in done if row.seq in refused]
        # What needs no disk, and what stands above own words, first: where the disk fails then, neither is forgotten.
        self._publisher.on_refused(out)
        self._tell_refused([refused[row.seq] for row in out])
        if down.known:
            self._publisher.on_known(down.known)
        self._publisher.on_done(row for row in done if row.seq not in refused)
        if down.wanted:
            nodes = [NodeId(node) for node in down.wanted]
            self._outbox.put(self._publisher.trust_of(nodes), round(time.time() * 1000))
            self._take_back(nodes)
        if down.life > LIFE_MAX and not self._is_copied:
            self._is_copied = True
            self._daemon.note_problem(
                "gateway",
                "the region hears somebody else who has this node's key, and this one no more: have an officer revoke "
                "this node, and enrol it anew",
            )
        log = self._outbox.have[0]
        if down.log != log:
            if any(log):
                self._publisher.forget()  # The region's memory is another one: whatever it had, it may lack.
            self._outbox.have = (down.log, 0)
        if down.rows:
            self._descent.take(down.log, down.rows)

    def _tell_refused(self, whys: Sequence[str]) -> None:
        """One line for a frame: a clock that is ahead has all of its rows refused."""
        if whys:
            self.refused += len(whys)
            more = f", and {len(whys) - 1} more of its frame" if len(whys) > 1 else ""
            self._daemon.note_problem("gateway", f"the region refuses a row: {whys[0]}{more}")

    def _take_back(self, nodes: Sequence[NodeId]) -> None:
        gone = self._unproven.asked(nodes, time.monotonic())
        if gone:
            self._publisher.on_taken_back(gone)
            self._daemon.note_problem(
                "gateway",
                f"{len(gone)} rows are of nodes that have no certificate any more, and do not go up: they were "
                "enrolled anew, or the newest root does not stand behind them",
            )

    # --- Claims -------------------------------------------------------------------------------------------------------

    async def _keep_claiming(self) -> None:
        above = self._daemon.above
        while True:
            works = self._sending.flow.works(time.monotonic_ns())
            if works is not self._is_claimed:
                self._is_claimed = works
                above.tell(CLAIM_KEY, CLAIMED if works else b"")
            claimants = self._claimants(works)
            self._publisher.claim(owned(self._place.gateway, claimants), len(claimants))
            await asyncio.sleep(CLAIM_S)

    def _claimants(self, works: bool) -> list[NodeId]:
        """Who counts: gateways that claim; where none does, all that live."""
        own, above = self._place.gateway, self._daemon.above
        living, claiming = [own], [own] if works else []
        for member in self._daemon.members():
            if member.node == own or member.state not in _LIVING:
                continue
            held = above.certificate(member.node)
            if held is None or ROLE not in held.roles:
                continue
            # A member without the entry is an observer that bears the role: no gateway runs beside it.
            if CLAIM_KEY in member.meta:
                living.append(member.node)
            if member.meta.get(CLAIM_KEY) == CLAIMED:
                claiming.append(member.node)
        return claiming or living

    def status(self) -> dict[str, object]:
        """Figures for people."""
        return {
            **self._sending.counts,
            **self._answering.counts,
            "refused": self.refused,
            "waiting": len(self._outbox),
            "waiting_bytes": self._outbox.size_bytes,
            "outbox_bytes": self._settings.outbox_bytes,
            "dropped": self._outbox.dropped_rows,
            "path": self._settings.paths[self._sending.flow.first],
            "paths": {
                one.name: "" if one.connected else one.problem or "not connected" for one in self._sending.uplinks
            },
            "switches": self._sending.flow.switches,
            "works": bool(self._is_claimed),
            "shares": len(self._publisher.shares),
            "unproven": self._publisher.unproven,
            "bundles": self._descent.fetched,
        }
