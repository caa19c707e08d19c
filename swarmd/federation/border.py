"""A gateway's talk with the gateways of neighbouring swarms, over pipes of their own.

What is said, taken and judged is `swarmd_protocols.neighbours`'; here are the pipes, the clock, what people are told.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from swarmd.errors import ConfigError
from swarmd.federation.above import BorderDaemon
from swarmd.federation.uplink import MakeUplink, Place, Uplink
from swarmd.identity.files import write_public_file
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import NUMBER_MAX, Way, swarm_key
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.envelopes import decode_envelope

LIFE_FILE = "beside.life"
"""In the state directory: the number of the last start."""
TICK_S = 0.25
"""Seconds between two looks at what is to be said: a small part of the second within which a change is told."""


class BorderLink:
    """Runs beside one daemon, which is a gateway.

    Args:
        paths: To neighbours' gateways.
        prefix: Of all places.
        seed: The node's Ed25519 seed.
        folder: The state directory, once the daemon runs.
        make_uplink: Makes one path.
    """

    def __init__(
        self, paths: Sequence[str], prefix: str, seed: bytes, folder: Callable[[], Path], make_uplink: MakeUplink
    ) -> None:
        self._paths, self._prefix, self._seed, self._folder = tuple(paths), prefix, seed, folder
        self._make_uplink = make_uplink

    async def run(self, daemon: BorderDaemon) -> None:
        """Until cancelled.

        Raises:
            ConfigError: The certificate does not name the role.
            IdentityFileError: The number of this start cannot be kept.
        """
        above, info = daemon.above, daemon.info()
        held = above.certificate(info.node)
        if held is None or ROLE not in held.roles:
            raise ConfigError(
                f"this node's certificate does not name the role {ROLE}: enrol it by swarmd keys enrol … --role {ROLE}"
            )
        own = NodeId(swarm_key(decode_envelope(above.first_root).digest, info.swarm))
        border = above.border(self._seed, begin_life(self._folder() / LIFE_FILE, int(time.time())))

        def hear(place: Place, frame: bytes) -> None:
            brought = border.hear(frame, time.monotonic_ns())
            if brought is not None:
                above.bring(brought)

        places = [f"{self._prefix}/{own.hex()}/beside/+"]
        uplinks = [self._make_uplink(path, places, hear) for path in self._paths]

        async def keep_speaking() -> None:
            problems = [""] * len(uplinks)
            while True:
                for key, frame in border.tick(time.monotonic_ns()):
                    for uplink in uplinks:
                        uplink.send(Place(key, Way.BESIDE, own), frame)
                _tell(daemon, uplinks, problems)
                await asyncio.sleep(TICK_S)

        async with asyncio.TaskGroup() as tasks:
            for uplink in uplinks:
                tasks.create_task(uplink.run())
            tasks.create_task(keep_speaking())


def begin_life(path: Path, now_s: int) -> int:
    """A number for this start above those of all before it, wherever the clock stands.

    A neighbour would take every frame of a gateway whose clock was set back for a copy of what it has heard.

    Args:
        path: Where the last one is kept.
        now_s: Seconds since 1970, by this machine's clock.

    Raises:
        IdentityFileError: It cannot be written.
    """
    try:
        last = int(path.read_bytes()[:20])
    except (OSError, ValueError):
        last = 0
    life = min(max(last + 1, now_s), NUMBER_MAX)
    write_public_file(path, b"%d" % life)
    return life


def _tell(daemon: BorderDaemon, uplinks: Sequence[Uplink], problems: list[str]) -> None:
    """Say what has newly gone wrong with a path."""
    for at, uplink in enumerate(uplinks):
        if uplink.problem != problems[at]:
            problems[at] = uplink.problem
            if uplink.problem:
                daemon.note_problem("gateway", uplink.problem)
