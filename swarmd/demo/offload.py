"""`swarmd demo --offload`: two weak drones and a station that thinks for them. Real daemons on loopback.

    drone-1 (no model) ── every frame ────────────────┐
    drone-2 (tiny-224) ── one frame in three ─────────┴─▶ station (small-320, lends)

Both drones fly over the same rendered farm and ask the inference API of their own daemon, as any program would; frames
go from worker to worker, since they are larger than what the brains carry. A module is called faulty when two of the
frames that show it say so. It is told what each drone finds by itself and with the station.
"""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from swarmd.api.control import ControlClient
from swarmd.errors import ControlError, DaemonError
from swarmd.worker.oip import JSON_LENGTH, OipError, read_outputs
from swarmd_models.bundle import load_bundle
from swarmd_models.geo.geolocate import ray_to_ground
from swarmd_models.types import Frame
from swarmd_sim.world.source import FarmSource, parse_farm_url

STATION, SMALL = "zoo:small-320", "zoo:tiny-224"
"""medium-640 finds less on farms that are drawn, not seen: they are blurrier than what it was made for."""
ASK_EVERY = 3
"""Of the frames of the drone that has a model: each module is in ten of them, and so in three that the station sees."""
VIEWS = 2
"""Frames that must call a module faulty."""
DEADLINE_US = 60_000_000
"""Microseconds for one frame: a station on a busy machine of two cores."""
_START_S = 120.0
"""Seconds until the daemons know each other and have loaded their models."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class OffloadOptions:
    """What is flown."""

    frames: int = 60
    seed: int = 7
    faults: float = 0.1
    fps: float = 5.0
    noise: float = 4.0
    """Of the cameras, in ordinary ones': cheap drones."""
    size: str = "640x512"


@dataclass(slots=True)
class Finds:
    """What one way of looking has seen: views that call a module faulty, by module."""

    views: Counter[str] = field(default_factory=Counter)
    frames: int = 0
    unanswered: int = 0
    bytes_sent: int = 0
    lenders: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)

    def against(self, seen: set[str], truth: set[str]) -> dict[str, Any]:
        """Found and false, of what was in sight."""
        called = {asset for asset, count in self.views.items() if count >= VIEWS}
        row: dict[str, Any] = {
            "faults": len(truth & seen), "found": len(called & truth), "false": len(called - truth),
            "frames": self.frames, "unanswered": self.unanswered,
        }  # fmt: skip
        if self.lenders:
            row |= {"lenders": dict(self.lenders), "mib_sent": round(self.bytes_sent / 2**20, 1)}
            row["p50_ms"] = round(float(np.median(self.took_s)) * 1e3, 1)
        return row


@dataclass(slots=True)
class _Daemon:
    name: str
    control: Path
    process: asyncio.subprocess.Process

    async def ask(self) -> dict[str, Any]:
        """Its status; {} while it does not answer."""

        def call() -> dict[str, Any]:
            with ControlClient(self.control, 10.0) as client:
                return client.call("status")

        try:
            return await asyncio.to_thread(call)
        except ControlError:
            return {}


