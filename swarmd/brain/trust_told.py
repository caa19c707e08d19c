"""What this node holds of the fleet's trust, told to the members as metadata: `swarmd keys status` shows it of all.

metadata "trust" = {"root": 2, "group_key": 1795311545, "certificate": "9f0c…"}     numbers and digests, no secret
"""

import asyncio
import json
from collections.abc import Callable

from swarmd.api.bus import Bus, Notice
from swarmd.api.daemon import TRUST_KEY
from swarmd_protocols.effects import SetMeta, StateChanged
from swarmd_protocols.summary import TrustSummary
from swarmd_protocols.trust.requests import TrustChanged

_SETTLE_S = 1.0
"""Seconds that changes are gathered for: a root brings a dozen statements, and one entry tells of all."""


def told_of(trust: TrustSummary) -> bytes:
    """The entry's value."""
    shown = {"root": trust.root, "group_key": trust.group_key, "certificate": trust.certificate}
    return json.dumps(shown, separators=(",", ":")).encode("ascii")


async def tell_trust(bus: Bus, trust: Callable[[], TrustSummary], say: Callable[[SetMeta], None]) -> None:
    """Keep the entry what the node holds; runs for ever.

    Args:
        bus: Where changes are heard of.
        trust: What the node holds now.
        say: Gives the node a local request.
    """
    changed = asyncio.Event()

    def on_notice(notice: Notice) -> None:
        if isinstance(notice, StateChanged) and isinstance(notice.detail, TrustChanged):
            changed.set()

    end = bus.subscribe(on_notice)
    told = b""
    try:
        while True:
            if (value := told_of(trust())) != told:
                say(SetMeta(TRUST_KEY, value))
                told = value
            await changed.wait()
            await asyncio.sleep(_SETTLE_S)
            changed.clear()
    finally:
        end()
