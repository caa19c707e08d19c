"""What this node itself has seen, and how much of it is worth saying.

Rules this file keeps:

- One register for each thing: a track that comes back to a place where this node saw the same thing before continues
  that register, so passes and reboots do not grow the state. Registers only ever gain: first seen goes down, last
  seen, score and precision go up.
- What the swarm already knows is not said again. When another node's object passes the gate beyond doubt, this node
  adds itself as an observer (a `Join`, a few bytes) and keeps its own row to itself, unless its position would take
  at least `gain_milli` off the object's variance.
- A register that leans on another node's row (it only joined) is said itself as soon as that row is gone or no longer
  describes it: who takes its word back, or is shut out, takes nobody else's sighting with it.
- Tracks of one frame that are at least `beside_min_cm` apart are different things, whatever later positions say.
"""

from collections.abc import Callable, Iterable, Sequence

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import stamp_of
from swarmd_protocols.state.crdt.facts import (
    ASSET,
    BESIDE_MAX,
    LATTICE,
    TRACK,
    Join,
    Place,
    Sighting,
    SightingKey,
)
from swarmd_protocols.state.dedup.checked import check
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry, position_in
from swarmd_protocols.state.dedup.gate import distance_milli, fuse
from swarmd_protocols.state.dedup.leaning import Leaning, Register
from swarmd_protocols.state.dedup.looks import look_of, order_milli
from swarmd_protocols.state.dedup.room import LeftOut
from swarmd_protocols.state.dedup.tiers import gives_way, merged, said_after
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import LocalDetection

_TRACKS_MAX = 4_096
"""Tracks of the own eye that are still open; the one seen longest ago is closed first."""


