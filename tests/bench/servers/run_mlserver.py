"""MLServer, which infers in the process that listens: python run_mlserver.py GRAPH HTTP_PORT GRPC_PORT."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from graph import NAME
from mlserver.cli.serve import load_settings
from mlserver.server import MLServer

os.environ["BENCH_GRAPH"] = sys.argv[1]
FOLDER = Path(tempfile.mkdtemp(prefix="bench-mlserver-"))
settings = {
    "host": "127.0.0.1", "http_port": int(sys.argv[2]), "grpc_port": int(sys.argv[3]), "parallel_workers": 0,
    "metrics_endpoint": None, "debug": False,
}  # fmt: skip
(FOLDER / "settings.json").write_text(json.dumps(settings))
(FOLDER / "model-settings.json").write_text(json.dumps({"name": NAME, "implementation": "mlserver_runtime.Runtime"}))


async def main() -> None:
    """Until it is ended."""
    sys.path.insert(0, str(Path(__file__).parent))
    found, models = await load_settings(str(FOLDER))
    await MLServer(found).start(models)


asyncio.run(main())
