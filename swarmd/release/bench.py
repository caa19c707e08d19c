"""`swarmd bench delta OLD NEW`: our deltas beside those of the tools people use, same files, same machine, same run.

Tools that are not installed are left out and named. Times are CPU seconds of this process and its children; every
delta is applied and compared before it is counted.
"""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from swarmd.release.delta import codec, residual
from swarmd.release.delta.flatbuffer import regions
from swarmd.release.errors import DeltaError

Coder = tuple[Callable[[], bytes], Callable[[bytes], bytes]]


def measure(old: bytes, new: bytes) -> dict[str, Any]:
    """Bytes and times of every coder on one pair.

    Returns:
        `file_bytes`, `coders` {name: bytes, ratio, encode_s, decode_s}, `missing` tools, `best_ours`, `best_generic`,
        their `ratio_to_generic`, and `floor_bytes`: the adaptive entropy estimate of the residual, or None.
    """
    coders, missing = _generic(old, new)
    rows = {name: _row(name, coder, new) for name, coder in {**_ours(old, new), **coders}.items()}
    ours = {name: row for name, row in rows.items() if name.startswith("swarmd ")}
    generic = {name: row for name, row in rows.items() if name not in ours and not name.startswith("full")}
    best_ours = min(ours, key=lambda name: ours[name]["bytes"])
    best_generic = min(generic, key=lambda name: generic[name]["bytes"], default="")
    floor = entropy_floor(old, new)
    return {
        "file_bytes": len(new),
        "coders": rows,
        "missing": missing,
        "best_ours": best_ours,
        "decode_memory_bytes": {
            name: decode_memory_bytes(old, delta, new) for name, delta in sorted(codec.make_all(old, new).items())
        },
        "best_generic": best_generic,
        "ratio": rows[best_ours]["ratio"],
        "ratio_to_generic": round(rows[best_ours]["bytes"] / rows[best_generic]["bytes"], 3) if generic else None,
        "floor_bytes": floor,
        "over_floor": round(rows[best_ours]["bytes"] / floor - 1, 4) if floor else None,
    }


_MEMORY_SCRIPT = """
import sys
from pathlib import Path
from swarmd.release.delta.codec import apply_delta
def field(name):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if name in line)
Path("/proc/self/clear_refs").write_text("5")
before = field("VmRSS")
new = apply_delta(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_bytes(), int(sys.argv[3]))
print((field("VmHWM") - before) * 1024)
"""


