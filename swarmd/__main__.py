"""`python -m swarmd`."""

import sys

from swarmd.cli import main

if __name__ == "__main__":
    sys.exit(main())
