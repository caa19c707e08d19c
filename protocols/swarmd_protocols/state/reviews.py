"""What operators say of things: every operator's newest verdict and newest note of each, side by side.

Rules this file keeps:

- A view depends on the set of statements that the held batches say, and on who is an operator; on no order. `take` and
  `drop` are exact inverses.
- Only statements count whose signature holds, of this swarm, by keys that the newest root names for the role. A key
  that it names no more takes its statements out of every view; named again, they are back.
- Of one operator at most `OPERATOR_MAX` statements count, those made last. What is dropped is a function of what is
  held, so it is a join like the rest.
- Nobody's statement replaces another's. The label is corrected, and an object called confirmed or rejected, where all
  operators with a verdict say the same; else it is disputed, and keeps the label that the detectors give it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from swarmd_protocols.errors import StateError
from swarmd_protocols.state.crdt.places import ASSET, Place
from swarmd_protocols.state.crdt.reviews import (
    CONFIRM,
    NOTE,
    REJECT,
    RELABEL,
    ROLE,
    WITHDRAW,
    Order,
    Review,
    SignedReview,
    Target,
    Verify,
    open_review,
)
from swarmd_protocols.state.observations import ReviewSubject, ReviewView
from swarmd_protocols.state.quota import VERIFY_UNITS
from swarmd_protocols.trust.envelopes import key_id
from swarmd_protocols.trust.roots import RootChain, role_of

OPERATOR_MAX = 4_096
"""Statements of one operator that count: two (verdict and note) for each of 2,000 things, two days of one person's
work at ten seconds a thing."""

MISSING_MAX = 4_096
"""Statements kept that no batch says any more: as many as count of one operator, 3 MB at the largest."""

_Slot: TypeAlias = tuple[Target, bool]
"""What a newer statement of the same operator replaces: (thing, whether it is a note)."""
_Ranked: TypeAlias = tuple[Order, bytes]
"""(order, statement)."""
_Age: TypeAlias = tuple[int, bytes]
_OLDEST: _Age = (-1, b"")
"""Older than any."""


def _refuse(public: bytes, message: bytes, signature: bytes) -> bool:
    """Without a way to check signatures none holds."""
    del public, message, signature
    return False


class Reviews:
    """All statements that the held batches say.

    Args:
        swarm: Statements of others are about other things.
        groups: `DedupConfig.groups`: an asset is one thing under all labels of a group.
        verify: Checks a signature.
    """

    def __init__(self, swarm: str = "", groups: Mapping[str, str] | None = None, verify: Verify = _refuse) -> None:
        self.swarm = swarm
        self._groups = groups or {}
        self._verify = verify
        self._said: dict[bytes, int] = {}
        """Statement to how many batches say it; only those that hold."""
        self._under: dict[bytes, dict[_Slot, list[_Ranked]]] = {}
        """Operator's key to slot to the statements there, the newest last."""
        self._about: dict[Target, dict[bytes, int]] = {}
        """Thing to the operators that say something of it, and how many statements of theirs do."""
        self._floors: dict[bytes, _Age] = {}
        """Operator's key to the oldest that counts, where it has said more than `OPERATOR_MAX`."""
        self.operators: frozenset[bytes] = frozenset()
        """Public keys that speak for an operator."""
        self.touched: dict[Target, None] = {}
        """Things of which something else is said since the caller last cleared this."""
        self.missing: dict[bytes, None] = {}
        """Statements that held and that no batch says any more (`heirs.py`); of more than `MISSING_MAX` the latest."""
        self.invalid = 0
        """Statements whose signature did not hold, since the start."""

    @property
    def has_any(self) -> bool:
        """Whether any statement is held."""
        return bool(self._said)

    # --- Batches in and out ---------------------------------------------------------------------------------------

    def take(self, said: SignedReview) -> int:
        """A batch says this; returns the units of work (`quota.py`) that it took."""
        count = self._said.get(said.statement, 0)
        if count:
            self._said[said.statement] = count + 1
            return 0
        if said.review.swarm != self.swarm:
            return 0
        if not said.holds(self._verify):
            self.invalid += 1
            return VERIFY_UNITS
        self._said[said.statement] = 1
        self.missing.pop(said.statement, None)
        insort(self._under.setdefault(said.public, {}).setdefault(self._slot(said.review), []), _ranked(said))
        target = self._target(said.review)
        by = self._about.setdefault(target, {})
        by[said.public] = by.get(said.public, 0) + 1
        return VERIFY_UNITS + self._changed(said.public, target)

    def drop(self, said: SignedReview) -> int:
        """A batch that said this no longer matters; returns the units of work that it took."""
        count = self._said.get(said.statement, 0)
        if count > 1:
            self._said[said.statement] = count - 1
        if count != 1:
            return 0
        del self._said[said.statement]
        self.missing[said.statement] = None
        if len(self.missing) > MISSING_MAX:
            del self.missing[next(iter(self.missing))]
        slots, slot, target = self._under[said.public], self._slot(said.review), self._target(said.review)
        ranked = slots[slot]
        del ranked[bisect_left(ranked, _ranked(said))]
        if not ranked:
            del slots[slot]
        if not slots:
            del self._under[said.public]
        by = self._about[target]
        by[said.public] -= 1
        if not by[said.public]:
            del by[said.public]
        if not by:
            del self._about[target]
        return self._changed(said.public, target)

    def know_operators(self, operators: frozenset[bytes]) -> None:
        """Whose statements count, by public key."""
        changed = operators ^ self.operators
        self.operators = operators
        for target, by in self._about.items() if changed else ():
            if not changed.isdisjoint(by):
                self.touched[target] = None

    def _changed(self, public: bytes, target: Target) -> int:
        self.touched[target] = None
        before = self._floors.pop(public, _OLDEST)
        slots = self._under.get(public, {})
        if len(slots) <= OPERATOR_MAX and before == _OLDEST:
            return 0
        if len(slots) > OPERATOR_MAX:
            made = sorted((_age(ranked[-1]) for ranked in slots.values()), reverse=True)
            self._floors[public] = made[OPERATOR_MAX - 1]
        if self._floors.get(public, _OLDEST) != before:
            # What comes in pushes the oldest out, and the other way round: rare, and the operator's own doing.
            self.touched.update((slot[0], None) for slot in slots)
        return len(slots)

    def _target(self, review: Review) -> Target:
        return self.target(review.origin, review.label, review.kind, review.place)

    def _slot(self, review: Review) -> _Slot:
        return (self._target(review), review.is_note)

    # --- Reading --------------------------------------------------------------------------------------------------

    def target(self, origin: bytes, label: str, kind: int, place: Place) -> Target:
        """What a register is known under here; an asset is the same thing whoever sees it."""
        return (b"", self._groups.get(label, label), kind, place) if kind == ASSET else (origin, label, kind, place)

    def newest(self, public: bytes, review: Review) -> SignedReview | None:
        """What stands in the slot of a statement: what the operator said last, of what is held."""
        ranked = self._under.get(public, {}).get(self._slot(review))
        return open_review(ranked[-1][1]) if ranked else None

    def orphans(self) -> list[SignedReview]:
        """Statements that no batch says any more and that would count if one did; the others are forgotten."""
        best: dict[tuple[bytes, _Slot], SignedReview] = {}
        for statement in self.missing:
            said = open_review(statement)
            slot = (said.public, self._slot(said.review))
            if said.public in self.operators and (slot not in best or best[slot].order < said.order):
                best[slot] = said
        found = [said for said in best.values() if self._has_place(said)]
        self.missing = {said.statement: None for said in found}
        return found

    def _has_place(self, said: SignedReview) -> bool:
        newest = self.newest(said.public, said.review)
        return newest.order <= said.order if newest is not None else self.count_of(said.public) < OPERATOR_MAX

    def check(self, said: SignedReview) -> None:
        """Whether a statement that is handed over here counts, so that its operator hears at once where it does not.

        Raises:
            StateError: It does not; says why.
        """
        key = key_id(said.public).hex()[:8]
        if said.review.swarm != self.swarm:
            raise StateError(f"the review is of the swarm {said.review.swarm!r}; this is {self.swarm!r}")
        if said.public not in self.operators:
            raise StateError(
                f"key {key} is no operator's: officers name it in a root (swarmd keys prepare root … --role {ROLE})"
            )
        if not said.holds(self._verify):
            raise StateError(f"the review is not signed by the key {key} that it names")
        newest = self.newest(said.public, said.review)
        if newest is not None and newest.order > said.order:
            raise StateError("the same key has said something newer of this; look again, and say it anew")
        if newest is None and self.count_of(said.public) >= OPERATOR_MAX:
            raise StateError(f"key {key} has said {OPERATOR_MAX} things, as many as count; replace older ones")

    def count_of(self, public: bytes) -> int:
        """How many statements of an operator are held, without those that it has replaced."""
        return len(self._under.get(public, ()))

    def of(self, targets: Iterable[Target]) -> tuple[ReviewView, ...]:
        """What operators say of a thing: the newest verdict and the newest note of each, by key.

        Args:
            targets: The registers that make the thing up.
        """
        best: dict[tuple[bytes, bool], _Ranked] = {}
        for target in targets:
            for public in self._about.get(target, ()):
                if public not in self.operators:
                    continue
                for is_note in (False, True):
                    ranked = self._under[public].get((target, is_note))
                    if not ranked or _age(ranked[-1]) < self._floors.get(public, _OLDEST):
                        continue
                    slot = (public, is_note)
                    best[slot] = max(ranked[-1], best.get(slot, ranked[-1]))
        return tuple(_view(open_review(best[slot][1])) for slot in sorted(best))