class OffloadDemo:
    """Three daemons, two flights."""

    def __init__(self, options: OffloadOptions, say: Callable[[str], None]) -> None:
        """Prepare; `run` flies. `say` is told what goes on."""
        self._options = options
        self._say = say
        self._digest = load_bundle(STATION).digest
        self._model = load_bundle(STATION).name

    async def run(self) -> dict[str, Any]:
        """The whole story; raises `DaemonError` where it does not come to pass."""
        with tempfile.TemporaryDirectory(prefix="swarmd-offload-") as folder:
            daemons: list[_Daemon] = []
            try:
                return await self._story(Path(folder), daemons)
            finally:
                for daemon in daemons:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(daemon.process.pid, signal.SIGKILL)
                    await daemon.process.wait()

    async def _story(self, folder: Path, daemons: list[_Daemon]) -> dict[str, Any]:
        began_s = time.monotonic()
        rows = (
            ("station", (STATION,), "lend=true"),
            ("drone-1", (), "borrow=true"),
            ("drone-2", (SMALL,), "borrow=true"),
        )
        for name, models, lending in rows:
            join = (await daemons[0].ask()).get("address", "") if daemons else ""
            daemons.append(await self._spawn(folder, name, models, lending, join))
            await self._until(daemons[-1], lambda status: bool(status), "to come up")
        _, bare, small = daemons
        for drone in (bare, small):
            offered = "an offer of the station's"
            await self._until(drone, lambda status: self._digest in _offered(status), offered)
        await self._until(small, lambda status: bool((status.get("inference") or {}).get("models")), "its model")
        self._say(f"three daemons are up after {time.monotonic() - began_s:.1f} s; the station lends {STATION}")
        flight = Flight(self._options)
        finds = {
            "drone-1 alone": Finds(),
            "drone-1 with the station": await self._fly(flight, bare, own="", every=1),
            "drone-2 alone": await self._fly(flight, small, own=load_bundle(SMALL).name, every=0),
            "drone-2 with the station": await self._fly(flight, small, own=load_bundle(SMALL).name, every=ASK_EVERY),
        }
        finds["drone-1 alone"].frames = self._options.frames
        return {
            "rows": {name: one.against(flight.seen, flight.truth) for name, one in finds.items()},
            "station": (await daemons[0].ask())["lending"]["counts"],
            "seconds": round(time.monotonic() - began_s, 1),
        }

    async def _fly(self, flight: "Flight", drone: _Daemon, own: str, every: int) -> Finds:
        """All frames: each by the own model, if there is one; one in `every` by the station."""
        address = (await drone.ask())["inference"]["address"]
        finds = Finds()
        path = f"/v2/models/{self._model}.detect/versions/{self._digest}/infer"
        connection = http.client.HTTPConnection(address, timeout=90.0)
        with contextlib.closing(connection):
            for frame in flight.frames():
                finds.frames += 1
                if own:
                    await self._look(finds, flight, frame, connection, f"/v2/models/{own}.detect/infer", {})
                if every and frame.index % every == 0:
                    await self._look(finds, flight, frame, connection, path, {"Swarmd-Borrow": "yes"})
        self._say(f"{drone.name}{' with the station' if every else ''}: {finds.against(flight.seen, flight.truth)}")
        return finds

    async def _look(
        self,
        finds: Finds,
        flight: "Flight",
        frame: Frame,
        connection: http.client.HTTPConnection,
        path: str,
        headers: dict[str, str],
    ) -> None:
        began_s = time.monotonic()
        answer = await asyncio.to_thread(_ask, connection, path, frame.image, headers)
        if answer is None:
            finds.unanswered += 1
            return
        lender, boxes = answer
        if headers:
            finds.lenders[lender] += 1
            finds.bytes_sent += frame.image.nbytes
            finds.took_s.append(time.monotonic() - began_s)
        for asset in {asset for box in boxes if (asset := flight.asset_at(frame, box))}:
            finds.views[asset] += 1

    async def _spawn(self, folder: Path, name: str, models: tuple[str, ...], lending: str, join: str) -> _Daemon:
        config = folder / f"{name}.toml"
        config.write_text(
            '[log]\nlevel = "warning"\n[http]\nlisten = "off"\n'
            f'[inference]\nlisten = "127.0.0.1:0"\nmodels = {json.dumps(models)}\n'
            f'[lending]\n{lending}\n' + ('tensors = "127.0.0.1:0"\n' if lending.startswith("borrow") else "")
        )  # fmt: skip
        control = folder / f"{name}.sock"
        with (folder / f"{name}.err").open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "swarmd", "run", "--dev-fleet", str(folder / "fleet"), "--name", name),
                *("--config", str(config), "--listen", "127.0.0.1:0", "--state", str(folder / name), "--no-eye"),
                *("--control", str(control), *(("--join", join) if join else ())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
            )
        return _Daemon(name, control, process)

    async def _until(self, daemon: _Daemon, done: Callable[[dict[str, Any]], bool], what: str) -> None:
        deadline_s = time.monotonic() + _START_S
        while not done(await daemon.ask()):
            if time.monotonic() > deadline_s or daemon.process.returncode is not None:
                told = daemon.control.with_suffix(".err").read_text()[-500:]
                raise DaemonError(f"{daemon.name} waited for {what} in vain; it said: {told or 'nothing'}")
            await asyncio.sleep(_POLL_S)


