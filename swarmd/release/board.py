"""What a board of releases shows: how far each has come, who signed what, who tries, and what each voter said.

`model_board` tells it as rows. `model_prepare` writes a statement about a release (halt, revoke, force) that nobody has
signed: officers sign it on their own machines, so that no key comes near the program that asks. Both are for bridges
in this process, and change nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from swarmd.api.verbs import Verbs, number_argument, text_argument
from swarmd.errors import DaemonError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.policy import at_or_below_floor
from swarmd_protocols.releases.releases import Releases
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.rollout import Standing, due_count, fails_to_halt, ranks
from swarmd_protocols.releases.statements import Force, Halt, Release, Revoke
from swarmd_protocols.releases.versions import Entry, ModelView

if TYPE_CHECKING:
    from swarmd.release.service import ReleaseService

VOTED_MAX = 3
"""Releases of a model, the newest, of which votes are told: the one on trial, the good one before, and one between."""
VOTES_MAX = 1_024
"""Votes told of all models together, the first ranks of each release: three releases of a fleet of 300."""
STATEMENTS_MAX = 16
"""Statements told about one release: those of a few officers; each key may have signed its own."""
ORDERS = {"halt": "halt", "revoke": "model-revoke", "force": "force"}
"""What can be prepared, and the kind of its statement."""


def state_of(protocol: Releases, model: str, digest: bytes) -> str:
    """A release's state in a word or two: `stage 1 of 3`, `promoted`, `halted`, `revoked` or `forked`."""
    mine = protocol.view.models[model]
    release = mine.releases[digest]
    standing = protocol.standing(model, digest, release)
    if digest in mine.revoked:
        return "revoked"
    if digest in mine.halted or standing.halted:
        return "halted"
    if mine.is_forked(release):
        return "forked"
    return "promoted" if standing.promoted else f"stage {standing.stage + 1} of {standing.stages}"


