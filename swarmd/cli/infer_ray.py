"""A batch that is more than the fleet can hold, on Ray at the base: `swarmd infer BUNDLE --input FOLDER --ray WHERE`.

The same bundle, the same frames, the same lines as `--fleet` gives (`infer_batch.py`). The bundle's files travel once,
to each worker of the cluster, which loads them and holds them to the digest; nothing of a daemon is asked. A worker
that dies is started again by Ray, three times at most, and its frames with it.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from swarmd.cli.infer_batch import frames_of, rows_of
from swarmd.errors import WorkerError

if TYPE_CHECKING:
    from swarmd_models.backends.base import Array

LOCAL = "local"
"""In place of an address: a cluster of this machine alone, which ends with the batch."""
FRAMES_EACH = 8
"""Of one task: fewer cost Ray's own millisecond a task more often, more keep a slow worker's last task waiting."""
UNDER_WAY = 2
"""Tasks of one worker at once: the next one lies there when it is through."""
_RESTARTS = 3
_ANSWER_S = 600.0
"""Seconds without any answer after which a cluster is given up: it may have no worker to give."""


class Judge:
    """What runs in one worker of the cluster."""

    def __init__(self, files: dict[str, bytes], name: str, digest: str, backends: tuple[str, ...]) -> None:
        """Load the bundle; raises `ArtefactError` where it is not that one."""
        from swarmd_models.bundle import load_bundle
        from swarmd_models.detector import DetectorOptions
        from swarmd_models.errors import ArtefactError
        from swarmd_models.service import DETECT, Service

        self._folder = tempfile.TemporaryDirectory(prefix="swarmd-ray-")
        folder = Path(self._folder.name)
        for relative, content in files.items():
            place = folder / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        bundle = load_bundle(folder / name)
        if bundle.digest != digest:
            raise ArtefactError(f"{name} is another bundle here: {bundle.digest[:16]}, not {digest[:16]}")
        self._service = Service.open(bundle, DetectorOptions(backends), lambda text: None)
        if DETECT not in self._service.lanes:
            raise ArtefactError(f"{bundle.name} sees no pictures; a batch is of pictures")

    def look(self, frames: "list[tuple[str, Array]]") -> "list[tuple[str, list[dict[str, Any]] | str, str]]":
        """Name, detections or what is wrong, and where, of each frame."""
        import socket

        from swarmd_models.errors import ModelError
        from swarmd_models.service import DETECT

        here, found = socket.gethostname(), []
        for name, image in frames:
            told: list[dict[str, Any]] | str
            try:
                run = self._service.steps(DETECT, {"image": image})
                for _ in range(run.units):
                    run.step()
                told = rows_of(run.result())
            except ModelError as error:
                told = str(error)
            found.append((name, told, here))
        return found


def run_ray(args: argparse.Namespace) -> int:
    """Have a cluster look at every frame; 0 where all were answered, else 1.

    Raises:
        WorkerError: Ray is not installed or not to be reached, or the bundle, the frames or the output cannot be used.
    """
    files, name, digest = _packed(args.model)
    try:
        import ray
    except ImportError as error:
        raise WorkerError("--ray needs Ray: pip install 'swarmd[ray]'") from error
    try:
        out = open(args.out, "w", encoding="utf-8") if args.out else sys.stdout  # noqa: SIM115
    except OSError as error:
        raise WorkerError(f"{args.out} cannot be written: {error.strerror}") from error
    began_s = time.monotonic()
    try:
        is_own = _begin(ray, args.ray)
        try:
            batch = _Batch(ray, files, name, digest, out)
            batch.run(frames_of(Path(args.input)))
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise WorkerError(f"the batch failed on Ray: {str(cause).strip().splitlines()[-1][:300]}") from error
        finally:
            if is_own:
                ray.shutdown()
    finally:
        if out is not sys.stdout:
            out.close()
    if not batch.answered.total() and not batch.failed:
        raise WorkerError(f"{args.input} holds no picture that could be read")
    by = ", ".join(f"{device} {count}" for device, count in batch.answered.most_common())
    took_s = time.monotonic() - began_s
    print(f"{batch.answered.total()} frames answered in {took_s:.1f} s, {batch.failed} not: {by}", file=sys.stderr)
    return 1 if batch.failed else 0


def _begin(ray: Any, address: str) -> bool:
    """Join a cluster, or start one of one's own; whether it is for this command to leave it."""
    if ray.is_initialized():
        return False
    where = {"include_dashboard": False} if address == LOCAL else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WorkerError(f"no Ray cluster at {address}: {first[:300]}") from error
    return True


class _Batch:
    def __init__(self, ray: Any, files: dict[str, bytes], name: str, digest: str, out: TextIO) -> None:
        self._ray = ray
        self._digest = digest
        self._out = out
        self.answered: Counter[str] = Counter()
        """By worker's machine."""
        self.failed = 0
        count = max(1, int(ray.cluster_resources().get("CPU", 1)))
        made = ray.remote(num_cpus=1, max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(Judge)
        held = ray.put(files)
        self._judges = [made.remote(held, name, digest, ("litert", "onnx")) for _ in range(count)]

    def run(self, frames: "Iterator[tuple[str, Array | None]]") -> None:
        """All of them, each once, as they come."""
        waiting: dict[Any, Any] = {}
        free = [judge for judge in self._judges for _ in range(UNDER_WAY)]
        chunks = self._chunks(frames)
        while True:
            while free and (chunk := next(chunks, None)):
                judge = free.pop()
                waiting[judge.look.remote(chunk)] = judge
            if not waiting:
                return
            ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=_ANSWER_S)
            if not ready:
                raise WorkerError(f"the cluster has answered nothing for {_ANSWER_S:.0f} s; has it a worker to give?")
            for one in ready:
                free.append(waiting.pop(one))
                for name, told, where in self._ray.get(one):
                    self._write(name, told, where)

    def _chunks(self, frames: "Iterator[tuple[str, Array | None]]") -> "Iterator[list[tuple[str, Array]]]":
        chunk: list[tuple[str, Array]] = []
        for name, image in frames:
            if image is None:
                self._write(name, "no picture that OpenCV reads", "")
                continue
            chunk.append((name, image))
            if len(chunk) == FRAMES_EACH:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _write(self, name: str, told: "list[dict[str, Any]] | str", where: str) -> None:
        if isinstance(told, str):
            self.failed += 1
            row: dict[str, Any] = {"frame": name, "error": told}
        else:
            self.answered[f"ray:{where}"] += 1
            row = {"frame": name, "version": self._digest, "lender": f"ray:{where}", "detections": told}
        self._out.write(json.dumps(row) + "\n")


def _packed(model: str) -> tuple[dict[str, bytes], str, str]:
    """A bundle's files by their names from its folder, its description's name, and its digest."""
    from swarmd_models.bundle import load_bundle, resolve
    from swarmd_models.errors import ModelError

    if not (model.startswith("zoo:") or Path(model).suffix in (".toml", ".tflite", ".onnx")):
        raise WorkerError(f"{model}: name the bundle (zoo:NAME, a .toml); a cluster knows no names of this device's")
    try:
        bundle, path = load_bundle(model), resolve(model)
        folder = path.parent.resolve()
        files = {str(one.resolve().relative_to(folder)): one.read_bytes() for one in (path, *bundle.files())}
    except (ModelError, OSError, ValueError) as error:
        raise WorkerError(f"{model} cannot be sent: {error}") from error
    return files, path.name, bundle.digest
