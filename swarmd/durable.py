"""What a power cut leaves: a file's name is durable once its folder is."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make names durable that were made, changed or removed in a folder; raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
