"""A connection of the ground view's server: who keeps it waiting gives way to who comes.

Uvicorn ends a client that is silent after an answer, but neither one that never asks nor one that asks for a stream and
does not read it. Each holds a place, and without a place nobody sees the swarm.
"""

import asyncio
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

CLIENTS_MAX = 64
"""Connections at once: ten browsers with six each."""


class Connection(H11Protocol):  # type: ignore[misc]
    """HTTP/1.1 as uvicorn speaks it; where places are short the one that waits for its client longest is hung up on."""

    _quiet_since_s: float | None = None
    """Monotonic: since when it waits for its client to ask, or to read; None: it does not."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client has come."""
        super().connection_made(transport)
        self._quiet_since_s = time.monotonic()
        if len(self.connections) < CLIENTS_MAX:
            return
        quiet = [
            (one._quiet_since_s, id(one), one)
            for one in self.connections
            if isinstance(one, Connection) and one is not self and one._quiet_since_s is not None
        ]
        if quiet:
            oldest = min(quiet)[2]
            # It leaves the set at once: its place is wanted before the loop turns.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def handle_events(self) -> None:
        """Its client has sent something."""
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self._quiet_since_s = None

    def on_response_complete(self) -> None:
        """An answer was given."""
        self._quiet_since_s = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Its client does not read."""
        self._quiet_since_s = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Its client has read."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        self._quiet_since_s = None if is_answering else time.monotonic()
        super().resume_writing()
