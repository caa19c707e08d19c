"""A daemon that borrows and floods: every request goes out twenty times, and a ticket is used whatever it is good for.

python -m tests.support.flooding_daemon run …      the rest as for `python -m swarmd`
"""

import sys
from typing import Any

import msgspec

from swarmd.cli.main import main
from swarmd_protocols.offload import borrowing, messages
from swarmd_protocols.offload.tickets import HeldTicket
from swarmd_protocols.subprotocol import Send, SubEffect

TIMES = 20
_SHIFT = 48
"""Of a request's number: each copy has one of its own."""


def _request(self: borrowing.Borrower, *rest: Any) -> list[SubEffect]:
    effects = _WHOLE(self, *rest)
    for effect in list(effects):
        if isinstance(effect, Send) and isinstance(said := messages.decode_message(effect.payload), messages.Request):
            copies = [msgspec.structs.replace(said, id=said.id | copy << _SHIFT) for copy in range(1, TIMES)]
            effects += [
                Send(effect.to, messages.encode_message(copy), effect.reliable, effect.priority) for copy in copies
            ]
    return effects


_WHOLE = borrowing.Borrower._request

if __name__ == "__main__":
    borrowing.Borrower._request = _request  # type: ignore[method-assign, assignment]
    HeldTicket.is_good = lambda self, size_bytes, now_ms: True  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
