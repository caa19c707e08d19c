"""`python -m swarmd.eye`: the eye process; started by the brain."""

import sys

from swarmd.eye.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
