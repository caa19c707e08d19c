"""A client's side of texts: `swarmd infer --stream` and `import swarmd` ask with it."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from swarmd.errors import ControlError, WorkerError
from swarmd.worker.asking import Wish

_WAIT_S = 70.0
"""Seconds for the next piece: longer than the latest deadline that the API takes."""
_EVENT = b"data: "


def stream(
    address: str,
    model: str,
    text: str,
    wish: Wish,
    *,
    max_tokens: int = 128,
    temperature: float = 0.0,
    seed: int = 0,
    session: str = "",
    session_ttl_s: int = 0,
) -> Iterator[dict[str, Any]]:
    """Have a language model go on with a text.

    Args:
        address: HOST:PORT of the API.
        model: Name as served.
        text: The prompt.
        wish: Version, priority, deadline of the whole text, and who may answer.
        max_tokens: At most so many.
        temperature: 0: always the likeliest word.
        seed: Decides the draw where the temperature is above 0.
        session: State of a text that goes on, as an earlier answer gave it.
        session_ttl_s: For how long this one may go on, seconds; 0: it may not.

    Yields:
        Rows with `text_output`, as the API has them; the last has no text, and says in its `parameters` how it ended.

    Raises:
        ControlError: Nobody answers there.
        WorkerError: It refused, or gave up on the way, and says why.
    """
    name = quote(model if model.endswith(".text") else f"{model}.text", safe="")
    path = f"/v2/models/{name}" + (f"/versions/{wish.version}" if wish.version else "") + "/generate_stream"
    told = {
        "max_tokens": max_tokens, "temperature": temperature, "seed": seed, "priority": wish.priority,
        "timeout": (wish.deadline_ms or 0) * 1000, "session": session, "session_ttl_s": session_ttl_s,
    }  # fmt: skip
    body = json.dumps({"text_input": text, "parameters": told}).encode()
    connection = http.client.HTTPConnection(address, timeout=_WAIT_S)
    try:
        connection.request("POST", path, body, {"Swarmd-Borrow": wish.borrow} if wish.borrow else {})
        yield from _rows(connection.getresponse())
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ControlError(
            f"no inference API answers at {address} ({why}); `swarmd status` shows its address and its last problem"
        ) from error
    finally:
        connection.close()


def _rows(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    if response.status != http.client.OK:
        reason = json.loads(response.read()).get("error", "no reason was given")
        raise WorkerError(f"{reason} ({response.status})")
    is_through = False
    for line in response:
        if line.startswith(_EVENT):
            row: dict[str, Any] = json.loads(line[len(_EVENT) :])
            if "error" in row:
                raise WorkerError(f"{row['error']} ({row['status']})")
            is_through = row["parameters"].get("triton_final_response", False)
            yield row
    if not is_through:
        raise WorkerError("the answer broke off; `swarmd status` shows the worker's last problem")
