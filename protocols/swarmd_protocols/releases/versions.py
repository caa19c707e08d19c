"""What a swarm knows about models: one join-semilattice of signed statements, and pure views of it.

The state is a set of statements, each with the signatures that hold; its join is union, followed by a pruning. So it
does not matter in which order, how often or by which way statements arrive.

What *counts* is decided first, by the chain of roots (`trust/roots.py` has the rule), and anew for everything when the
chain grows; only statements that count are in the state, so what gets in the way of another one can only come from
who holds its role. Pruning keeps, by total orders that the statements themselves carry, the best of each kind. Removals
are apart: those about a release in the state all stay, and of the others every key that signs them has room of its own
(`trust/bounds.py`), so that a flood by one key lets nothing in that another key has removed.

`desired` may go down when a revocation, a halt or a fork arrives; the state never does. Rollback protection binds to
the signed floor, not to the highest version seen, so a bad release can be taken back without relabelling the good one.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from hashlib import blake2b

from swarmd_protocols.errors import IdentityError
from swarmd_protocols.releases.statements import (
    DeltaOffer,
    DeltaRef,
    Floor,
    Force,
    Halt,
    Heartbeat,
    Release,
    Revoke,
    Statement,
    Targets,
    parse_statement,
)
from swarmd_protocols.trust.bounds import first_of_each_key
from swarmd_protocols.trust.envelopes import MARK_BYTES, Envelope, merge_signatures
from swarmd_protocols.trust.roots import RootChain

MAX_MODELS = 64
"""Models of which statements are kept; a drone runs one or two."""
MAX_RELEASES = 32
"""Releases kept of one model: the newest, and what the way back may name."""
MAX_REMOVALS = 2_048
"""Removals kept of one key about releases that are not in the state, the lowest digests; beside them all that the
newest root names. At most 3 kB each."""
MAX_GRANTS = 256
"""Offers of deltas, and orders that force, kept of one model: eight for each release."""
VERSION_GAP = 1_024
"""A version may stand at most this far above the floor, so that one signature cannot use the counter up."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One statement, verified and read; the envelope carries signatures that hold and no others."""

    envelope: Envelope
    statement: Statement


State = Mapping[bytes, Entry]
"""Statement digest -> entry, of statements that count. Values of this type are never changed in place."""


def join(one: State, other: State, kept: Set[bytes] = frozenset()) -> dict[bytes, Entry]:
    """The least state that knows all that both know: commutative, associative, idempotent, but for which of two
    signatures by one key stands.

    Args:
        one: A state.
        other: Another one.
        kept: `mark` of statements that the newest root names.
    """
    merged = dict(one)
    for digest, entry in other.items():
        known = merged.get(digest)
        if known is None:
            merged[digest] = entry
        elif known.envelope.signatures != entry.envelope.signatures:
            merged[digest] = Entry(merge_signatures(known.envelope, entry.envelope), entry.statement)
    return prune(merged, kept)


def prune(state: State, named: Set[bytes] = frozenset()) -> dict[bytes, Entry]:
    """Keep the best of each kind, and what the newest root names (by `mark`) of removals."""
    mine: dict[str, list[tuple[bytes, Entry]]] = {}
    for item in state.items():
        mine.setdefault(_model(item[1].statement), []).append(item)
    granted = sorted(model for model, items in mine.items() if any(map(_grants, items)))[:MAX_MODELS]
    kept: dict[bytes, Entry] = {}
    for model in granted:
        kept.update(_best_releases(mine[model]))
        kept.update(_best(mine[model], Floor, 1))
        kept.update(_best(mine[model], DeltaOffer, MAX_GRANTS))
        kept.update(_best(mine[model], Force, MAX_GRANTS))
    kept.update(_removals(state, frozenset(kept), named))
    kept.update(_best(list(state.items()), Heartbeat, 1))
    return dict(sorted(kept.items()))


def _model(statement: Statement) -> str:
    return "" if isinstance(statement, Heartbeat) else statement.model


def _grants(item: tuple[bytes, Entry]) -> bool:
    return isinstance(item[1].statement, Release | Floor | DeltaOffer | Force)