def _ranked(said: SignedReview) -> _Ranked:
    return (said.order, said.statement)


def _age(ranked: _Ranked) -> _Age:
    """When a statement was made, with its name, so that no two are of one age."""
    (_, made_ms, digest), _ = ranked
    return (made_ms, digest)


def _view(said: SignedReview) -> ReviewView:
    review, key = said.review, key_id(said.public).hex()[:8]
    return ReviewView(
        review.by or key,
        key,
        review.verdict,
        review.text,
        review.seen,
        review.made_ms,
        review.revision,
        said.digest,
        said.statement,
    )


def compose(subject: ReviewSubject, verdict: str, text: str, made_ms: int, by: str = "") -> Review:
    """The review that an operator is to sign.

    Args:
        subject: What it is about (`ReplicaViews.review_subject`).
        verdict: One of `crdt.reviews.VERDICTS`, or "note".
        text: The right label of a "relabel", the words of a "note"; else "".
        made_ms: Milliseconds since 1970, by the clock of the operator's machine.
        by: The name that the operator goes by.
    """
    return Review(
        subject.swarm,
        subject.origin,
        subject.label,
        subject.kind,
        subject.place,
        verdict,
        text,
        subject.seen,
        subject.basis,
        subject.revision,
        made_ms,
        by,
    )


def operators_of(chain: RootChain) -> frozenset[bytes]:
    """The public keys that the newest root names for the role; each speaks for itself, whatever the threshold."""
    return frozenset(role_of(chain.current, ROLE)[0].values())


def settled(reviews: Iterable[ReviewView]) -> tuple[str, str]:
    """What operators agree on.

    Returns:
        ("", "") where nobody has a verdict; else "confirmed", "relabelled", "rejected" or "disputed", and the label
        that they give the thing, "" where they give none.
    """
    opinions: dict[tuple[bool, str], str] = {}
    for review in reviews:
        if review.verdict == CONFIRM:
            opinions.setdefault((True, review.seen), "confirmed")
        elif review.verdict == RELABEL:
            opinions[True, review.text] = "relabelled"
        elif review.verdict == REJECT:
            opinions[False, ""] = "rejected"
        else:
            assert review.verdict in (WITHDRAW, NOTE), "a verdict of the wire"
    if not opinions:
        return "", ""
    if len(opinions) > 1:
        return "disputed", ""
    [((_, label), word)] = opinions.items()
    return word, label
