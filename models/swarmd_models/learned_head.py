"""A candidate out of what a swarm has learned: the bundle with its head for kinds moved, judged, and its lineage.

It is a bundle like any other, and as little used: a release needs officers' signatures and canaries. A head that names
fewer of the faults held back, or has forgotten drawn ones, is refused and nothing is left behind.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from swarmd_models.bundle import load_bundle
from swarmd_models.draft_folder import drafted, sweep_drafts
from swarmd_models.errors import ArtefactError
from swarmd_models.head_bundle import with_kinds, write_bundle
from swarmd_models.head_rows import HeadNet, Rows, accuracy, drawn_scenes, mean_loss
from swarmd_models.labelling.scenes import scene_of
from swarmd_models.labelling.training_set import TrainingSet

FORGOTTEN = 0.03
"""Fewer of the drawn faults named right, as a share, from which a head has forgotten: more than two standard errors of
the some 600 that are drawn."""
DRAWN_SCENES, DRAWN_SEED = 14, 14
"""Other drawn frames than those that devices learned beside."""
_UNIT = 1 << 24
_TABLE = "provenance.learning"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a head is from."""

    model: str
    """Digest of the bundle that it was learned from, hexadecimal."""
    session: str
    round: int
    rounds: int
    authors: tuple[str, ...]
    """Names of those whose deltas count."""
    liars: tuple[str, ...]
    """Names of those that said two things; nothing of them counts."""
    rows: int
    """That the authors say to have learned from."""
    epsilon: float | None
    """Of the noise; None without any."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A head on rows."""

    right: float
    """Share of the faults held back that it names right; 0 where there are none."""
    loss: float
    drawn_right: float
    """Likewise of drawn faults, as the model knew them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was written."""

    path: Path
    changed: int
    """Weights that have another INT8 value than before."""
    held: int
    """Faults held back that judged."""
    before: Judged
    after: Judged

    def row(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "path": str(self.path)}


def make_candidate(
    model: str, moved: Sequence[int], out: Path, version: str, lineage: Lineage, sets: Sequence[TrainingSet]
) -> Candidate:
    """Write the candidate.

    Args:
        model: The bundle that was learned from: a TOML, or such as "zoo:small-320".
        moved: By how much each weight of its head for kinds moves, in 2^-24.
        out: A new folder.
        version: What the new bundle calls itself.
        lineage: Goes into its `[provenance.learning]`.
        sets: Their held-back pictures judge; without any, only drawn ones do.

    Raises:
        ModelError: It cannot be made, or is no better; nothing is left behind.
    """
    bundle = load_bundle(model)
    if bundle.digest != lineage.model:
        raise ArtefactError(f"{model} is not the bundle that was learned from ({lineage.model[:16]}); name that one")
    if out.exists():
        raise ArtefactError(f"{out} is there already; name a new folder")
    if not version.isprintable():
        raise ArtefactError(f"{version!r} is no version that can be written down")
    net = HeadNet(bundle)
    if len(moved) != net.head.size:
        raise ArtefactError(f"{len(moved)} weights for a head of {net.head.size}")
    head = net.head + np.array(moved, np.float64).reshape(net.head.shape) / _UNIT
    data, changed = with_kinds(Path(bundle.model_path).read_bytes(), len(bundle.labels), head)
    if not changed:
        raise ArtefactError("no weight has moved: of fewer than three members with labels nothing is merged")
    held = net.rows(
        scene_of(bundle, one, picture).scene
        for one in sets
        for picture in one.pictures
        if picture.is_held and picture.boxes
    )
    drawn = net.rows(drawn_scenes(bundle, DRAWN_SEED, DRAWN_SCENES))
    sweep_drafts(out.parent)
    try:
        with drafted(out) as draft:
            path = write_bundle(bundle, draft, data, version)
            _write_lineage(path, lineage, sets)
            new = HeadNet(load_bundle(path)).head  # As it was quantised.
            before, after = _judged(net.head, held, drawn), _judged(new, held, drawn)
            _refuse_worse(before, after, bool(len(held.labels)))
            draft.chmod(0o755)
    except OSError as error:
        raise ArtefactError(f"{out} cannot be written: {error.strerror or error}") from error
    made = Candidate(path, changed, len(held.labels), before, after)
    return replace(made, path=out / path.name)


def _judged(head: Any, held: Rows, drawn: Rows) -> Judged:
    known = round(accuracy(head, drawn), 5)
    if not len(held.labels):
        return Judged(0.0, 0.0, known)
    return Judged(round(accuracy(head, held), 5), round(mean_loss(head, held), 5), known)


def _refuse_worse(before: Judged, after: Judged, is_judged: bool) -> None:
    """Raise `ArtefactError` unless it is better where it was judged, and knows what it knew."""
    if is_judged and not (after.loss < before.loss and after.right >= before.right):  # Nor what is no number.
        raise ArtefactError(
            f"no better on what was held back: {before.right:.3f} -> {after.right:.3f} right, loss {before.loss:.4f} "
            f"-> {after.loss:.4f}; label more, or on more devices"
        )
    if after.drawn_right < before.drawn_right - FORGOTTEN:
        raise ArtefactError(
            f"it has forgotten: {before.drawn_right:.3f} -> {after.drawn_right:.3f} of drawn faults named right; a "
            "later round, or labels of more devices, may do better"
        )


def _write_lineage(path: Path, lineage: Lineage, sets: Sequence[TrainingSet]) -> None:
    """Say it in the bundle's provenance; an earlier lineage is that of the model which it names (`from`)."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^\[provenance\.(?:learning|labels)\]\n(?:(?!\[).*\n?)*", "", text, flags=re.MULTILINE)

    def names(of: Sequence[str]) -> str:
        """Names come from members: what no file can hold stands as a question mark."""
        return json.dumps(["".join(c if c.isprintable() else "?" for c in one) for one in of], ensure_ascii=False)

    lines = [
        f"[{_TABLE}]",
        f"from = {json.dumps(lineage.model)}",
        f"session = {json.dumps(lineage.session)}",
        f"round = {lineage.round}",
        f"rounds = {lineage.rounds}",
        f"authors = {names(lineage.authors)}",
        f"liars = {names(lineage.liars)}",
        f"rows = {lineage.rows}",
        f"judged_by = {json.dumps([one.digest for one in sets])}",
    ]
    if lineage.epsilon is not None:
        lines.append(f"epsilon = {lineage.epsilon!r}")
    path.write_text(text.rstrip("\n") + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
