"""Thumbnails in the simulated swarm: the daemon's own `Thumbs` on every node, with made-up pictures of made-up things.

Some nodes' people look at things now and then; what they are shown must be the picture that its author made, fetched
once, and where its author is at hand it must come.
"""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.thumbs.form import HEIGHT_MAX, WIDTH_MAX, name_of
from swarmd_protocols.thumbs.requests import JOURNAL, Fetch, Shelve, ThumbLearned
from swarmd_protocols.thumbs.thumbs import Thumbs, ThumbsConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarmd_sim.run.choices import Choices
    from swarmd_sim.run.host import Host

_TABLE = b"\0" + bytes(range(1, 65))
_HEAD = (
    b"\xff\xd8\xff\xdb\x00\x43" + _TABLE + b"\xff\xc0\x00\x0b\x08"
    + HEIGHT_MAX.to_bytes(2, "big") + WIDTH_MAX.to_bytes(2, "big") + b"\x01\x01\x11\x00"
    + b"\xff\xc4\x00\x14\x00\x01" + bytes(15) + b"\x05" + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
)  # fmt: skip
USUAL_BYTES = 2_100
"""Of a picture of a thermal camera."""


def picture_of(number: int) -> bytes:
    """A picture of the right form; what it shows is nothing."""
    coded = number.to_bytes(8, "big").replace(b"\xff", b"\xff\0")
    return _HEAD + coded * ((USUAL_BYTES - len(_HEAD)) // len(coded)) + b"\xff\xd9"


class ThumbsWorld:
    """Who made which picture, and who looks."""

    def __init__(self, choices: "Choices") -> None:
        """Nothing was seen yet."""
        self._choices = choices
        self.made: list[bytes] = []
        """Names, in the order in which they were seen."""
        self.author: dict[bytes, int] = {}
        """Name to the host that made the picture."""
        self.protocols: dict[int, Thumbs] = {}
        self.wanted: dict[tuple[int, int], Counter[bytes]] = {}
        """Of each life of a host: how often each picture was asked for."""
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        """What was shown and should not have been."""

    def protocol(self, host: "Host", node: NodeId, records: "Mapping[bytes, bytes]", replica: Replica) -> Thumbs:
        """The protocol of the life that begins."""
        kept = {key: value for key, value in records.items() if key.startswith(JOURNAL)}
        views = replica.views
        self.protocols[host.index] = Thumbs(node, ThumbsConfig(), kept, views.pictures, views.authors_of_picture)
        return self.protocols[host.index]

    def shelve(self, host: "Host", number: int) -> bytes:
        """A host sees something; returns the name of its picture."""
        jpeg = picture_of(number)
        name = name_of(jpeg)
        self.made.append(name)
        self.author[name] = host.index
        host.command("thumbs", Shelve(jpeg))
        return name

    def look(self, host: "Host") -> None:
        """Somebody at a host looks at something that was seen somewhere."""
        if self.made:
            name = self.made[self._choices.choose("thumbs.look", len(self.made))]
            self.counts["looked"] += 1
            host.command("thumbs", Fetch(name), partial(self._asked, host, host.boots, name))

    def _asked(self, host: "Host", life: int, name: bytes, problem: str) -> None:
        if problem:
            self.counts["not known"] += 1
        else:
            self.wanted.setdefault((host.index, life), Counter())[name] += 1

    def on_detail(self, host: "Host", detail: object) -> None:
        """A picture came, or will not."""
        if isinstance(detail, ThumbLearned):
            self.counts["shown" if detail.jpeg else "missing"] += 1
            if detail.jpeg and name_of(detail.jpeg) != detail.name:
                self.wrong.append(f"{host.name} shows another picture as {detail.name.hex()}")
