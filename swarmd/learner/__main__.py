"""`python -m swarmd.learner`: one task, from standard input; started by the brain, and by nobody else."""

from swarmd.ends import run_and_end
from swarmd.learner.process import main

if __name__ == "__main__":
    run_and_end(main)