def _removals(state: State, releases: frozenset[bytes], named: Set[bytes]) -> dict[bytes, Entry]:
    """Revocations and halts: for a release in the state one of each signer, so that each stands when others fall.

    What the newest root names stays beside them: holders of keys that were replaced can sign another one, which falls.
    """
    about: dict[tuple[type, bytes, bytes], bytes] = {}
    unknown: dict[bytes, Envelope] = {}
    chosen = set()
    for digest, entry in sorted(state.items()):
        if not isinstance(entry.statement, Revoke):
            continue
        if digest[:MARK_BYTES] in named:
            chosen.add(digest)
        elif entry.statement.release in releases:
            for key, _ in entry.envelope.signatures:
                about[type(entry.statement), entry.statement.release, key] = digest
        else:
            unknown[digest] = entry.envelope
    chosen |= {
        *about.values(),
        *first_of_each_key(unknown, {one: one for one in unknown}, MAX_REMOVALS, None, frozenset()),
    }
    return {digest: state[digest] for digest in sorted(chosen)}


def _order(statement: Statement) -> tuple[int, int]:
    match statement:
        case Release() | Floor():
            return statement.order
        case Heartbeat():
            return statement.epoch, statement.sequence
        case _:
            return statement.epoch, 0


def _best(items: list[tuple[bytes, Entry]], kind: type, count: int) -> dict[bytes, Entry]:
    mine = [item for item in items if type(item[1].statement) is kind]
    return dict(sorted(mine, key=lambda item: (_order(item[1].statement), item[0]), reverse=True)[:count])


def _best_releases(items: list[tuple[bytes, Entry]]) -> dict[bytes, Entry]:
    """The newest, and of one version at most two: two are the whole proof that the publisher equivocated."""
    mine = [item for item in items if isinstance(item[1].statement, Release)]
    kept: list[tuple[bytes, Entry]] = []
    seen: dict[tuple[int, int], int] = {}
    for digest, entry in sorted(mine, key=lambda item: item[0]):
        order = _order(entry.statement)
        seen[order] = seen.get(order, 0) + 1
        if seen[order] <= 2:
            kept.append((digest, entry))
    return dict(sorted(kept, key=lambda item: (_order(item[1].statement), item[0]), reverse=True)[:MAX_RELEASES])


# --- What counts ------------------------------------------------------------------------------------------------------


def counts(entry: Entry, chain: RootChain) -> bool:
    """Whether a statement holds under the chain as it is now."""
    return entry.statement.epoch <= chain.current.epoch and chain.counts(entry.envelope)


def judged(state: State, chain: RootChain) -> dict[bytes, Entry]:
    """What still counts of a state after the chain has grown."""
    return prune({digest: entry for digest, entry in state.items() if counts(entry, chain)}, chain.current.kept)


def admit(envelope: Envelope, chain: RootChain, known: Entry | None = None) -> Entry:
    """Verify a statement from outside, then read it; only what passes is stored and relayed.

    Args:
        envelope: From anywhere.
        chain: Who may say what.
        known: The same statement as it is held here, whose signatures stay.

    Raises:
        IdentityError: It does not count: too few distinct keys of its role have signed, or they were replaced.
        WireError: The signed payload is no statement of its kind.
    """
    verified = chain.admit(envelope, known.envelope if known else None)
    entry = Entry(verified, parse_statement(verified.kind, verified.payload))
    if entry.statement.epoch > chain.current.epoch:
        raise IdentityError(f"{envelope.kind} of epoch {entry.statement.epoch}; the root says {chain.current.epoch}")
    return entry


