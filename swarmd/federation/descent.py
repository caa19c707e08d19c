"""What comes down: signed statements, bundles and facts, put into the swarm in the region's order.

Bundles are fetched beside the rest, and counted as taken in once they are written down here: what lies on a slow server
keeps no statement back, however many follow, and is fetched after a restart too.

Nothing here is a command. A statement counts by the fleet's own officers, a fact by its own operators, a bundle by the
digests that a signed release names; who signed is judged here, and again by every node. What does not hold is said and
passed over, so that it keeps nothing else back.
"""

import asyncio
import base64
import http.client
import time
import urllib.error
import urllib.parse
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from swarmd.errors import DaemonError
from swarmd.federation import steady
from swarmd.federation.above import GatewayDaemon
from swarmd.federation.outbox import Outbox
from swarmd.release.author import STATEMENT, blob_digests
from swarmd_models.bounded_file import open_regular
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import ProtocolError, WireError
from swarmd_protocols.federation.facts import SignedFact, note_key, open_fact
from swarmd_protocols.federation.wire import DownRow, FactKind, read_bundle
from swarmd_protocols.releases.statements import MAX_BLOB_BYTES, Release, parse_release
from swarmd_protocols.trust.envelopes import STATEMENT_MAX_BYTES, Envelope, decode_envelope

QUEUE_ROWS = 4_096
"""Rows that wait to be done; the region sends the rest again."""
BUNDLES_MAX = 1_024
"""Bundles that wait to be fetched, half a megabyte as a rule; the oldest are passed over."""
TRIES = 3
"""Attempts to fetch a bundle from each of its sources."""
_PAUSE_S = 2.0
"""Seconds before the second attempt; twice as many before each further one."""
EARLY_MAX = 64
"""Facts that wait for the root which names their operator; of more the oldest go."""
_EARLY_S = 5.0
"""Seconds between two looks at whether it is there."""
_PIECE_BYTES = 32_768
"""Of a blob, handed to the daemon in one go."""
_TRUST_KINDS = ("root", "node", "revoke")


