"""Which cells of the survey area this node's source flies: it asks for work, two cells deep, and says what is done."""

from collections.abc import Callable

from swarmd.eye import ipc
from swarmd.logs import Logger
from swarmd_protocols.state.observations import CellAssigned, CellDone, CellLost, CellProgress, WantCell

CELLS_AHEAD = 2
"""Cells held at once: the one that is flown and the next, so that claims settle while the source is busy."""
PLACE_PATIENCE = 3
"""Ticks, of a second each, for which a source may take to say where it is, before it asks as if from the origin: the
nearest cell is a guess until then, and a guess is another node's cell."""
RETRY_QUALITY_MILLI = 500
"""Thousandths; a cell surveyed worse than this, because frames were missed, is flown once more before it is done."""


class CellPilot:
    """Between claims and a source that flies by them (`sim://`)."""

    def __init__(
        self,
        command: Callable[[object], None],
        send: Callable[[ipc.ToEye], None],
        where: Callable[[], tuple[int, int, int] | None],
        log: Logger,
    ) -> None:
        """No cell yet, and not flying.

        Args:
            command: Gives the state a request.
            send: Gives the eye a message.
            where: (east cm, north cm, battery in thousandths) of this node; None while its place is not known.
            log: Where the daemon speaks.
        """
        self._command = command
        self._send = send
        self._where = where
        self._log = log
        self._again: set[str] = set()
        self._patience = PLACE_PATIENCE
        self.flying = False
        self.cells: list[str] = []
        """Held by this node, in order."""

    def want(self) -> None:
        """Ask for cells, where there is room for one more."""
        if not self.flying or len(self.cells) >= CELLS_AHEAD:
            return
        place = self._where()
        if place is not None:
            self._command(WantCell(*place))
        elif self._patience <= 0:
            self._command(WantCell(0, 0, 1000))

    def drop_all(self) -> None:
        """Stop: the cells are left to others."""
        self.flying = False
        self._patience = PLACE_PATIENCE
        self.cells.clear()

    def tick(self) -> None:
        """Once a second: say that the work goes on."""
        if self.cells and self.flying:
            self._command(CellProgress(self.cells[0]))
        if self.flying:
            self._patience -= 1
        self.want()

    def again(self) -> None:
        """A new eye has started: it gets the cells of the one before."""
        for cell in self.cells:
            self._send(ipc.AssignCell(cell))
        self.want()

    def on_order(self, request: object) -> None:
        """The state orders: fly a cell, or leave it."""
        match request:
            case CellAssigned(cell) if self.flying and cell not in self.cells:
                self.cells.append(cell)
                self._send(ipc.AssignCell(cell))
                self.want()
            case CellLost(cell) if cell in self.cells:
                self.cells.remove(cell)
                self._send(ipc.DropCell(cell))
                self.want()
            case _:
                pass

    def on_reached(self, cell: str) -> None:
        """The source is above the cell."""
        if cell in self.cells:
            self._command(CellProgress(cell))

    def on_done(self, cell: str, quality_milli: int) -> None:
        """The source has flown the cell."""
        if cell not in self.cells:
            return
        if quality_milli < RETRY_QUALITY_MILLI and cell not in self._again:
            self._again.add(cell)
            self._log.warning("cell_again", cell=cell, quality_milli=quality_milli)
            self._send(ipc.AssignCell(cell))
            return
        self.cells.remove(cell)
        self._again.discard(cell)
        self._command(CellDone(cell, quality_milli))
        self.want()
