"""`swarmd infer MODEL --input FILE`: ask the inference API of this device.

A picture is seen through all of the bundle, a `.npy` through its graph. Exit status: 0 answered, 1 refused (said in one
sentence), 2 usage, 3 no API is reachable.
"""

import argparse
import http.client
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from swarmd.cli.common import add_control, add_json, ask, print_json, print_table
from swarmd.errors import ControlError, WorkerError

if TYPE_CHECKING:
    from swarmd_models.backends.base import Array

_JSON_LENGTH = "Inference-Header-Content-Length"
_WAIT_S = 70.0
"""Seconds for an answer: longer than the latest deadline that the API takes."""
DEADLINE_MAX_MS = 60_000
"""Milliseconds: the latest deadline that the API takes (`TIMEOUT_MAX_MS` of the worker, which a client loads not)."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb's flags."""
    parser = subparsers.add_parser("infer", help="ask the inference API of this device")
    parser.add_argument(
        "model", metavar="MODEL", help="name as served, or a bundle (zoo:NAME, .toml): exactly that one"
    )
    parser.add_argument(
        "--input", required=True, metavar="FILE", help="a picture: detections; a .npy array: the graph's outputs"
    )
    parser.add_argument("--out", default="", metavar="FILE.npz", help="write the outputs there")
    parser.add_argument("--url", default="", metavar="HOST:PORT", help="the API (default: that of the daemon here)")
    parser.add_argument("--priority", type=int, choices=(1, 2, 3), default=2, help="1 is the most urgent")
    parser.add_argument("--borrow", action="store_true", help="another member may answer (lending.borrow)")
    parser.add_argument(
        "--unsure", action="store_true", help="better models of others are asked where the own one is in doubt "
        "(lending.plan)"
    )  # fmt: skip
    parser.add_argument(
        "--grade-min", type=float, default=0.0, metavar="G", help="with able:ABILITY as MODEL: the least grade"
    )
    parser.add_argument("--keep-s", type=float, default=0.0, metavar="N", help="a borrowed answer may be kept so long")
    parser.add_argument("--version", default="", metavar="DIGEST", help="exactly this bundle; needed to borrow by name")
    parser.add_argument("--deadline-ms", type=int, metavar="N", help="answer within so many milliseconds")
    add_control(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Ask once.

    Raises:
        ControlError: No API is reachable.
        WorkerError: It refused, or the file cannot be used.
    """
    import numpy as np

    if args.deadline_ms is not None and not 1 <= args.deadline_ms <= DEADLINE_MAX_MS:
        raise WorkerError(f"--deadline-ms is {args.deadline_ms}; it must lie within 1 and {DEADLINE_MAX_MS}")
    address = args.url or _address(args)
    model, version = _named(args.model)
    version = args.version or version
    array = _read(Path(args.input))
    is_picture = Path(args.input).suffix != ".npy"
    name = f"{model}.detect" if is_picture and not model.endswith(".detect") else model
    path = f"/v2/models/{quote(name, safe='')}" + (f"/versions/{version}" if version else "")
    connection = http.client.HTTPConnection(address, timeout=_WAIT_S)
    try:
        head, outputs = _infer(connection, path, array, args)
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(
            f"no inference API answers at {address} ({_reason(error)}); `swarmd status` shows its address and its last "
            "problem"
        ) from error
    finally:
        connection.close()
    if args.out:
        np.savez(args.out, **cast(dict[str, Any], outputs))
    _show(head, outputs, args)
    return 0


def _address(args: argparse.Namespace) -> str:
    served = ask(args, "status").get("inference")
    if not served or not served["address"]:
        why = (served or {}).get("problem") or "this daemon serves none; set inference.listen (docs/inference-api.md)"
        raise ControlError(f"no inference API: {why}")
    return str(served["address"])


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _named(model: str) -> tuple[str, str]:
    """The name as served, and the version where a bundle is meant."""
    if not (model.startswith("zoo:") or Path(model).suffix in (".toml", ".tflite", ".onnx")):
        return model, ""
    from swarmd_models.bundle import load_bundle

    bundle = load_bundle(model)
    return bundle.name, bundle.digest


def _read(path: Path) -> "Array":
    import numpy as np

    try:
        if path.suffix == ".npy":
            try:
                array: Array = np.load(path, allow_pickle=False)
            except ValueError as error:  # NumPy speaks of pickles, which nobody should load.
                raise WorkerError(f"{path} is no .npy array of numbers") from error
            return array
        import cv2

        image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_ANYCOLOR)
    except (OSError, ValueError) as error:
        raise WorkerError(f"{path} cannot be read: {_reason(error)}") from error
    if image is None:
        raise WorkerError(f"{path} is no picture that OpenCV reads, and no .npy")
    return image[..., None] if image.ndim == 2 else image


def _infer(
    connection: http.client.HTTPConnection, path: str, array: "Array", args: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, "Array"]]:
    import numpy as np

    from swarmd.worker.oip import OipError, datatype_of, read_outputs

    allowed = {"Swarmd-Borrow": "unsure" if args.unsure else "yes"} if args.borrow or args.unsure else {}
    wishes = (("Swarmd-Grade-Min", args.grade_min), ("Swarmd-Keep", args.keep_s))
    allowed |= {header: f"{number:g}" for header, number in wishes if number}
    (port,) = _call(connection, "GET", path, headers=allowed)[0]["inputs"]
    if array.ndim == len(port["shape"]) - 1:
        array = array[None]
    try:
        datatype = datatype_of(array.dtype)
    except KeyError as error:
        raise WorkerError(f"{args.input} holds {array.dtype}, which the protocol has no name for") from error
    data = np.ascontiguousarray(array).tobytes()
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": port["name"],
                    "shape": list(array.shape),
                    "datatype": datatype,
                    "parameters": {"binary_data_size": len(data)},
                }
            ],
            "parameters": {
                "binary_data_output": True,
                "priority": args.priority,
                "timeout": (args.deadline_ms or 0) * 1000,
            },
        }
    ).encode()
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
        raise WorkerError(f"{value.get('error')} ({response.status}); allow more time: --deadline-ms N, 60000 at most")
    if response.status != http.client.OK:
        raise WorkerError(f"{value.get('error', 'no reason was given')} ({response.status})")
    value["lender"] = response.headers.get("Swarmd-Lender", "")
    value["parts"] = response.headers.get("Swarmd-Parts", "")
    value["kept"] = response.headers.get("Swarmd-Kept", "")
    return dict(value), data[length:]


def _show(head: dict[str, Any], outputs: dict[str, "Array"], args: argparse.Namespace) -> None:
    if "labels" in outputs:
        rows = [
            {"label": label, "score": round(float(score), 4), "box": [round(float(side), 2) for side in box]}
            for label, score, box in zip(outputs["labels"], outputs["scores"], outputs["boxes"], strict=True)
        ]
        if args.json:
            print_json({**_answerer(head), "detections": rows})
            return
        print_table(("label", "score", "box"), ([r["label"], r["score"], " ".join(map(str, r["box"]))] for r in rows))
    else:
        shapes = {name: {"datatype": str(array.dtype), "shape": array.shape} for name, array in outputs.items()}
        if args.json:
            print_json({**_answerer(head), "outputs": shapes})
            return
        print_table(("output", "type", "shape"), ([n, s["datatype"], s["shape"]] for n, s in shapes.items()))
    by = f", answered by {head['lender']}" if head["lender"] else ""
    took_us = head["parameters"]["took_us"]
    print(f"{head['model_name']} {head['model_version'][:16]}, {took_us} us{by}", file=sys.stderr)


def _answerer(head: dict[str, Any]) -> dict[str, Any]:
    told = {"model": head["model_name"], "version": head["model_version"]}
    return told | {key: head[key] for key in ("lender", "parts", "kept") if head[key]}
