"""`python -m swarmd.worker`: the worker process; started by the brain."""

import sys

from swarmd.worker.process import main

if __name__ == "__main__":
    sys.exit(main())
