"""Who works on which cell, decided by everybody alone.

Rules this file keeps:

- A claim is a lease on local monotonic timers. The holder stops `lease (1 - margin)` after its own renewal, others free
  the cell `lease (1 + margin)` after they *first learned* of that renewal; with clocks that drift less than the margin
  nobody else starts while the holder still works. No wall clock is read.
- Of several live claims to one cell the winner is the one already at work, then the lowest (bid, node). Losers yield
  at once.
- Work begins after the claim has stood for as long as it takes to whoever is farthest and back, as far as that was
  measured (`delays.py`): `settle` at least, a renewal at most. Two who have not heard each other's claims never both
  begin where one of them waits so long; who takes a cell that another's claim waits for waits for that one too.
- Where the node came, alone or with a few, among at least as many others, it begins nothing until it has been among
  them for as long: it may not know what is done. The next cell is claimed during work on the current one, so settling
  costs no time.
- The nearest speaks first: a claim is said after a wait that grows with the way, and of nodes that hold nothing one
  after the other by a draw. Who hears a claim meanwhile looks for another cell, so few claims contend.
- A cell that waits for a holder far away is claimed by who has less than half the way, or one shorter by `_SHORTER`,
  when nothing else is free.
- What others know anyway is not said: that a claim has lost to a better one, or that its cell is done.
- A done cell is done for ever. Every cell that a live drone can reach gets done; in a partition some are done twice.
- Cells whose owner (by hash over the roster) cannot be reached come last: both sides of a partition then work on
  different cells first.
- A holder whose progress stands still through `squat_renewals` renewals of work is ignored, and so is a claim that
  waits through as many while its holder works on nothing: a drone that has landed renews what it had claimed ahead.
- Who takes cells from others and does none of them is ignored after a few (`takes.py`).
- What a neighbouring swarm claims (`neighbours/space.py`) is not chosen, and not begun where that is firm; what was
  begun goes on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.cells import Cell, Ground, neighbours
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.claims.covers import Covers
from swarmd_protocols.state.claims.delays import Delays
from swarmd_protocols.state.claims.heard import Heard, idle_renewals, wait_for_work
from swarmd_protocols.state.claims.takes import Takes
from swarmd_protocols.state.claims.turns import Turns
from swarmd_protocols.state.crdt.facts import CELL_HASH_BYTES
from swarmd_protocols.state.crdt.records import Lease

_FOREVER_NS = 1 << 62
"""Later than any time."""
_PAUSE_NS = 50_000_000
"""Never look more often than this without a reason."""
_SLOT_NS = 50_000_000
"""Nanoseconds between the first claims of two nodes that hold nothing: a datagram has arrived by then."""
_SHORTER = 3
"""A way shorter by so many times the reach to neighbours (4.5 pitches) is worth another claim, also where it is more
than half the other's: the last cell of a survey otherwise waits for a holder who crosses the area."""
_SHORTER_LEAST_CM = 5_000
"""Less than this is never worth it, centimetres: what an empty battery weighs, twelve seconds at 4 m/s."""
_FAR = 8
"""Ways to a neighbour, in multiples of the pitch, that count as far: who is as far as this speaks last."""


def cell_hash(cell_id: str) -> bytes:
    """Six bytes that stand for a cell on the wire."""
    return blake2b(cell_id.encode(), digest_size=CELL_HASH_BYTES, person=b"swarmd-cell").digest()


@dataclass(slots=True)
class Held:
    """An own claim."""

    lease: Lease
    renewed_ns: int
    claimed_ns: int
    settle_ns: int
    """How long the claim has to stand at least, by those who were known to contend when it was made."""
    progress: int = 0

    def begins_ns(self, settle_ns: int, came_ns: int) -> int:
        """When it will have stood long enough, and its holder been among the others."""
        return max(self.claimed_ns + max(self.settle_ns, settle_ns), came_ns + settle_ns)