class Descent:
    """Does one row after the other, and fetches one bundle after the other meanwhile.

    Args:
        daemon: The node.
        outbox: Keeps how far this has come.
        crypto: Checks who signed.
        sources: Addresses and folders from below which bundles may be fetched.
    """

    def __init__(self, daemon: GatewayDaemon, outbox: Outbox, crypto: Crypto, sources: Sequence[str]) -> None:
        self._daemon = daemon
        self._outbox = outbox
        self._crypto = crypto
        self._sources = tuple(sources)
        self._rows: dict[int, DownRow] = {}
        self._log = b""
        self._bundles: dict[int, bytes] = {}
        """What is to be fetched, by number."""
        self._early: dict[tuple[str, bytes], SignedFact] = {}
        """Facts whose signer is no operator so far, by their note's key and that one; a restart forgets them."""
        self._is_new, self._is_bundle = asyncio.Event(), asyncio.Event()
        self.fetched = 0
        self.refused = 0

    def take(self, log: bytes, rows: Sequence[DownRow]) -> None:
        """Rows of the region's log, in order, from the one after what is known to be done."""
        held, done = self._outbox.have
        if log != self._log:
            self._log = log
            self._rows.clear()
            self._bundles = self._outbox.bundles(log)
            self._is_bundle.set()
            if held != log:
                self._outbox.have = (log, 0)
                done = 0
        for row in rows:
            if row.seq > done and len(self._rows) < QUEUE_ROWS:
                self._rows.setdefault(row.seq, row)
        self._is_new.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_doing())
            tasks.create_task(self._keep_fetching())
            tasks.create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_EARLY_S)
            self.look_again()

    def look_again(self) -> None:
        """Facts that came before the root that names their operator count once it is there."""
        operators = self._daemon.above.operators()
        for waits in [waits for waits in self._early if waits[1] in operators]:
            try:
                self._put(self._early.pop(waits).statement)
            except (DaemonError, ProtocolError, OSError, ValueError) as error:
                self._daemon.note_problem("gateway", f"a fact that waited for a root is passed over: {error}")

    async def _keep_doing(self) -> None:
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            while self._rows:
                seq = min(self._rows)
                row = self._rows.pop(seq)
                try:
                    self._do(row)
                except (DaemonError, ProtocolError, OSError, ValueError) as error:
                    self._pass_over(seq, error)
                try:
                    self._outbox.take_down(self._log, seq, self._bundles)
                except DaemonError as error:
                    # The region sends it again: done twice is done.
                    self._daemon.note_problem("gateway", str(error))

    async def _keep_fetching(self) -> None:
        while True:
            await self._is_bundle.wait()
            self._is_bundle.clear()
            while self._bundles:
                seq, log = min(self._bundles), self._log
                try:
                    await self._fetch(self._bundles[seq])
                except (DaemonError, ProtocolError, OSError, ValueError) as error:
                    self._pass_over(seq, error)
                if log == self._log:
                    self._bundles.pop(seq, None)
                    try:
                        self._outbox.drop_bundle(seq)
                    except DaemonError as error:
                        # It is fetched again after a restart.
                        self._daemon.note_problem("gateway", str(error))

    def _pass_over(self, seq: int, why: object) -> None:
        self.refused += 1
        self._daemon.note_problem("gateway", f"row {seq} from above is passed over: {why}")

    def _do(self, row: DownRow) -> None:
        match row.kind:
            case FactKind.STATEMENT:
                self._state(decode_envelope(row.body), row.body)
            case FactKind.BUNDLE:
                self._bundles[row.seq] = row.body
                self._is_bundle.set()
                if len(self._bundles) > BUNDLES_MAX:
                    del self._bundles[oldest := min(self._bundles)]
                    self._pass_over(oldest, f"{BUNDLES_MAX} bundles wait")
            case FactKind.FACT:
                self._put(row.body)
            case FactKind.MARK:
                pass
            case _:
                raise WireError(f"kind {row.kind} is not known here")

    def _state(self, envelope: Envelope, statement: bytes) -> None:
        if envelope.kind in _TRUST_KINDS:
            self._daemon.add_statement(envelope.kind, statement)
        elif envelope.kind in ("group", "health"):
            raise WireError(f"a {envelope.kind} statement is nothing that comes from above")
        else:
            self._daemon.command("model_publish", {"envelopes": [statement.hex()]}, by="the region")

    def _put(self, statement: bytes) -> None:
        said = open_fact(statement)
        above = self._daemon.above
        swarm, operators = self._daemon.info().swarm, above.operators()
        key = note_key(said.fact.name)
        if said.fact.swarm != swarm:
            raise WireError(f"the {said.fact.kind} {said.fact.name!r} is for the swarm {said.fact.swarm!r}")
        if not said.holds(swarm, operators, self._crypto.verify):
            text = f"the {said.fact.kind} {said.fact.name!r} is signed by no operator of this swarm's fleet"
            if said.public in operators or not said.holds(swarm, frozenset([said.public]), self._crypto.verify):
                raise WireError(text)
            held = self._early.pop((key, said.public), said)
            self._early[key, said.public] = max(said, held, key=lambda one: one.order)
            if len(self._early) > EARLY_MAX:
                del self._early[next(iter(self._early))]
            raise WireError(f"{text}; it counts once a root of this fleet names that one")
        stands = above.note(key)
        try:
            is_older = bool(stands) and open_fact(stands).order >= said.order
        except WireError:
            is_older = False
        if not is_older:
            above.set_note(key, statement)

    # --- Bundles ------------------------------------------------------------------------------------------------------

    async def _fetch(self, body: bytes) -> None:
        wanted = read_bundle(body)
        allowed = [one for one in wanted.sources if any(_lies_below(one, place) for place in self._sources)]
        if not allowed:
            raise DaemonError(
                f"no source of the bundle {wanted.release.hex()[:16]} lies below one of federation.bundles: "
                f"{', '.join(wanted.sources)}"
            )
        problem: Exception = DaemonError("nothing was tried")
        for attempt in range(TRIES):
            for source in allowed:
                try:
                    await self._fetch_from(source, wanted.release)
                except (OSError, DaemonError, ProtocolError, ValueError) as error:
                    problem = error
                else:
                    self.fetched += 1
                    return
            await asyncio.sleep(_PAUSE_S * 2**attempt)
        raise DaemonError(f"the bundle {wanted.release.hex()[:16]} cannot be fetched: {problem}")

    async def _fetch_from(self, source: str, digest: bytes) -> None:
        statement = await asyncio.to_thread(_read, source, STATEMENT, STATEMENT_MAX_BYTES)
        envelope = decode_envelope(statement)
        if envelope.kind != "release" or envelope.digest != digest:
            raise DaemonError(f"{source} holds another release")
        release = parse_release(envelope.payload)
        sizes = _sizes(release)
        for blob in blob_digests(release):
            data = await asyncio.to_thread(_read, source, f"blobs/{blob.hex()}", min(sizes[blob], MAX_BLOB_BYTES))
            if sha256(data).digest() != blob:
                raise DaemonError(f"{source}/blobs/{blob.hex()} is damaged")
            await self._store(data, blob.hex())
        self._daemon.command("model_publish", {"envelopes": [statement.hex()]}, by="the region")

    async def _store(self, data: bytes, name: str) -> None:
        answer: object = {}
        for offset in range(0, len(data), _PIECE_BYTES):
            piece = base64.b64encode(data[offset : offset + _PIECE_BYTES]).decode()
            put = {"name": name, "offset": offset, "size": len(data), "data": piece}
            answer = self._daemon.command("model_put", put, by="the region")
            await asyncio.sleep(0)
        while not (isinstance(answer, dict) and answer.get("done")):
            await asyncio.sleep(0.05)
            put = {"name": name, "offset": len(data), "size": len(data), "data": ""}
            answer = self._daemon.command("model_put", put, by="the region")


