"""Control verbs about models: what `swarmd model …` asks a running daemon."""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from swarmd.api.verbs import Verbs, number_argument, text_argument
from swarmd.errors import DaemonError
from swarmd.release.board import Board, state_of
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.releases import Releases
from swarmd_protocols.releases.statements import MAX_BLOB_BYTES, Blob

if TYPE_CHECKING:
    from swarmd.release.service import ReleaseService

PIECE_BYTES = 32_768
MAX_UPLOADS = 32
MAX_UPLOADS_BYTES = 2 * MAX_BLOB_BYTES
"""Of all that is being put."""


@dataclass(slots=True)
class _Upload:
    """A blob that is being put."""

    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    task: "asyncio.Task[Blob] | None" = None
    """Writes it, once it is all here."""


class ModelVerbs:
    """`model_status`, `model_put`, `model_publish`; and what the board of releases asks inside.

    Args:
        service: The node's releases.
        names: Gives every member's name, for tables.
    """

    def __init__(self, service: "ReleaseService", names: Callable[[], Mapping[NodeId, str]]) -> None:
        self._service = service
        self._names = names
        self._uploads: dict[str, _Upload] = {}

    def register(self, verbs: Verbs) -> None:
        """Fill the registry."""
        verbs.add("model_status", self.status)
        verbs.add("model_put", self.put)
        verbs.add("model_publish", self.publish, changes=True)
        Board(self._service, self._names).register(verbs)

    @property
    def _protocol(self) -> Releases:
        return self._service.protocol

    def status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Who runs what, how far each release has come, and how many nodes drift from what is desired."""
        protocol = self._protocol
        now_ns = time.monotonic_ns()
        names = self._names()
        models = {}
        for model in sorted({*protocol.view.models, *protocol.local}):
            models[model] = self._model(model, names)
        return {
            "models": models,
            "root_version": protocol.chain.current.version,
            "epoch": protocol.chain.current.epoch,
            "heartbeat": list(protocol.view.heartbeat),
            "stale": protocol.is_stale(now_ns),
            "time_low_s": protocol.time_low_s(now_ns),
            "traffic": self._traffic(),
            "store_bytes": self._service.store.used_bytes,
            "store_full": self._service.store.full,
            "plaintext_in": self._service.memory.kind,
            "key_at_rest": self._service.key.source if self._service.config.encrypt else "none",
            "audit_anchor": self._service.audit.last,
        }

    def _traffic(self) -> Mapping[str, int]:
        """Bytes of chunks given, taken and taken in vain, and peers that were blamed, since the start."""
        accounts = [one for swarm in self._protocol.fetcher.swarms for one in swarm.accounts.values()]
        return {
            "sent": sum(one.sent for one in accounts),
            "received": sum(one.received for one in accounts),
            "wasted": sum(one.wasted for one in accounts),
            "blamed": sum(self._protocol.fetcher.blamed.values()),
            **{f"cast_{what}": count for what, count in self._protocol.fetcher.casts.counts.items()},
        }

    def _model(self, model: str, names: Mapping[NodeId, str]) -> Mapping[str, Any]:
        protocol = self._protocol
        mine = protocol.view.models.get(model)
        desired = protocol.desired(model)
        nodes = {}
        for (node, about), signed in sorted(protocol.book.statuses.items()):
            if about == model:
                report = signed.report
                nodes[names.get(node, node.hex()[:8])] = {
                    "node": node.hex(),
                    "version": report.version,
                    "epoch": report.epoch,
                    "phase": report.phase,
                    "verdict": report.verdict.name,
                    "reason": report.reason,
                }
        wanted = desired[1].version if desired else 0
        drift = {name: row["version"] for name, row in nodes.items() if row["version"] != wanted}
        return {
            "desired": {"version": wanted, "digest": desired[0].hex()} if desired else None,
            "floor": mine.floor.version if mine and mine.floor else 0,
            "nodes": nodes,
            "drift": len(drift),
            "drifting": drift,
            "releases": [self._release(model, digest) for digest in (mine.releases if mine else {})],
        }

    def _release(self, model: str, digest: bytes) -> Mapping[str, Any]:
        protocol = self._protocol
        mine = protocol.view.models[model]
        release = mine.releases[digest]
        standing = protocol.standing(model, digest, release)
        have, chunks = protocol.fetcher.progress(release.bundle[0].blob.sha256)
        return {
            "digest": digest.hex(),
            "version": release.version,
            "epoch": release.epoch,
            "state": state_of(protocol, model, digest),
            "passes": standing.passes,
            "needed": standing.needed,
            "fails": standing.fails,
            "deltas": [{"codec": one.codec, "bytes": one.blob.size, "of": one.out_bytes} for one in release.deltas],
            "chunks": [have, chunks],
        }

    def put(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take a piece of a blob; after the last the blob is written, and asked again without a piece this says so.

        Answers `{"done": false}` for each piece, `{"done": false, "storing": true}` while the blob is written, and
        `{"done": true, "sha256": …}` once it is durable.
        """
        name = text_argument(arguments, "name", most=64)
        offset, size = int(number_argument(arguments, "offset")), int(number_argument(arguments, "size"))
        text = text_argument(arguments, "data", most=2 * PIECE_BYTES)
        upload = self._uploads.get(name)
        if upload is not None and upload.task is not None and (offset or not text):
            return self._stored(name, upload.task)
        if not 0 < size <= MAX_BLOB_BYTES:
            raise DaemonError(f"a blob has 1 to {MAX_BLOB_BYTES} bytes")
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise DaemonError("argument 'data' is no base64") from None
        if upload is not None and upload.task is not None and not upload.task.done():
            raise DaemonError("this very blob is being written; try again in a moment")
        if not offset or upload is None:  # Who begins anew was interrupted.
            upload = _Upload()
        self._uploads.pop(name, None)
        self._make_room(upload.size + len(data))
        self._uploads[name] = upload
        if offset != upload.size or offset + len(data) > size:
            del self._uploads[name]
            raise DaemonError(f"piece at {offset} does not follow the {upload.size} bytes put so far; start again")
        upload.pieces.append(data)
        upload.size += len(data)
        if upload.size < size:
            return {"done": False}
        chunk = int(number_argument(arguments, "chunk", 0)) or None
        upload.task = asyncio.get_running_loop().create_task(self._service.put_blob(upload.pieces, chunk))
        return {"done": False, "storing": True}

    def _make_room(self, more: int) -> None:
        """Whoever has sent nothing for longest gives way: a publisher that was interrupted says so to nobody."""
        held = sum(one.size for one in self._uploads.values()) + more
        for name, upload in list(self._uploads.items()):
            if len(self._uploads) < MAX_UPLOADS and held <= MAX_UPLOADS_BYTES:
                return
            if upload.task is None or upload.task.done():
                held -= upload.size
                del self._uploads[name]
        if len(self._uploads) >= MAX_UPLOADS or held > MAX_UPLOADS_BYTES:
            raise DaemonError("too many blobs are being written at once; try again in a moment")

    def _stored(self, name: str, task: "asyncio.Task[Blob]") -> Mapping[str, Any]:
        if not task.done():
            return {"done": False, "storing": True}
        del self._uploads[name]
        error = task.exception()
        if error is not None:
            raise DaemonError(str(error))
        return {"sha256": task.result().sha256.hex(), "done": True}

    def publish(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give signed statements to the swarm."""
        envelopes, roots = _hex_list(arguments, "envelopes"), _hex_list(arguments, "roots")
        self._service.publish(envelopes, roots)
        return {"published": len(envelopes) + len(roots)}


def _hex_list(arguments: Mapping[str, Any], name: str) -> tuple[bytes, ...]:
    texts = arguments.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise DaemonError(f"argument {name!r} must be a list of hex texts")
    try:
        return tuple(bytes.fromhex(one) for one in texts)
    except ValueError:
        raise DaemonError(f"argument {name!r} holds what is no hex text") from None
