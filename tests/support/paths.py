"""Where the checkout lies, and how a child process finds what tests share."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout's root."""


def python_path() -> str:
    """PYTHONPATH for a child process that imports `tests.support`: the checkout first, then what is already there."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