class Board:
    """`model_board` and `model_prepare`.

    Args:
        service: The node's releases.
        names: Gives every member's name.
    """

    def __init__(self, service: "ReleaseService", names: Callable[[], Mapping[NodeId, str]]) -> None:
        self._service = service
        self._names = names

    def register(self, verbs: Verbs) -> None:
        """Fill the registry."""
        verbs.add("model_board", self.board, internal=True)
        verbs.add("model_prepare", self.prepare, internal=True)

    @property
    def _protocol(self) -> Releases:
        return self._service.protocol

    def board(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Releases of all models, the newest of each first, and the votes on the newest."""
        protocol, names = self._protocol, self._names()
        releases: list[Mapping[str, Any]] = []
        votes: list[Mapping[str, Any]] = []
        for model, mine in sorted(protocol.view.models.items()):
            newest = sorted(mine.releases, key=lambda one: (mine.releases[one].order, one), reverse=True)
            about = self._statements(mine, model)
            for place, digest in enumerate(newest):
                releases.append(self._release(model, mine, digest, about.get(digest, ())))
                if place < VOTED_MAX:
                    votes += islice(self._votes(model, digest, names), VOTES_MAX - len(votes))
        return {"releases": releases, "votes": votes}

    def _release(self, model: str, mine: ModelView, digest: bytes, about: Sequence[Entry]) -> Mapping[str, Any]:
        protocol, release = self._protocol, mine.releases[digest]
        standing = protocol.standing(model, digest, release)
        desired = protocol.desired(model)
        entry = protocol.statements.entries.get(digest)
        have, chunks = protocol.fetcher.progress(release.bundle[0].blob.sha256)
        voters = len(protocol.policy.participants(model))
        return {
            "model": model,
            "digest": digest.hex(),
            "version": release.version,
            "epoch": release.epoch,
            "state": state_of(protocol, model, digest),
            "is_desired": desired is not None and desired[0] == digest,
            "stages_percent": list(release.rollout.stages_percent),
            "stage": standing.stage,
            "nodes": voters,
            "cohort": standing.cohort,
            "passes": standing.passes,
            "needed": standing.needed,
            "fails": standing.fails,
            "fails_to_halt": fails_to_halt(due_count(standing.cohort, voters), release.rollout),
            "issued_s": release.issued_at_s,
            "signers": _signers(entry),
            "statements": [_told(one) for one in about[:STATEMENTS_MAX]],
            "chunks": [have, chunks],
        }

    def _statements(self, mine: ModelView, model: str) -> Mapping[bytes, Sequence[Entry]]:
        """What was signed about each release: halts, revocations and forces; and the floor that closed it."""
        found: dict[bytes, list[Entry]] = {}
        floor: Entry | None = None
        for entry in self._protocol.statements.entries.values():
            statement = entry.statement
            if isinstance(statement, Revoke | Force) and statement.model == model:
                found.setdefault(statement.release, []).append(entry)
            elif mine.floor is not None and statement == mine.floor:
                floor = entry
        if floor is not None:
            for digest, release in mine.releases.items():
                if at_or_below_floor(release, mine):
                    found.setdefault(digest, []).append(floor)
        return found

    def _votes(self, model: str, digest: bytes, names: Mapping[NodeId, str]) -> Sequence[Mapping[str, Any]]:
        protocol = self._protocol
        release = protocol.view.models[model].releases[digest]
        standing = protocol.standing(model, digest, release)
        order = ranks(digest, protocol.policy.participants(model))
        return [self._vote(model, digest, node, rank, _turn(standing, rank, len(order)), names)
                for node, rank in islice(order.items(), VOTES_MAX)]  # fmt: skip

    def _vote(
        self, model: str, digest: bytes, node: NodeId, rank: int, turn: str, names: Mapping[NodeId, str]
    ) -> Mapping[str, Any]:
        book = self._protocol.book
        status, vote = book.statuses.get((node, model)), book.votes.get((digest, node))
        is_about_it = status is not None and status.report.release == digest
        said = vote.report if vote is not None else status.report if status is not None and is_about_it else None
        return {
            "model": model,
            "release": digest.hex(),
            "node": node.hex(),
            "name": names.get(node, node.hex()[:8]),
            "rank": rank,
            "turn": turn,
            "runs": status.report.version if status is not None else 0,
            "phase": status.report.phase if status is not None and is_about_it else "",
            "verdict": (said.verdict if said is not None else Verdict.NONE).name,
            "reason": said.reason if said is not None else "",
            "soak_s": said.soak_s if said is not None else 0,
            "samples": said.samples if said is not None else 0,
        }

    # --- what officers are to sign ----------------------------------------------------------------------------------

    def prepare(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """A statement about one release, in words and as the file that officers sign.

        Raises:
            DaemonError: There is no such release here, or the statement would do nothing.
        """
        from swarmd.identity import prepared

        what = text_argument(arguments, "what", most=16)
        model, digest, release, standing = self._named(arguments)
        if what not in ORDERS:
            raise DaemonError(f"no order {what!r}; there are {', '.join(ORDERS)}")
        now_s = int(time.time())
        epoch = self._protocol.chain.current.epoch
        statement: Force | Halt | Revoke
        if what == "force":
            stage = int(number_argument(arguments, "stage"))
            if not standing.stage < stage <= standing.stages:
                most = f"from {standing.stage + 1} to {standing.stages}" if not standing.promoted else "none is shut"
                raise DaemonError(f"stage {stage} (counted from 0) cannot be forced: {most}")
            statement = Force(model, epoch, digest, stage, now_s)
        else:
            reason = " ".join(text_argument(arguments, "reason", most=256).split())
            if not reason:
                raise DaemonError("say why: officers read the reason before they sign, and everybody after it")
            statement = (Halt if what == "halt" else Revoke)(model, epoch, digest, reason, now_s)
        root = self._protocol.chain.statements[-1]
        made = prepared.prepare(ORDERS[what], statement.payload(), root)
        told, wants = prepared.words(made), prepared.requirements(made)[0]
        return {
            "name": f"{what}-{model}-{release.version}-{digest.hex()[:8]}.prepared",
            "text": prepared.encode(made).decode(),
            "kind": made.kind,
            "issued_s": now_s,
            "does": [told.title, *told.effects],
            "warnings": list(told.warnings),
            "role": wants.role,
            "need": wants.need,
            "keys": sorted(key.hex()[:8] for key in wants.keys),
        }

    def _named(self, arguments: Mapping[str, Any]) -> tuple[str, bytes, Release, Standing]:
        model = text_argument(arguments, "model", most=64)
        try:
            digest = bytes.fromhex(text_argument(arguments, "release", most=64))
        except ValueError:
            digest = b""
        release = self._protocol.release(model, digest)
        if release is None:
            raise DaemonError("no such release counts at this node; read the board again")
        return model, digest, release, self._protocol.standing(model, digest, release)


def _turn(standing: Standing, rank: int, nodes: int) -> str:
    if standing.promoted:
        return ""
    if rank < standing.cohort:
        return "canary"
    return "stand-in" if rank < due_count(standing.cohort, nodes) else "later"


def _signers(entry: Entry | None) -> list[str]:
    return [] if entry is None else [key.hex()[:8] for key, _ in entry.envelope.signatures]


def _told(entry: Entry) -> Mapping[str, Any]:
    statement = entry.statement
    return {
        "kind": entry.envelope.kind,
        "stage": statement.stage if isinstance(statement, Force) else None,
        "reason": statement.reason if isinstance(statement, Revoke) else "",
        "issued_s": getattr(statement, "issued_at_s", 0),
        "signers": _signers(entry),
    }