class Flight:
    """The same frames each time, and what is on the ground in them."""

    def __init__(self, options: OffloadOptions) -> None:
        self._address = (
            f"sim://farm?seed={options.seed}&faults={options.faults}&frames={options.frames}&size={options.size}&fly=lanes"
            f"&fps={options.fps}&noise={options.noise}"
            "&pace=max&position_sigma=0&attitude_sigma=0"
        )
        source = FarmSource(parse_farm_url(self._address))
        assert source.intrinsics is not None
        self._farm, self._intrinsics = source.farm, source.intrinsics
        self.truth = {fault.asset for fault in self._farm.truth()}
        self.seen: set[str] = set()
        """Modules that lay in sight of two frames or more."""
        counts: Counter[str] = Counter()
        for frame in self.frames():
            counts.update(self._in_sight(frame))
        self.seen = {asset for asset, count in counts.items() if count >= VIEWS}

    def frames(self) -> Iterator[Frame]:
        """All frames, anew."""
        source = FarmSource(parse_farm_url(self._address))
        while (frame := source.read()) is not None:
            yield frame

    def asset_at(self, frame: Frame, box: np.ndarray) -> str:
        """The module under the middle of a box; "": none."""
        return self._under(frame, float(box[0] + box[2]) / 2, float(box[1] + box[3]) / 2)

    def _in_sight(self, frame: Frame) -> set[str]:
        height, width = frame.image.shape[:2]
        points = ((u, v) for u in range(8, width, 12) for v in range(8, height, 12))
        return {asset for u, v in points if (asset := self._under(frame, u, v))}

    def _under(self, frame: Frame, u: float, v: float) -> str:
        assert frame.pose is not None
        fix = ray_to_ground(self._intrinsics, frame.pose, u, v)
        if fix is None:
            return ""
        east_m, north_m = self._farm.to_plane(frame.pose.latitude_deg, frame.pose.longitude_deg)
        return self._farm.asset_at(east_m + fix.east_m, north_m + fix.north_m, max_m=0.2)


def _offered(status: dict[str, Any]) -> list[str]:
    return list((status.get("lending") or {}).get("lenders", {}).get("station", []))


def _ask(
    connection: http.client.HTTPConnection, path: str, image: np.ndarray, headers: dict[str, str]
) -> tuple[str, np.ndarray] | None:
    """Who answered ("": the own model), and boxes; None: nobody."""
    pixels = np.ascontiguousarray(image if image.ndim == 3 else image[..., None])
    tensor = {"name": "image", "shape": pixels.shape, "datatype": "UINT8"}
    head = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": pixels.nbytes}}],
            "outputs": [{"name": "boxes", "parameters": {"binary_data": True}}],
            "parameters": {"timeout": DEADLINE_US},
        }
    ).encode()
    try:
        connection.request("POST", path, head + pixels.tobytes(), {JSON_LENGTH: str(len(head)), **headers})
        response = connection.getresponse()
        data = response.read()
        if response.status != http.client.OK:
            return None
        length = int(response.headers[JSON_LENGTH])
        outputs = dict(read_outputs(json.loads(data[:length])["outputs"], data[length:]))
        return response.headers.get("Swarmd-Lender", ""), outputs["boxes"]
    except (OSError, http.client.HTTPException, OipError, ValueError, KeyError):
        connection.close()  # The next request opens it anew.
        return None
