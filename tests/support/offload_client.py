"""A program that asks the inference API for one bundle again and again, where the daemon is. One JSON row a request.

python -m tests.support.offload_client ADDRESS NAME DIGEST REQUESTS CLIENTS DEADLINE_MS HOW [PICTURES.npy [FORM]]

With an empty DIGEST the newest of that name is asked. Pictures are asked about in turn.
FORM is the header `Swarmd-Form`.
"""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import quote

import numpy as np

from swarmd.worker.oip import JSON_LENGTH, read_outputs
from swarmd_models.bundle import ZOO

Row = dict[str, Any]


def ask_all(
    address: str, bundle: tuple[str, str], requests: int, clients: int, deadline_ms: int, how: str,
    told: Callable[[Row], None] = lambda row: None, pictures: "np.ndarray | None" = None, copies: int = 1,
    is_more: Callable[[int], bool] | None = None, form: str = "",
) -> list[Row]:  # fmt: skip
    """What came of so many requests of so many clients at once; `told` of each as it comes.

    Args:
        address: Of the API.
        bundle: Name and digest.
        requests: In all.
        clients: At once.
        deadline_ms: Of each.
        how: The header `Swarmd-Borrow`.
        told: Called in a client's thread, one at a time.
        copies: Lenders that work on each at once.
        is_more: Whether a request of this number is asked; None: so many in all.
        pictures: N x rows x columns x channels; None: the golden one of small-320.
        form: The header `Swarmd-Form`; "": none.
    """
    if pictures is None:
        pictures = np.load(ZOO / "small-320.golden.npz")["image"][None, ..., None]
    tensor = {"name": "image", "shape": pictures.shape[1:], "datatype": "UINT8"}
    head = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": pictures[0].nbytes}}],
            "parameters": {"timeout": deadline_ms * 1000, "binary_data_output": True, "copies": copies},
        }
    ).encode()
    name, digest = quote(bundle[0], safe=""), bundle[1]
    path = f"/v2/models/{name}.detect{f'/versions/{digest}' if digest else ''}/infer"
    headers = {JSON_LENGTH: str(len(head)), "Swarmd-Borrow": how} | ({"Swarmd-Form": form} if form else {})
    goes_on = is_more or (lambda number: number < requests)
    numbers, lock, rows = count(), threading.Lock(), list[Row]()

    def ask() -> None:
        connection = http.client.HTTPConnection(address, timeout=120.0)
        while goes_on(number := next(numbers)):
            began_s = time.monotonic()
            connection.request("POST", path, head + pictures[number % len(pictures)].tobytes(), headers)
            response = connection.getresponse()
            data = response.read()
            row: Row = {"number": number, "status": response.status}
            row |= {"lender": response.headers.get("Swarmd-Lender", ""), "began_ns": round(began_s * 1e9)}
            row["ms"] = round((time.monotonic() - began_s) * 1e3, 1)
            if response.status == 200:
                length = int(response.headers[JSON_LENGTH])
                outputs = dict(read_outputs(json.loads(data[:length])["outputs"], data[length:]))
                row["labels"], row["boxes"] = outputs["labels"].tolist(), outputs["boxes"].tolist()
                row["version"] = json.loads(data[:length])["model_version"]
                row["form"] = response.headers.get("Swarmd-Form", "")
                row["parts"] = response.headers.get("Swarmd-Parts", "")
            with lock:
                rows.append(row)
                told(row)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def main(
    address: str,
    name: str,
    digest: str,
    requests: str,
    clients: str,
    deadline_ms: str,
    how: str,
    pictures: str = "",
    form: str = "",
) -> None:
    """Print each row."""
    ask_all(
        address, (name, digest), int(requests), int(clients), int(deadline_ms), how,
        lambda row: print(json.dumps(row), flush=True), np.load(pictures) if pictures else None,
        form=form,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