@dataclass(slots=True)
class ModelView:
    """All that counts about one model."""

    releases: dict[bytes, Release] = field(default_factory=dict)
    floor: Floor | None = None
    revoked: dict[bytes, Revoke] = field(default_factory=dict)
    halted: dict[bytes, Halt] = field(default_factory=dict)
    forced_stage: dict[bytes, int] = field(default_factory=dict)
    deltas: list[DeltaRef] = field(default_factory=list)

    def is_forked(self, release: Release) -> bool:
        """Whether the publisher signed two different releases of this version."""
        return sum(other.order == release.order for other in self.releases.values()) > 1

    def deltas_to(self, target_sha256: bytes) -> list[DeltaRef]:
        """Every signed way to make a blob from another, smallest first."""
        offers = [one for release in self.releases.values() for one in release.deltas] + self.deltas
        mine = {one.blob.sha256: one for one in offers if one.target_sha256 == target_sha256}
        return sorted(mine.values(), key=lambda one: (one.blob.size, one.blob.sha256))

    def files_of(self, release: Release) -> frozenset[bytes]:
        """SHA-256 of all files that may have to come for a release: its bundle's, and the deltas that make them."""
        files = {one.blob.sha256 for one in release.bundle}
        return frozenset(files | {delta.blob.sha256 for one in files for delta in self.deltas_to(one)})


@dataclass(slots=True)
class View:
    """All that counts, by model."""

    models: dict[str, ModelView] = field(default_factory=dict)
    heartbeat: tuple[int, int] = (0, 0)
    """(epoch, sequence)."""
    heartbeat_at_s: int = 0
    """The time that it names."""
    digests: list[bytes] = field(default_factory=list)
    """Of the statements that count, sorted."""
    withheld: tuple[bytes, ...] = ()
    """Marks of releases that the newest heartbeat names and that are not here."""
    issued_at_s: int = 0
    """The latest time that a counting statement names."""


def view_of(state: State, chain: RootChain) -> View:
    """Look at a state under a chain; a pure function of the two."""
    view = View()
    for digest, entry in sorted(state.items()):
        statement = entry.statement
        if not counts(entry, chain):
            continue
        view.digests.append(digest)
        if not isinstance(statement, DeltaOffer):
            view.issued_at_s = max(view.issued_at_s, statement.issued_at_s)
        if isinstance(statement, Heartbeat):
            if (statement.epoch, statement.sequence) > view.heartbeat:
                view.heartbeat, view.heartbeat_at_s = (statement.epoch, statement.sequence), statement.issued_at_s
                view.withheld = statement.newest
        else:
            _place(view.models.setdefault(statement.model, ModelView()), digest, statement)
    here = {digest[:MARK_BYTES] for digest in view.digests}
    view.withheld = tuple(one for one in view.withheld if one not in here)
    return view


def _place(model: ModelView, digest: bytes, statement: Statement) -> None:
    match statement:
        case Release():
            model.releases[digest] = statement
        case Floor():
            model.floor = statement
        case Halt():  # Before Revoke, of which it is a kind.
            model.halted[statement.release] = statement
        case Revoke():
            model.revoked[statement.release] = statement
        case Force():
            known = model.forced_stage.get(statement.release, -1)
            model.forced_stage[statement.release] = max(known, statement.stage)
        case DeltaOffer():
            model.deltas.append(statement.delta)


# --- What to run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What decides whether a release may run here."""

    hardware: str = ""
    arch: str = ""
    runtimes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    free_ram_kib: int = 1 << 40
    free_flash_kib: int = 1 << 40


def misfit(targets: Targets, facts: NodeFacts) -> str | None:
    """Why a release is not for this node, or None when it is.

    >>> misfit(Targets(arch=("aarch64",)), NodeFacts(arch="x86_64"))
    'is for aarch64, this node is x86_64'
    """
    if targets.hardware and facts.hardware not in targets.hardware:
        return f"is for {', '.join(targets.hardware)}, this node is {facts.hardware or 'of unknown hardware'}"
    if targets.arch and facts.arch not in targets.arch:
        return f"is for {', '.join(targets.arch)}, this node is {facts.arch or 'of unknown architecture'}"
    if targets.runtimes and not any(_has_runtime(one, facts) for one in targets.runtimes):
        return f"needs {' or '.join(targets.runtimes)}"
    if targets.free_ram_kib > facts.free_ram_kib:
        return f"needs {targets.free_ram_kib} KiB of free memory, {facts.free_ram_kib} are left"
    if targets.free_flash_kib > facts.free_flash_kib:
        return f"needs {targets.free_flash_kib} KiB of free disk, {facts.free_flash_kib} are left"
    return None


