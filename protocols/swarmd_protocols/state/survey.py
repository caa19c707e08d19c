"""The cells of the survey: who works in which, which are done, and what the driver shall fly."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.claims import Claims, cell_hash
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.claims.covers import Covers
from swarmd_protocols.state.crdt.batch import Dot
from swarmd_protocols.state.crdt.records import Lease
from swarmd_protocols.state.observations import CellAssigned, CellChanged, CellLost, CellView

CellOrder: TypeAlias = CellAssigned | CellLost
CELLS_A_PART = 256
"""Cells of one part of a long answer: told, they take about a millisecond."""


class LiveClaim(NamedTuple):
    """A claim to a cell that stands at this moment, whoever holds it."""

    key: bytes
    east_cm: int
    north_cm: int
    is_working: bool


class Survey:
    """The survey as one node sees it.

    Args:
        node: This node.
        config: Settings of the claims.
    """

    def __init__(self, node: NodeId, config: ClaimConfig) -> None:
        self._node = node
        self.claims = Claims(node, config)
        self._done_dots: dict[tuple[bytes, NodeId], Dot] = {}
        self._lease_dots: dict[NodeId, Dot] = {}
        self._changed: dict[bytes, None] = {}
        """Cells to be told of."""
        self._views: dict[bytes, CellView] = {}
        """What was told of each."""
        self._orders: list[CellOrder] = []
        self._now_ns = 0
        self._is_due = True
        self._due_ns: int | None = None
        self._has_cells = False

    # --- What this node wants ---

    def define(self, cells: Sequence[tuple[str, int, int]]) -> None:
        """Set the survey area."""
        self.claims.define(cells)
        self._has_cells = bool(cells)
        self._is_due = True

    def want(self, east_cm: int, north_cm: int, battery_milli: int) -> None:
        """This node is free."""
        self.claims.want(east_cm, north_cm, battery_milli)
        self._is_due = True

    def finish(self, cell_id: str) -> bytes:
        """This node has finished a cell; returns the cell's hash."""
        self._is_due = True
        return self.claims.finish(cell_id)

    # --- Neighbouring swarms ---

    def know_covers(self, covers: Covers) -> None:
        """What neighbouring swarms claim over own cells."""
        if covers != self.claims.covers:
            self.claims.covers = covers
            self._is_due = True

    def live(self, now_ns: int) -> Iterator[LiveClaim]:
        """Claims of this swarm that stand, those at work first."""
        for is_waiting, key in self.claims.live(now_ns):
            cell = self.claims.cells.get(key)
            if cell is not None and not self.claims.done.get(key):
                yield LiveClaim(key, cell.east_cm, cell.north_cm, not is_waiting)

    # --- What the batches say ---

    def take_done(self, origin: NodeId, dot: Dot, cell: bytes, quality_milli: int) -> None:
        """An origin has done a cell."""
        by = self.claims.done.setdefault(cell, {})
        if self._done_dots.get((cell, origin), (-1, 0)) < dot:
            self._done_dots[cell, origin] = dot
            if not by and cell in self.claims.cells:
                self.claims.takes.did(origin)
            by[origin] = quality_milli
            self._changed[cell] = None
            self._is_due = True

    def drop_done(self, origin: NodeId, dot: Dot, cell: bytes) -> None:
        """Undo what only this batch said."""
        if self._done_dots.get((cell, origin)) == dot:
            del self._done_dots[cell, origin]
            by = self.claims.done.get(cell, {})
            by.pop(origin, None)
            if not by:
                self.claims.done.pop(cell, None)
            self._is_due = True
            self._changed[cell] = None

    def take_leases(self, origin: NodeId, dot: Dot, leases: tuple[Lease, ...], now_ns: int) -> None:
        """An origin's leases; older ones than those held are ignored."""
        if self._lease_dots.get(origin, (-1, 0)) >= dot:
            return
        self._lease_dots[origin] = dot
        if origin == self._node:
            for lease in leases:
                self._changed[lease.cell] = None
            return
        for cell in self.claims.hear(origin, leases, now_ns):
            self._changed[cell] = None
        self._is_due = True

    def forget(self, origin: NodeId) -> None:
        """An origin was shut out: its leases go too."""
        self.claims.forget(origin)
        self._lease_dots.pop(origin, None)
        self._is_due = True

    # --- After each event ---

    def step(self, now_ns: int) -> list[CellChanged]:
        """Claim and yield; returns the cells that changed."""
        self._now_ns = now_ns
        if self._has_cells and (self._is_due or self._due_ns is None or now_ns >= self._due_ns):
            self._is_due = False
            begun, lost = self.claims.step(now_ns)
            self._orders += [CellLost(cell) for cell in lost]
            self._orders += [CellAssigned(cell) for cell in begun]
            for cell in (*begun, *lost):
                self._changed[cell_hash(cell)] = None
            self._due_ns = self.claims.due_ns(now_ns)
        told: list[CellChanged] = []
        if not self._changed:
            return told
        for key in self._changed:
            if key in self.claims.cells:
                shown = self._cell(key, now_ns)
                if self._views.get(key) != shown:
                    self._views[key] = shown
                    told.append(CellChanged(shown))
        self._changed.clear()
        return told

    @property
    def due_ns(self) -> int | None:
        """When `step` wants to be called next; None: not at all."""
        return self._due_ns

    def forget_changes(self) -> None:
        """What was read from the journal is no news."""
        self._changed.clear()

    @property
    def has_orders(self) -> bool:
        """Whether `take_orders` has something."""
        return bool(self._orders)

    def take_orders(self) -> list[CellOrder]:
        """What the driver shall do, since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def cells(self) -> list[CellView]:
        """All cells, as defined."""
        return [self._cell(key, self._now_ns) for key in self.claims.cells]

    def parts(self) -> Iterator[list[CellView]]:
        """All cells, as defined, a few at a time."""
        keys = list(self.claims.cells)
        for at in range(0, len(keys), CELLS_A_PART):
            part = keys[at : at + CELLS_A_PART]
            yield [self._cell(key, self._now_ns) for key in part if key in self.claims.cells]

    def _cell(self, key: bytes, now_ns: int) -> CellView:
        cell = self.claims.cells[key]
        done = self.claims.done.get(key)
        holder = None if done else self.claims.holder(key, now_ns)
        state = "done" if done else "claimed" if holder is not None else "open"
        return CellView(cell.cell_id, cell.east_cm, cell.north_cm, state, holder, tuple(sorted(done or ())))