class OwnSightings:
    """This node's registers and the tracks that feed them."""

    def __init__(self, node: NodeId, config: DedupConfig, view: DedupView) -> None:
        """Empty; `restore` brings back what the journal or a peer had."""
        self._node = node
        self._config = config
        self._view = view
        self.registers: dict[SightingKey, Register] = {}
        self._tracks: dict[int, SightingKey] = {}
        self._places: dict[tuple[str, int, int], list[SightingKey]] = {}
        self.leaning = Leaning(view)
        self._over: dict[SightingKey, None] = {}
        """Registers that lean on a row which has gone, and whose thing nobody has seen for so long that nothing is said
        of it any more."""
        self.left_out = LeftOut(config)
        self.fed: list[tuple[Register, LocalDetection]] = []
        """Which detection fed which register since somebody took the list; a detection of each event at most."""

    def restore(self, row: Sighting) -> None:
        """A row of an earlier life of this node; what is known already wins field by field."""
        old = self.registers.get(row.key)
        if old is not None:
            row = merged(old.row, row, self._config)
            self.forget(row.key)
        register = self._add(Register(row, said=row, born_here=False))
        register.beside = dict.fromkeys(row.beside)
        if old is not None and old.track is not None:
            register.track, register.frame_ns = old.track, old.frame_ns
            self._tracks[old.track] = row.key

    def restamp(self, step_ms: int) -> list[Sighting | Join]:
        """The clock was set: correct what this life has stamped; returns what must be said again."""
        again: list[Sighting | Join] = []
        step = stamp_of(step_ms) if step_ms >= 0 else -stamp_of(-step_ms)
        for register in [register for register in self.registers.values() if register.frame_ns]:
            row = register.row
            first = max(0, row.first + step) if register.born_here else row.first
            register.row = row = row._replace(first=first, last=max(first, row.last + step))
            if register.said is not None:
                register.said = row
                again.append(row)
            elif register.joined is not None:
                register.joined = register.joined._replace(first=row.first, last=row.last)
                again.append(register.joined)
        return again

    def renew(self, keys: Iterable[SightingKey], stamp: int) -> list[Sighting]:
        """Set when these were last seen, where this life has not seen them; returns the rows to be said again."""
        again = []
        for key in keys:
            register = self.registers.get(key)
            if register is not None and register.said is not None and not register.frame_ns:
                register.said = register.row = register.row._replace(last=max(register.row.last, stamp))
                again.append(register.row)
        return again

    def forget(self, key: SightingKey) -> None:
        """The thing is no longer shown: stop carrying it."""
        register = self.registers.pop(key, None)
        if register is None:
            return
        self.leaning.lean(register, None)
        self.leaning.unsettled.pop(key, None)
        if register.track is not None:
            self._tracks.pop(register.track, None)
        if not isinstance(register.row.place, str) and key[1] == LATTICE:
            cell = self._bucket(register.row)
            self._places[cell].remove(key)
            if not self._places[cell]:
                del self._places[cell]

    def key_of(self, track_id: int) -> SightingKey | None:
        """The register that a track feeds."""
        return self._tracks.get(track_id)

    def observe(
        self, detections: Sequence[LocalDetection], incarnation: int, stamp_at: Callable[[int], int]
    ) -> list[SightingKey]:
        """Take one frame's detections in.

        Args:
            detections: Of one frame (or events of several, in order).
            incarnation: This life of the node; track numbers start anew in each.
            stamp_at: Swarm time of a moment on this node's monotonic clock, logical part 0.

        Returns:
            Keys of the registers that changed, in order.

        Raises:
            StateError: A value is out of range; nothing was taken in. (What is one too many is in `left_out`.)
        """
        for detection in detections:
            check(detection)
        changed: dict[SightingKey, None] = {}
        for detection in detections:
            stamp = stamp_at(detection.captured_ns)
            key = self._tracks.get(detection.track_id)
            if key is None or key not in self.registers:
                gone = detection.kind == "end" or gives_way(detection, len(self.registers), self._config)
                key = None if gone else self._bind(detection, incarnation, stamp)
                if key is None:
                    continue
            register = self.registers[key]
            self._improve(register, detection, stamp)
            self.fed.append((register, detection))
            changed[key] = None
            if detection.kind == "end":
                register.track = None
                self._tracks.pop(detection.track_id, None)
        return list(changed | dict.fromkeys(self._note_neighbours(detections)))

    def to_say(self, keys: Sequence[SightingKey], ending: frozenset[SightingKey]) -> tuple[list[Sighting], list[Join]]:
        """Which of the changed registers are worth publishing, and how; marks them as published.

        Args:
            keys: Changed registers.
            ending: Those whose track has just ended: the last word, said when it says more than the one before.
        """
        rows: list[Sighting] = []
        joins: list[Join] = []
        for key in keys:
            register = self.registers.get(key)
            if register is None:
                continue
            if register.said is not None:
                if self._worth_saying(register.said, register.row, key in ending):
                    register.said = register.row
                    rows.append(register.row)
                continue
            target = self._known_as(register)
            if target is None:
                register.said = register.row
                self.leaning.lean(register, None)
                rows.append(register.row)
            elif register.joined is None or self._join_is_old(register.joined, register.row, target):
                self.leaning.lean(register, Join(target.origin, target.key, register.row.first, register.row.last))
                assert register.joined is not None
                joins.append(register.joined)
        return rows, joins

    def take_orphans(self, is_over: Callable[[Sighting], bool]) -> list[SightingKey]:
        """Registers that can no longer lean on the row they joined; they have to be said in another way.

        Args:
            is_over: Whether a row was seen so long ago that it is shown no more: it is not said then, but let go of.
        """
        orphans: list[SightingKey] = []
        for key in self.leaning.unsettled:
            register = self.registers[key]
            joined = register.joined
            if joined is None or register.said is not None:
                continue
            entry = self._view.get(joined.origin, joined.key)
            if (
                entry is None
                or entry.is_unsure
                or (register.row.kind != ASSET and self._distance(register.row, entry.row) < 0)
            ):
                if is_over(register.row):
                    self._over[key] = None
                    continue
                self.leaning.lean(register, None)
                orphans.append(key)
        self.leaning.unsettled.clear()
        return orphans

    def forget_over(self, is_over: Callable[[Sighting], bool]) -> None:
        """Let go of what nothing is said of any more; what has its time again after all is looked at again."""
        for key in self._over:
            register = self.registers.get(key)
            if register is None or register.joined is None or register.said is not None:
                continue
            if is_over(register.row):
                self.forget(key)
            else:
                self.leaning.unsettled[key] = None
        self._over.clear()

    def part(self, origin: NodeId, key: SightingKey) -> None:
        """A thing that this node has joined is no longer shown: stop carrying it."""
        for leaning in self.leaning.on(origin, key):
            self.forget(leaning)
        self.leaning.parted[origin, key] = True

    # --- Binding tracks to registers --------------------------------------------------------------------------------

    def _bind(self, detection: LocalDetection, incarnation: int, stamp: int) -> SightingKey | None:
        row = self._fresh(detection, incarnation, stamp)
        register = self.registers.get(row.key) if row.kind == ASSET else self._returning(row, detection)
        if register is not None:
            register.row = register.row._replace(reports=register.row.reports + 1)
        elif self.left_out.fits(detection, len(self.registers)):
            register = self._add(Register(self._placed(row)))
        else:
            return None
        if len(self._tracks) >= _TRACKS_MAX:
            del self._tracks[next(iter(self._tracks))]
        register.track = detection.track_id
        self._tracks[detection.track_id] = register.row.key
        return register.row.key

    def _fresh(self, detection: LocalDetection, incarnation: int, stamp: int) -> Sighting:
        placed = detection.east_cm is not None and detection.north_cm is not None
        kind, place = TRACK, (incarnation, detection.track_id)
        name: Place = place
        if detection.asset and not detection.moving:
            kind, name = ASSET, detection.asset
        elif placed and not detection.moving:
            pitch = self._config.lattice_cm
            kind, name = LATTICE, ((detection.east_cm or 0) // pitch, (detection.north_cm or 0) // pitch)
        return Sighting(
            detection.label,
            kind,
            name,
            detection.moving,
            placed,
            detection.east_cm or 0,
            detection.north_cm or 0,
            detection.covariance_cm2 or (0, 0, 0),
            detection.score_milli,
            stamp,
            stamp,
            1,
            detection.model_digest[:8],
            (),
            detection.thumb,
            detection.features,
            detection.need_milli if detection.need_milli > detection.score_milli else 0,
            detection.alike_milli if detection.need_milli > detection.score_milli else (0, 0),
        )

    def _returning(self, row: Sighting, detection: LocalDetection) -> Register | None:
        """The register of a thing seen before at this place, if no track of this frame feeds it."""
        if row.kind != LATTICE:
            return None
        best: tuple[int, SightingKey] | None = None
        for key in self._near(self._group(row.label), row):
            register = self.registers[key]
            if register.track is not None and register.frame_ns == detection.captured_ns:
                continue
            distance = self._distance(row, register.row)
            if distance >= 0 and (best is None or (distance, key) < best):
                best = (distance, key)
        return None if best is None else self.registers[best[1]]

    def _placed(self, row: Sighting) -> Sighting:
        """A row under a lattice point that no other thing of this node has taken."""
        if row.kind != LATTICE or row.key not in self.registers:
            return row
        assert not isinstance(row.place, str)
        x, y = row.place
        step = 1
        while (row.label, LATTICE, (x + step, y)) in self.registers:
            step += 1
        return row._replace(place=(x + step, y))

    def _add(self, register: Register) -> Register:
        row = register.row
        self.registers[row.key] = register
        if row.kind == LATTICE:
            self._places.setdefault(self._bucket(row), []).append(row.key)
        return register

    # --- Improving a register ----------------------------------------------------------------------------------------

    def _improve(self, register: Register, detection: LocalDetection, stamp: int) -> None:
        row = register.row
        positioned, east, north, covariance = row.positioned, row.east_cm, row.north_cm, row.covariance_cm2
        if detection.east_cm is not None and detection.north_cm is not None and detection.covariance_cm2 is not None:
            better = detection.covariance_cm2[0] + detection.covariance_cm2[2] < covariance[0] + covariance[2]
            if not positioned or better or row.moving:
                positioned, east, north = True, detection.east_cm, detection.north_cm
                covariance = detection.covariance_cm2
        # Features are of one look by one model: both change together, or neither.
        said = said_after(row, detection, self._config)
        model, features = row.model, row.features
        if detection.features and (said.is_surer or not features):
            model, features = detection.model_digest[:8], detection.features
        elif said.is_surer:
            model, features = detection.model_digest[:8], features if model == detection.model_digest[:8] else b""
        improved = row._replace(
            positioned=positioned,
            east_cm=east,
            north_cm=north,
            covariance_cm2=covariance,
            score_milli=said.score_milli,
            first=min(row.first, stamp),
            # Nothing was seen later than now: an earlier life may have had a wrong clock.
            last=max(row.last if register.frame_ns else 0, stamp),
            model=model,
            thumb=detection.thumb or row.thumb,
            features=features,
            need_milli=said.need_milli,
            alike=said.alike,
        )
        if row.kind == LATTICE and self._bucket(row) != self._bucket(improved):
            self._places[self._bucket(row)].remove(row.key)
            if not self._places[self._bucket(row)]:
                del self._places[self._bucket(row)]
            self._places.setdefault(self._bucket(improved), []).append(row.key)
        register.row, register.frame_ns = improved, detection.captured_ns

    def _note_neighbours(self, detections: Sequence[LocalDetection]) -> list[SightingKey]:
        """Pairs of one frame that are apart for good; returns the registers that learned of a neighbour."""
        seen = []
        for detection in detections:
            key = self.key_of(detection.track_id)
            if key is not None and key[1] == LATTICE and key in self.registers:
                seen.append((detection.captured_ns, self.registers[key]))
        learned = []
        low, high = self._config.beside_min_cm**2, self._config.radius_cm**2
        for index, (frame_ns, register) in enumerate(seen):
            for other_ns, other in seen[:index]:
                a, b = register.row, other.row
                if other_ns != frame_ns or a.key == b.key or self._group(a.label) != self._group(b.label):
                    continue
                square = (a.east_cm - b.east_cm) ** 2 + (a.north_cm - b.north_cm) ** 2
                if not low <= square <= high or isinstance(a.place, str) or isinstance(b.place, str):
                    continue
                offset = (b.place[0] - a.place[0], b.place[1] - a.place[1])
                # One of the two says it; whoever reads either knows.
                if offset not in register.beside and (-offset[0], -offset[1]) not in other.beside:
                    if len(register.beside) >= BESIDE_MAX:
                        continue
                    register.beside[offset] = None
                    register.row = a._replace(beside=tuple(sorted(register.beside)))
                    learned.append(a.key)
        return learned

    # --- What is worth saying ---------------------------------------------------------------------------------------

    def _worth_saying(self, said: Sighting, row: Sighting, ending: bool) -> bool:
        config = self._config
        if row.beside != said.beside or row.positioned != said.positioned or (said.need_milli and not row.need_milli):
            return True
        if (row.thumb and not said.thumb) or (row.features and not said.features):
            return True
        if row.moving and (row.east_cm, row.north_cm) != (said.east_cm, said.north_cm):
            return ((row.last - said.last) >> 16) >= config.refresh_ms // 10 or ending
        before, after = _trace(said), _trace(row)
        if before * (1000 - config.gain_milli) >= after * 1000 and before != after:
            return True
        if max(row.score_milli - said.score_milli, said.need_milli - row.need_milli) >= config.score_step_milli:
            return True
        refresh_ms = config.candidate_refresh_ms if row.need_milli else config.refresh_ms
        if row.last < said.last or ((row.last - said.last) >> 16) >= refresh_ms:
            return True  # Earlier than said: that was by a clock which ran ahead.
        is_other = row.thumb != said.thumb or row.features != said.features
        return ending and (after < before or row.score_milli > said.score_milli or is_other)

    def _known_as(self, register: Register) -> Entry | None:
        """The object of others that this register certainly is and to which its position adds little."""
        row = register.row
        if row.kind == TRACK or register.beside or row.need_milli:
            # What stands beside another thing must be told from it by everybody: its position counts. And a join says
            # that its author is sure.
            return None
        if row.kind == ASSET:
            assert isinstance(row.place, str)
            leader = self._view.leader_of_asset(self._group(row.label), row.place)
        else:
            look = look_of(row.model, row.features)
            near = self._view.candidates(self._group(row.label), row.east_cm, row.north_cm, row.covariance_cm2, look)
            leader = near[0] if len(near) == 1 else None
        if leader is None or leader.members is None or leader.origin == self._node:
            return None
        if leader.is_unsure:
            return None  # To be sure of what others are not is news.
        if row.score_milli >= max(member.row.score_milli for member in leader.members) + self._config.score_step_milli:
            return None
        if not row.positioned:
            return leader
        _, _, covariance = fused(leader.members, self._config)
        known, own = covariance[0] + covariance[2], _trace(row)
        if known * 1000 >= self._config.gain_milli * (known + own):
            return None
        return leader

    def _join_is_old(self, joined: Join, row: Sighting, target: Entry) -> bool:
        is_other = (joined.origin, joined.key) != (target.origin, target.key)
        return is_other or ((row.last - joined.last) >> 16) >= self._config.refresh_ms

    # --- Geometry --------------------------------------------------------------------------------------------------

    def _group(self, label: str) -> str:
        return self._config.groups.get(label, label)

    def _bucket(self, row: Sighting) -> tuple[str, int, int]:
        size = self._config.radius_cm
        return (self._group(row.label), row.east_cm // size, row.north_cm // size)

    def _near(self, group: str, row: Sighting) -> list[SightingKey]:
        _, column, line = self._bucket(row)
        return [
            key
            for i in (column - 1, column, column + 1)
            for j in (line - 1, line, line + 1)
            for key in self._places.get((group, i, j), ())
        ]

    def _distance(self, a: Sighting, b: Sighting) -> int:
        config = self._config
        dx, dy = a.east_cm - b.east_cm, a.north_cm - b.north_cm
        square = dx * dx + dy * dy
        if square > config.radius_cm**2:
            return -1
        if not config.use_covariance:
            return square
        distance = distance_milli(dx, dy, a.covariance_cm2, b.covariance_cm2, config.floor_cm)
        if distance > config.gate_milli:
            return -1
        look, other = look_of(a.model, a.features), look_of(b.model, b.features)
        return order_milli(distance, a.covariance_cm2, b.covariance_cm2, look, other, config)


def fused(members: Sequence[Entry], config: DedupConfig) -> tuple[int, int, tuple[int, int, int]]:
    """The position of an object: the best report of each observer, weighted by information.

    Several reports of one observer share its error, so only the most precise counts.
    """
    best: dict[NodeId, tuple[int, int, tuple[int, int, int, int, int]]] = {}
    for member in members:
        if member.positioned and not member.is_verdict:
            position = position_in(member.packed)
            order = (position[2] + position[4], member.rank, position)
            old = best.get(member.origin)
            if old is None or order[:2] < old[:2]:
                best[member.origin] = order
    reports = [(at[0], at[1], at[2:]) for _, _, at in best.values()]
    return fuse(reports, config.floor_cm) if reports else (0, 0, (0, 0, 0))


def _trace(row: Sighting) -> int:
    return row.covariance_cm2[0] + row.covariance_cm2[2]
