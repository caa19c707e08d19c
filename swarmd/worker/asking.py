"""A client's side of the inference API: one request, one answer. `swarmd infer` and `import swarmd` ask with it."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from swarmd.errors import ControlError, WorkerError

if TYPE_CHECKING:
    from swarmd_models.backends.base import Array
    from swarmd_models.bundle import Bundle

_JSON_LENGTH = "Inference-Header-Content-Length"
_WAIT_S = 70.0
"""Seconds for an answer: longer than the latest deadline that the API takes."""
DEADLINE_MAX_MS = 60_000
"""Milliseconds: the latest deadline that the API takes (`TIMEOUT_MAX_MS` of the worker, which a client loads not)."""
PRIORITIES = (1, 2, 3)
"""High, normal, low."""
BORROWS = ("", "yes", "quickest", "unsure", "split", "fleet")
"""Who may answer: this device; another member too; whoever is soonest; better models where the own one is in doubt;
others for parts of the model; whoever of the fleet is idle, for a batch."""
FORMS = ("", "raw", "lossless")
"""In which a picture may leave (`forms.WISHES` of the worker)."""
COPIES, COPIED = (1, 2), ("yes", "quickest", "unsure")
"""Members that may work on a request at once, and with which words of `BORROWS` two may."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a request is to be answered."""

    version: str = ""
    """The bundle's digest; "": the newest that is served."""
    priority: int = 2
    deadline_ms: int | None = None
    """Milliseconds; None: `inference.deadline_ms` of the daemon."""
    borrow: str = ""
    grade_min: float = 0.0
    """The least grade of a model that is named by its ability; 0: any."""
    keep_s: float = 0.0
    """Seconds that a borrowed answer may be kept."""
    cause: str = ""
    """W3C `traceparent` of what asks: what is borrowed is linked to it."""
    copies: int = 1
    """2: two members have it at once: the death of one loses nothing that the other has time for."""
    form: str = ""
    """In which a picture leaves: `lossless` or `raw`; "": as JPEG too, where `lending.jpeg_quality` allows it."""

    def __post_init__(self) -> None:
        """Raises `WorkerError` for what the API does not take."""
        if self.deadline_ms is not None and not 1 <= self.deadline_ms <= DEADLINE_MAX_MS:
            raise WorkerError(f"the deadline is {self.deadline_ms} ms; it must lie within 1 and {DEADLINE_MAX_MS}")
        if self.copies not in COPIES or (self.copies > 1 and self.borrow not in COPIED):
            raise WorkerError(
                f"copies is {self.copies!r}; write 1, or 2 with borrow 'yes', 'quickest' or 'unsure': two other "
                "members have the request at once"
            )
        if self.form not in FORMS:
            raise WorkerError(f"the form is {self.form!r}; write 'lossless', 'raw' or ''")
        if self.priority not in PRIORITIES:
            raise WorkerError(f"the priority is {self.priority!r}; write 1 (high), 2 (normal) or 3 (low)")
        if self.borrow not in BORROWS:
            raise WorkerError(
                f"borrow is {self.borrow!r}; write 'yes', 'quickest', 'unsure', 'split', 'fleet', or '' for this "
                "device alone"
            )


def address_of(status: Mapping[str, Any]) -> str:
    """Where the API of a daemon listens, by what `status` says; raises `ControlError` where there is none."""
    served = status.get("inference")
    if not served or not served["address"]:
        why = (served or {}).get("problem") or "this daemon serves none; set inference.listen (docs/inference-api.md)"
        raise ControlError(f"no inference API: {why}")
    return str(served["address"])


def named(model: str) -> tuple[str, str]:
    """The name as served, and the version where a bundle is meant (`zoo:NAME`, a file); raises `ModelError`."""
    bundle = bundle_of(model)
    return (model, "") if bundle is None else (bundle.name, bundle.digest)


def bundle_of(model: str) -> "Bundle | None":
    """The bundle that is meant (`zoo:NAME`, a file); None: a name as served. Raises `ModelError`."""
    if not (model.startswith("zoo:") or Path(model).suffix in (".toml", ".tflite", ".onnx")):
        return None
    from swarmd_models.bundle import load_bundle

    return load_bundle(model)


PICTURE = {"name": "image", "shape": [-1, -1, -1]}
"""What every `MODEL.detect` takes."""