class Claims:
    """All cells, all live claims, and what this node does next.

    It holds no effects: `step` returns what to tell the driver and sets `dirty` when the own lease record must be said.
    """

    def __init__(self, node: NodeId, config: ClaimConfig) -> None:
        """No cells yet."""
        self._node = node
        self._config = config
        self.cells: dict[bytes, Cell] = {}
        self._ground = Ground({}, 0)
        self.done: dict[bytes, dict[NodeId, int]] = {}
        """Cell to the nodes that did it and the quality, thousandths."""
        self._heard: dict[bytes, dict[NodeId, Heard]] = {}
        self._records: dict[NodeId, tuple[Lease, ...]] = {}
        self._best: dict[bytes, tuple[int, tuple[bool, int, NodeId] | None]] = {}
        """Cell to the best of the claims heard, and until when it is that if nothing more is heard of the cell."""
        self._draws: dict[bytes, int] = {}
        """Cell to the draw in this node's bids for it."""
        self.held: dict[bytes, Held] = {}
        """Own claims in the order in which they will be worked on."""
        self._working: bytes | None = None
        self._wanted = False
        self._place = (0, 0)
        self._battery_milli = 1000
        self._epoch = 0
        self._roster: Sequence[NodeId] = (node,)
        self._looking_since_ns: int | None = None
        """Since when this node looks for a cell and lets those who are nearer speak first."""
        self._speaks_ns = 0
        """When it says its claim, unless it hears of another by then."""
        self._reachable: frozenset[NodeId] = frozenset((node,))
        self.delays = Delays(config)
        self.turns = Turns(node)
        self.takes = Takes()
        self.dirty = False
        self.covers = Covers()
        """What neighbouring swarms claim."""

    # --- What the world says --------------------------------------------------------------------------------------

    def define(self, cells: Iterable[tuple[str, int, int]]) -> None:
        """Set the survey area.

        Raises:
            StateError: Too many cells, or two with one id.
        """
        table: dict[bytes, Cell] = {}
        for cell_id, east_cm, north_cm in cells:
            key = cell_hash(cell_id)
            if key in table:
                raise StateError(f"cell {cell_id!r} is defined twice; give every cell an id of its own")
            draw = int.from_bytes(blake2b(key, digest_size=8, person=b"swarmd-owner").digest(), "big")
            table[key] = Cell(cell_id, key, east_cm, north_cm, draw)
        if len(table) > self._config.cells_max:
            raise StateError(f"{len(table)} cells are more than claims.cells_max ({self._config.cells_max})")
        self.cells = table
        self._draws.clear()
        self._ground = neighbours(list(table.values()))
        for key in [key for key in self.held if key not in table]:
            self._release(key)
            self.dirty = True

    def know_roster(self, roster: Sequence[NodeId], reachable: Iterable[NodeId], now_ns: int, swarm: int = 0) -> None:
        """Who belongs to the mission (also those out of reach), sorted, and who can be reached now.

        Of a larger `swarm` than that these are neighbours.
        """
        self._roster = roster
        self.turns.unseen = max(0, swarm - len(roster))
        reachable = frozenset(reachable)
        self.delays.know(len(roster) - 1, frozenset(roster) - reachable, reachable)
        if reachable != self._reachable:
            self._reachable = reachable
            self.turns.know(reachable, self._config.lease_ns, now_ns)

    def hear(self, node: NodeId, leases: tuple[Lease, ...], now_ns: int) -> list[bytes]:
        """A node's newest lease record arrived and replaces the one before; returns the cells it speaks of."""
        before = {lease.cell: lease for lease in self._records.get(node, ())}
        self._records[node] = leases
        cells_taken = 0
        for lease in leases:
            old = before.pop(lease.cell, None)
            takes = self._takes_cell(node, lease, old, now_ns)
            cells_taken += takes
            claims = self._heard.setdefault(lease.cell, {})
            heard = claims.get(node)
            if old is not None or heard is not None or self.takes.ignores(node):
                self._best.pop(lease.cell, None)
            elif (best := self._best_heard(lease.cell, now_ns)) is None or _order(node, lease) < best:
                # Of those that are known a new one is the best, or the one before it still is.
                self._best[lease.cell] = now_ns + self._config.observer_ns, _order(node, lease)
            if old is None or heard is None or old.epoch != lease.epoch:
                # Who claims anew what it holds has done nothing with it so far.
                idle = 0 if old is None or heard is None else heard.idle_renewals + 1
                heard = claims[node] = Heard(lease, now_ns, idle)
            elif (lease.renewal, lease.progress, lease.working) != (old.renewal, old.progress, old.working):
                idle = idle_renewals(lease, old, heard.idle_renewals)
                renewed_ns, took = now_ns if lease.renewal > old.renewal else heard.renewed_ns, heard.took
                heard = claims[node] = Heard(lease, renewed_ns, idle, took)
            heard.took = heard.took or takes
        if self.takes.note(node, cells_taken, now_ns):
            self._best.clear()
        for cell in before:
            self._unhear(cell, node)
        wait_for_work([self._heard[lease.cell][node] for lease in leases], self._config.squat_renewals)
        return [*(lease.cell for lease in leases), *before]

    def _takes_cell(self, node: NodeId, lease: Lease, old: Lease | None, now_ns: int) -> bool:
        """Whether a claim is new and beats one of somebody else that is alive; who took that could not do it."""
        if old is not None and (old.epoch, old.working) == (lease.epoch, lease.working):
            return False
        best = self._winner(lease.cell, now_ns)
        if best is None or best[2] == node or best <= _order(node, lease):
            return False
        beaten = self._heard.get(lease.cell, {}).get(best[2])
        if beaten is not None and beaten.took:
            beaten.took = False
            self.takes.did(best[2])
        return True

    def forget(self, node: NodeId) -> None:
        """A node was shut out: its claims do not count."""
        self.delays.forget(node)
        self.takes.forget(node)
        for lease in self._records.pop(node, ()):
            self._unhear(lease.cell, node)

    def _unhear(self, cell: bytes, node: NodeId) -> None:
        self._best.pop(cell, None)
        claims = self._heard.get(cell, {})
        claims.pop(node, None)
        if not claims:
            self._heard.pop(cell, None)

    def want(self, east_cm: int, north_cm: int, battery_milli: int) -> None:
        """This node is free and here."""
        self._wanted = True
        self._place = (east_cm, north_cm)
        self._battery_milli = battery_milli

    def progress(self, cell_id: str) -> None:
        """The work on a held cell goes on."""
        held = self.held.get(cell_hash(cell_id))
        if held is None:
            raise StateError(f"cell {cell_id!r} is not held by this node")
        held.progress += 1

    def finish(self, cell_id: str) -> bytes:
        """This node has finished a cell; its claim, if any, ends.

        Raises:
            StateError: There is no such cell.
        """
        key = cell_hash(cell_id)
        cell = self.cells.get(key)
        if cell is None:
            raise StateError(f"cell {cell_id!r} is unknown; define the survey area first")
        self._place = (cell.east_cm, cell.north_cm)
        # Nobody need be told that the claim has ended: the cell is done.
        self._release(key)
        return key

    # --- Deciding -------------------------------------------------------------------------------------------------

    @property
    def pitch_cm(self) -> int:
        """From one cell to the next, about; 0 without any."""
        return self._ground.reach_cm * 2 // 3

    def live(self, now_ns: int) -> list[tuple[bool, bytes]]:
        """(whether nobody is at work there yet, cell) of each cell with a live claim, those at work first."""
        keys = [*self.held, *(key for key in self._heard if key not in self.held)]
        return sorted((best[0], key) for key in keys if (best := self._winner(key, now_ns)) is not None)

    def holder(self, key: bytes, now_ns: int) -> NodeId | None:
        """The winner of the live claims to a cell."""
        best = self._winner(key, now_ns)
        return None if best is None else best[2]

    def _winner(self, key: bytes, now_ns: int) -> tuple[bool, int, NodeId] | None:
        best = self._best_heard(key, now_ns)
        held = self.held.get(key)
        if held is not None and now_ns - held.renewed_ns < self._config.holder_ns:
            own = (not held.lease.working, held.lease.bid, self._node)
            if best is None or own < best:
                best = own
        return best

    def _best_heard(self, key: bytes, now_ns: int) -> tuple[bool, int, NodeId] | None:
        """The winner of the claims to a cell that others hold; the same until it is heard of anew, or ends.

        Asked for every cell at every event: among N drones each cell has claims of many.
        """
        known = self._best.get(key)
        if known is not None and now_ns <= known[0]:
            return known[1]
        claims = self._heard.get(key)
        if claims is None:
            return None
        best: tuple[bool, int, NodeId] | None = None
        until_ns, observer_ns, squat_renewals = _FOREVER_NS, self._config.observer_ns, self._config.squat_renewals
        for node, heard in claims.items():
            if now_ns - heard.renewed_ns > observer_ns or heard.idle_renewals >= squat_renewals:
                continue
            if self.takes.ignores(node):
                continue
            order = (not heard.lease.working, heard.lease.bid, node)
            if best is None or order < best:
                best, until_ns = order, heard.renewed_ns + observer_ns
        self._best[key] = until_ns, best
        return best

    def step(self, now_ns: int) -> tuple[list[str], list[str]]:
        """Decide everything that is due.

        Returns:
            Cells to begin (at most one) and cells to stop, by id.
        """
        lost = [self._lose(key) for key in list(self.held) if self._must_yield(key, now_ns)]
        self._renew(now_ns)
        begun: list[str] = []
        if self._working is None and self._wanted:
            settle_ns = self.delays.settle_ns(now_ns)
            for key, held in self.held.items():
                if now_ns >= held.begins_ns(settle_ns, self.turns.came_ns) and not self.covers.forbids(key, now_ns):
                    self._working = key
                    self._wanted = False
                    held.lease = held.lease._replace(working=True)
                    self.dirty = True
                    begun.append(self.cells[key].cell_id)
                    break
        if self._working is not None or (self._wanted and not self.held):
            self._claim(now_ns)
        return begun, [cell for cell in lost if cell]

    def due_ns(self, now_ns: int) -> int:
        """When `step` must be called next at the latest."""
        config = self._config
        due = now_ns + config.renew_ns
        settle_ns = self.delays.settle_ns(now_ns) if self._wanted and self._working is None else None
        for held in self.held.values():
            due = min(due, held.renewed_ns + config.renew_ns)
            if settle_ns is not None:
                due = min(due, held.begins_ns(settle_ns, self.turns.came_ns))
        if self._looking_since_ns is not None:
            due = min(due, self._speaks_ns)
        elif self._wanted and not self.held:
            # Nothing was free: look again when leases may have ended.
            due = min(due, now_ns + config.settle_ns)
        return max(due, now_ns + _PAUSE_NS)

    def _must_yield(self, key: bytes, now_ns: int) -> bool:
        held = self.held[key]
        if self.done.get(key) or now_ns - held.renewed_ns >= self._config.holder_ns:
            return True
        if not held.lease.working and self.covers.forbids(key, now_ns):
            return True
        best = self._best_heard(key, now_ns)
        return best is not None and best < (not held.lease.working, held.lease.bid, self._node)

    def _lose(self, key: bytes) -> str:
        """Let go of a claim; names the cell when work on it had begun."""
        was_working = key == self._working
        self._release(key)
        if was_working:
            self._wanted = True
            cell = self.cells.get(key)
            return "" if cell is None else cell.cell_id
        return ""

    def _release(self, key: bytes) -> None:
        self.held.pop(key, None)
        if self._working == key:
            self._working = None

    def _renew(self, now_ns: int) -> None:
        if not any(now_ns - held.renewed_ns >= self._config.renew_ns for held in self.held.values()):
            return
        # One record says all claims, so all are renewed together.
        for held in self.held.values():
            held.lease = held.lease._replace(renewal=held.lease.renewal + 1, progress=held.progress)
            held.renewed_ns = now_ns
        self.dirty = True

    def _claim(self, now_ns: int) -> None:
        # The first cell, or the next one while the first is worked on.
        if len(self.held) >= (1 if self._working is None else self._config.bundle):
            self._looking_since_ns = None
            return
        key = self._choose(now_ns)
        if key is None:
            self._looking_since_ns = None
            return
        if self._looking_since_ns is None:
            self._looking_since_ns = now_ns
        cell = self.cells[key]
        begins_ns = self._looking_since_ns
        if not self.held:
            begins_ns = max(begins_ns, self.turns.listens_until_ns(begins_ns, self._config.settle_ns))
        self._speaks_ns = begins_ns + self._patience_ns(cell)
        if now_ns < self._speaks_ns:
            return
        self._looking_since_ns = None
        self._epoch += 1
        lease = Lease(key, self._epoch, 0, False, self._bid(cell), 0)
        waits = self._best_heard(key, now_ns)
        rival_ns = 0 if waits is None else self.delays.settle_with_ns(waits[2])
        self.held[key] = Held(lease, now_ns, now_ns, max(rival_ns, self.covers.settle_ns))
        self.dirty = True

    def _patience_ns(self, cell: Cell) -> int:
        """How long this node lets others speak first: half a settle for a cell that is far, and its turn by a draw."""
        most_ns = self._config.settle_ns // 2
        far_cm = _FAR * max(1, self._ground.reach_cm)
        way_ns = most_ns * min(self._way_cm(cell), far_cm) // far_cm
        if self.held:
            return way_ns
        rank, free = self.turns.rank(self._records), self.turns.free
        # For whom no cell will be left when those before it have chosen lets all of them speak, for a renewal at most:
        # how many there are may be what a neighbour says.
        slots_ns = min(self._config.renew_ns, free * _SLOT_NS)
        return way_ns + min(most_ns if rank < free else max(most_ns, slots_ns), rank * _SLOT_NS)

    def _origin(self) -> tuple[int, int]:
        """From where the next cell is reached: the last one held, or here."""
        for key in reversed(self.held):
            cell = self.cells[key]
            return (cell.east_cm, cell.north_cm)
        return self._place

    def _way_cm(self, cell: Cell) -> int:
        """From here over the cells that are held to this one; the work on each counts as a pitch and a half."""
        way_cm, (east, north) = 0, self._place
        for stop in (*(self.cells[key] for key in self.held), cell):
            way_cm += abs(stop.east_cm - east) + abs(stop.north_cm - north)
            east, north = stop.east_cm, stop.north_cm
        return way_cm + len(self.held) * self._ground.reach_cm

    def _bid(self, cell: Cell) -> int:
        """Lower wins: the way there, plus what a low battery makes it worth, then a draw."""
        battery_cm = (1000 - self._battery_milli) * self._config.battery_weight_cm // 1000
        draw = self._draws.get(cell.key)
        if draw is None:
            draw = int.from_bytes(blake2b(cell.key + self._node, digest_size=2).digest(), "big")
            self._draws[cell.key] = draw
        return (max(0, self._way_cm(cell) + battery_cm) << 16) | draw

    def _choose(self, now_ns: int) -> bytes | None:
        """The nearest free cell; among equals the one with the fewest free neighbours, so that no islands are left.

        Where none is free, the nearest that waits for a holder who has more than twice the way, or a far longer one.
        """
        best: tuple[bool, int, int, bytes] | None = None
        self.turns.free = 0
        waiting: list[tuple[int, bytes, int]] = []
        east, north = self._origin()
        roster, reachable, done, heard = self._roster, self._reachable, self.done, self._heard
        for key, cell in self.cells.items():
            if done.get(key) or key in self.held or self.covers.stands(key, now_ns):
                continue
            way_cm = abs(cell.east_cm - east) + abs(cell.north_cm - north)
            if key in heard and (holder := self._best_heard(key, now_ns)) is not None:
                is_waiting, bid = holder[0], holder[1]
                if is_waiting:
                    waiting.append((way_cm, key, bid))
                continue
            self.turns.free += 1
            away = roster[cell.owner_draw % len(roster)] not in reachable
            if best is not None and (away, way_cm) > best[:2]:
                continue
            order = (away, way_cm, self._free_beside(key), key)
            if best is None or order < best:
                best = order
        if best is not None:
            return best[3]
        return next((key for _, key, bid in sorted(waiting) if self._is_far(bid, self.cells[key])), None)

    def _is_far(self, bid: int, cell: Cell) -> bool:
        """Whether another's bid for a cell says so long a way that this node had better go."""
        own = self._bid(cell)
        shorter_cm = max(_SHORTER_LEAST_CM, _SHORTER * self._ground.reach_cm)
        return 2 * own < bid or own + (shorter_cm << 16) < bid

    def _free_beside(self, key: bytes) -> int:
        return sum(
            not self.done.get(other) and other not in self.held and not self._heard.get(other)
            for other in self._ground.beside[key]
        )

    def record(self) -> tuple[Lease, ...]:
        """The own lease record, to be said to everybody."""
        return tuple(held.lease for held in self.held.values())


def _order(node: NodeId, lease: Lease) -> tuple[bool, int, NodeId]:
    """By which claims to one cell are compared; the lowest wins."""
    return (not lease.working, lease.bid, node)