def decode_memory_bytes(old: bytes, delta: bytes, new: bytes) -> int | None:
    """How much more memory a fresh process takes to decode a delta, files included; None where it cannot be asked."""
    with tempfile.TemporaryDirectory(prefix="swarmd-bench-") as folder:
        base, patch = Path(folder, "base"), Path(folder, "delta")
        base.write_bytes(old)
        patch.write_bytes(delta)
        command = [sys.executable, "-c", _MEMORY_SCRIPT, str(base), str(patch), str(len(new))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    return int(done.stdout) if done.returncode == 0 else None


def _row(name: str, coder: Coder, new: bytes) -> dict[str, Any]:
    before = _cpu_s()
    packed = coder[0]()
    between = _cpu_s()
    if coder[1](packed) != new:
        raise DeltaError(f"{name} did not give the file back")
    after = _cpu_s()
    return {
        "bytes": len(packed),
        "ratio": round(len(packed) / len(new), 4),
        "encode_s": round(between - before, 3),
        "decode_s": round(after - between, 3),
    }


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _ours(old: bytes, new: bytes) -> dict[str, Coder]:
    """Each of our codecs; encoding is timed for all together, because the publisher always makes all."""
    made = codec.make_all(old, new)

    def coder(name: str) -> Coder:
        return lambda: made[name], lambda delta: codec.apply_delta(old, delta, len(new))

    best = min(made, key=lambda name: (len(made[name]), name))
    every = {f"swarmd {name}": coder(name) for name in made}
    every[f"swarmd {best}"] = (lambda: codec.make_all(old, new)[best], coder(best)[1])
    return every


def _generic(old: bytes, new: bytes) -> tuple[dict[str, Coder], list[str]]:
    from swarmd.release.delta.bounded import brotlied, unbrotli

    coders: dict[str, Coder] = {
        "full brotli-11": (lambda: brotlied(new), lambda packed: unbrotli(packed, len(new))),
    }
    missing = []
    for name, make in (("bsdiff4", _bsdiff4), ("detools hdiffpatch", _detools), ("zstandard raw-dict", _zstandard)):
        coder = make(old, new)
        if coder is None:
            missing.append(name)
        else:
            coders[name] = coder
    for name, encode, decode in (
        (
            "xdelta3 -9 -S lzma",
            ["xdelta3", "-q", "-f", "-e", "-9", "-S", "lzma", "-s", "OLD", "NEW", "OUT"],
            ["xdelta3", "-q", "-f", "-d", "-s", "OLD", "IN", "OUT"],
        ),
        (
            "zstd --patch-from -19",
            ["zstd", "-q", "-q", "-f", "-19", "--long=27", "--patch-from=OLD", "NEW", "-o", "OUT"],
            ["zstd", "-q", "-q", "-f", "-d", "--patch-from=OLD", "IN", "-o", "OUT"],
        ),
    ):
        if shutil.which(encode[0]):
            coders[name] = _tool(old, new, encode, decode)
        else:
            missing.append(name)
    return coders, missing


def _module(name: str) -> Any:
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return None


def _bsdiff4(old: bytes, new: bytes) -> Coder | None:
    module = _module("bsdiff4")
    return None if module is None else (lambda: module.diff(old, new), lambda patch: module.patch(old, patch))


def _zstandard(old: bytes, new: bytes) -> Coder | None:
    module = _module("zstandard")
    if module is None:
        return None

    def dictionary() -> Any:
        return module.ZstdCompressionDict(old, dict_type=module.DICT_TYPE_RAWCONTENT)

    def encode() -> bytes:
        parameters = module.ZstdCompressionParameters.from_level(19, window_log=24, enable_ldm=True)
        packed: bytes = module.ZstdCompressor(compression_params=parameters, dict_data=dictionary()).compress(new)
        return packed

    def decode(packed: bytes) -> bytes:
        unpacked: bytes = module.ZstdDecompressor(dict_data=dictionary(), max_window_size=1 << 25).decompress(packed)
        return unpacked

    return encode, decode


def _detools(old: bytes, new: bytes) -> Coder | None:
    module = _module("detools")
    if module is None:
        return None

    def in_files(work: Callable[[Path, Path, Path], None], second: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            one, two, out = (Path(folder, name) for name in ("one", "two", "out"))
            one.write_bytes(old)
            two.write_bytes(second)
            work(one, two, out)
            return out.read_bytes()

    def encode() -> bytes:
        def work(one: Path, two: Path, out: Path) -> None:
            with one.open("rb") as before, two.open("rb") as after, out.open("wb") as patch:
                module.create_patch(
                    before, after, patch, algorithm="hdiffpatch", patch_type="hdiffpatch", compression="lzma"
                )

        return in_files(work, new)

    def decode(patch: bytes) -> bytes:
        return in_files(lambda one, two, out: module.apply_patch_filenames(str(one), str(two), str(out)), patch)

    return encode, decode


def _tool(old: bytes, new: bytes, encode: list[str], decode: list[str]) -> Coder:
    def run(command: list[str], data: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            names = {name: str(Path(folder, name)) for name in ("OLD", "NEW", "IN", "OUT")}
            Path(names["OLD"]).write_bytes(old)
            Path(names["NEW"]).write_bytes(data)
            Path(names["IN"]).write_bytes(data)
            filled = [names.get(part, part) for part in command]
            filled = [part.replace("--patch-from=OLD", f"--patch-from={names['OLD']}") for part in filled]
            subprocess.run(filled, check=True, capture_output=True)
            return Path(names["OUT"]).read_bytes()

    return lambda: run(encode, new), lambda packed: run(decode, packed)


def entropy_floor(old: bytes, new: bytes) -> int | None:
    """What an ideal adaptive coder would spend on the residual, bytes; None when the files are no `.tflite`.

    One-byte numbers: an adaptive order-0 coder under nine contexts (sum of the two residuals before, three steps, times
    the size of the old weight, three steps), learning cost included; other planes: order-0 entropy. An estimate of a
    floor, not a proof of one.
    """
    try:
        pairs = residual.pair_regions(old, regions(old), new, regions(new))
    except DeltaError:
        return None
    total = 0.0
    for pair in pairs:
        planes = residual.planes_of(old, pair.old_start, new, pair.new_start, pair.size, pair.kind)
        for plane in planes:
            if pair.kind != "i1":
                counts = np.bincount(plane, minlength=256)
                used = counts[counts > 0]
                total += float(-(used * np.log2(used / counts.sum())).sum()) / 8
                continue
            size = np.minimum(plane, 60).astype(int)
            before = np.zeros(len(plane), int)
            before[1:] += size[:-1]
            before[2:] += size[:-2]
            weights = np.abs(np.frombuffer(old, np.int8, pair.size, pair.old_start).astype(int))
            contexts = np.digitize(before, [1, 4, 8]) * 3 + np.digitize(weights, [8, 40])
            total += _adaptive_bytes(plane, contexts)
    return round(total)


def _adaptive_bytes(symbols: "residual.U8", contexts: Any) -> float:
    """Ideal code length of a coder that learns each context's frequencies as it goes."""
    total = 0.0
    for context in range(int(contexts.max(initial=0)) + 1):
        mine = symbols[contexts == context]
        if not len(mine):
            continue
        # Krichevsky-Trofimov with weight 0.4/12 on each of 256 symbols, in closed form: the order does not matter.
        counts = np.bincount(mine, minlength=256).astype(float)
        weight = 0.4 / 12
        total -= _log2_rising(weight, counts).sum() - _log2_rising(256 * weight, np.array([counts.sum()])).sum()
    return total / 8


def _log2_rising(start: float, counts: Any) -> Any:
    """log2 of start (start + 1) … (start + count - 1), for each count."""
    from math import lgamma, log

    return np.array([(lgamma(start + count) - lgamma(start)) / log(2) for count in counts])