def infer(
    address: str, model: str, array: "Array", wish: Wish, port: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, "Array"]]:
    """Have a model answer.

    Args:
        address: HOST:PORT of the API.
        model: Name as served; with `.detect` the model takes a picture.
        array: Shape as the model's input; without its first axis where that is the number of items.
        wish: Version, priority, deadline, and who may answer.
        port: The model's input as its metadata have it; None: they are asked for.

    Returns:
        The answer's head, whose `lender` is the member that answered ("": this device), and its outputs by name.

    Raises:
        ControlError: Nobody answers there.
        WorkerError: It refused, and says why.
    """
    path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{wish.version}" if wish.version else "")
    connection = http.client.HTTPConnection(address, timeout=_WAIT_S)
    try:
        return _infer(connection, path, array, wish, port)
    except (OSError, http.client.HTTPException) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ControlError(
            f"no inference API answers at {address} ({why}); `swarmd status` shows its address and its last problem"
        ) from error
    finally:
        connection.close()


def metadata(address: str, model: str, wish: Wish) -> dict[str, Any]:
    """What a model takes and gives, here or at a lender; raises as `infer`."""
    path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{wish.version}" if wish.version else "")
    connection = http.client.HTTPConnection(address, timeout=_WAIT_S)
    try:
        return _call(connection, "GET", path, headers={"Swarmd-Borrow": wish.borrow} if wish.borrow else {})[0]
    except (OSError, http.client.HTTPException) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ControlError(f"no inference API answers at {address} ({why})") from error
    finally:
        connection.close()


def _infer(
    connection: http.client.HTTPConnection, path: str, array: "Array", wish: Wish, port: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, "Array"]]:
    import numpy as np

    from swarmd.worker.oip import OipError, datatype_of, read_outputs

    allowed = {"Swarmd-Borrow": wish.borrow} if wish.borrow else {}
    numbers = (("Swarmd-Grade-Min", wish.grade_min), ("Swarmd-Keep", wish.keep_s))
    allowed |= {"traceparent": wish.cause} if wish.cause else {}
    allowed |= {"Swarmd-Form": wish.form} if wish.form else {}
    allowed |= {header: f"{number:g}" for header, number in numbers if number}
    if port is None:
        (port,) = _call(connection, "GET", path, headers=allowed)[0]["inputs"]
    if array.ndim == len(port["shape"]) - 1:
        array = array[None]
    try:
        datatype = datatype_of(array.dtype)
    except KeyError as error:
        raise WorkerError(f"the array holds {array.dtype}, which the protocol has no name for") from error
    data = np.ascontiguousarray(array).tobytes()
    size = {"binary_data_size": len(data)}
    asked = {
        "inputs": [{"name": port["name"], "shape": list(array.shape), "datatype": datatype, "parameters": size}],
        "parameters": {
            "binary_data_output": True,
            "priority": wish.priority,
            "timeout": (wish.deadline_ms or 0) * 1000,
            **({"copies": wish.copies} if wish.copies > 1 else {}),
        },
    }
    head = json.dumps(asked).encode()
    answer, tail = _call(connection, "POST", path + "/infer", head + data, {_JSON_LENGTH: str(len(head)), **allowed})
    try:
        return answer, dict(read_outputs(answer["outputs"], tail))
    except OipError as error:
        raise WorkerError(str(error)) from error


def _call(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[dict[str, Any], bytes]:
    """One call; the JSON of its answer and what follows it."""
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    data = response.read()
    length = int(response.headers.get(_JSON_LENGTH, len(data)))
    try:
        value = json.loads(data[:length])
    except ValueError as error:
        raise ControlError(f"what answers at {connection.host}:{connection.port} is no inference API") from error
    if response.status == http.client.GATEWAY_TIMEOUT:
        raise WorkerError(f"{value.get('error')} ({response.status}); allow more time, {DEADLINE_MAX_MS} ms at most")
    if response.status != http.client.OK:
        raise WorkerError(f"{value.get('error', 'no reason was given')} ({response.status})")
    value["lender"] = response.headers.get("Swarmd-Lender", "")
    value["parts"] = response.headers.get("Swarmd-Parts", "")
    value["form"] = response.headers.get("Swarmd-Form", "")
    value["kept"] = response.headers.get("Swarmd-Kept", "")
    return dict(value), data[length:]
