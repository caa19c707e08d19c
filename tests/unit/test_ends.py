"""A child of the daemon's ends at once, whatever went wrong and whoever still listens."""

import os
import subprocess
import sys

import pytest

CODE = """
import sys, threading
from swarmd.ends import run_and_end
threading.Thread(target=threading.Event().wait).start()  # As a runtime's that hangs.

class Mute:
    def write(self, text):
        raise MemoryError
    flush = write

def work():
    how = sys.argv[1]
    if how == "mute":
        sys.stderr = Mute()
    if how == "well":
        return 4
    raise MemoryError("out of memory")

run_and_end(work)
"""


@pytest.mark.parametrize(("how", "status"), [("well", 4), ("crash", 1), ("mute", 1), ("nobody reads", 1)])
def test_it_ends_at_once(how: str, status: int) -> None:
    read, write = os.pipe()
    if how == "nobody reads":
        os.close(read)
    child = subprocess.Popen([sys.executable, "-c", CODE, how], stderr=write)
    os.close(write)
    try:
        assert child.wait(120) == status
    finally:
        child.kill()
        child.wait()
    if how != "nobody reads":
        with os.fdopen(read) as said:
            assert ("out of memory" in said.read()) == (how == "crash")