def _has_runtime(wanted: str, facts: NodeFacts) -> bool:
    name, _, least = wanted.partition(">=")
    have = facts.runtimes.get(name)
    if have is None:
        return False
    return have >= tuple(int(part) if part.isdigit() else 0 for part in least.split(".")) if least else True


Check = Callable[[bytes, Release, ModelView], "str | None"]


def below_floor(digest: bytes, release: Release, model: ModelView) -> str | None:
    """Rollback: nothing under the signed floor."""
    return "is below the floor" if model.floor and release.order < model.floor.order else None


def is_revoked(digest: bytes, release: Release, model: ModelView) -> str | None:
    """Taken back by a revoke key."""
    return "is revoked" if digest in model.revoked else None


def is_halted(digest: bytes, release: Release, model: ModelView) -> str | None:
    """Stopped by a revoke key during its rollout."""
    return "is halted" if digest in model.halted else None


def equivocated(digest: bytes, release: Release, model: ModelView) -> str | None:
    """Two releases of one version: both are blocked, and both travel on as the proof."""
    return "is one of two different releases of its version" if model.is_forked(release) else None


def breaks_chain(digest: bytes, release: Release, model: ModelView) -> str | None:
    """Fast-forward: a release follows the one it names by exactly one."""
    previous = model.releases.get(release.previous)
    if previous is None or release.epoch != previous.epoch:
        return None
    return None if release.version == previous.version + 1 else "does not follow the release it names by one"


def beyond_gap(digest: bytes, release: Release, model: ModelView) -> str | None:
    """Fast-forward: no leap that would use the version counter up."""
    floor = model.floor.version if model.floor and model.floor.epoch == release.epoch else 0
    return f"is more than {VERSION_GAP} above the floor" if release.version - floor > VERSION_GAP else None


CHECKS: tuple[Check, ...] = (below_floor, is_revoked, is_halted, equivocated, breaks_chain, beyond_gap)


def refusal(
    digest: bytes, release: Release, model: ModelView, facts: NodeFacts | None, halted: Iterable[bytes] = ()
) -> str | None:
    """Why a release must not run, or None when it may."""
    for check in CHECKS:
        reason = check(digest, release, model)
        if reason is not None:
            return reason
    if digest in halted:
        return "failed on more canaries than it may"
    return misfit(release.targets, facts) if facts is not None else None


def desired(
    view: View, model: str, facts: NodeFacts | None = None, halted: Iterable[bytes] = ()
) -> tuple[bytes, Release] | None:
    """The release that should run: the newest that nothing speaks against. A pure function.

    Args:
        view: All that counts.
        model: Which model.
        facts: This node's, or None to ask for the fleet as a whole.
        halted: Releases that the counted verdicts stopped.

    Returns:
        Digest and release, or None when no release is admissible (run the model built into the image and alarm).
    """
    mine = view.models.get(model)
    if mine is None:
        return None
    stopped = frozenset(halted)
    good = [item for item in mine.releases.items() if refusal(*item, mine, facts, stopped) is None]
    return max(good, key=lambda item: (item[1].order, item[0]), default=None)


def summary_of(view: View, roots: int, reports: Iterable[bytes]) -> bytes:
    """16 bytes that are equal exactly when two nodes know the same."""
    hashing = blake2b(digest_size=16, person=b"swarmd-releases")
    hashing.update(roots.to_bytes(4, "big"))
    for digest in (*view.digests, b"|", *sorted(reports)):
        hashing.update(digest)
    return hashing.digest()


def advance_time_s(known_s: int, elapsed_s: int, issued_at_s: int, by_root: bool = False) -> int:
    """The lower bound of wall time after a signed time: forward only, and never far beyond what can have passed.

    Args:
        known_s: The bound so far, Unix seconds.
        elapsed_s: Monotonic seconds since it was set.
        issued_at_s: What an accepted statement says.
        by_root: The root role may reset the bound.

    >>> advance_time_s(1_000, 0, 10**12), advance_time_s(1_000, 50, 900)
    (1000, 1050)
    """
    passed = known_s + elapsed_s
    if by_root:
        return max(passed, issued_at_s)
    return max(passed, issued_at_s) if issued_at_s <= passed + 400 * 86_400 or known_s == 0 else passed