def _sizes(release: Release) -> dict[bytes, int]:
    blobs = [one.blob for one in release.deltas] + [one.blob for one in release.bundle]
    return {blob.sha256: blob.size for blob in blobs}


def _is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _lies_below(source: str, place: str) -> bool:
    """Whether a source is one of the places from which may be fetched, or below it.

    >>> _lies_below("https://a.example/x/y", "https://a.example/x"), _lies_below("/srv/../etc", "/srv")
    (True, False)
    >>> _lies_below("https://a.example/x/%2e%2E/y", "https://a.example/x")
    False
    """
    if _is_address(source) != _is_address(place):
        return False
    if _is_address(source):
        leads_up = ".." in urllib.parse.unquote(source)  # As the server reads it.
        return not leads_up and (source.rstrip("/") + "/").startswith(place.rstrip("/") + "/")
    return Path(source).resolve().is_relative_to(Path(place).resolve())


def _read(source: str, name: str, most: int) -> bytes:
    """A file of a publication, at most so many bytes; blocks."""
    if not _is_address(source):
        with open_regular(Path(source) / name) as file:
            data = file.read(most + 1)
    else:
        address = f"{source.rstrip('/')}/{name}"
        try:
            with steady.OPENER.open(address, timeout=steady.FETCH_S) as answer:
                data = _body(answer, most, address)
        except urllib.error.URLError as error:
            raise OSError(f"{address}: {error.reason}") from error
        except http.client.HTTPException as error:
            # An address with a blank in it, or a server that speaks something else: no subclass of `OSError`.
            raise OSError(f"{address}: {error or type(error).__name__}") from error
    if len(data) > most:
        raise OSError(f"{source}/{name} is larger than the {most} bytes that it may have")
    return bytes(data)


def _body(answer: http.client.HTTPResponse, most: int, address: str) -> bytes:
    """What comes, up to one byte more than it may have.

    Raises:
        OSError: It comes too slowly.
    """
    data, began_s = bytearray(), time.monotonic()
    while len(data) <= most and (piece := answer.read1(min(_PIECE_BYTES, most + 1 - len(data)))):
        data += piece
        if time.monotonic() - began_s > steady.FETCH_S + len(data) / steady.LEAST_BYTES_S:
            raise OSError(f"{address} comes at less than {steady.LEAST_BYTES_S} bytes a second")
    return bytes(data)
