"""How long does a swarm take to agree after a cut, and how much does it send? A sweep over losses and seeds, as CSV.

python examples/sweep.py > sweep.csv
python examples/sweep.py 1 0.2      # one seed, one loss: a first look
"""

import csv
import sys

import swarmd


def main(seeds: str = "3", *losses: str) -> None:
    out = csv.writer(sys.stdout)
    out.writerow(("loss", "seed", "bytes_per_node_s", "false_positives", "convergence_s", "broken_rules"))
    for loss in map(float, losses or ("0", "0.1", "0.3")):
        for seed in range(1, int(seeds) + 1):
            run = swarmd.simulate("partition-heal", seed=seed, settings={"radio.loss": loss})
            figures = (run.figures[name] for name in ("bytes_per_node_s", "false_positives", "convergence_s"))
            out.writerow((loss, seed, *figures, len(run.violations)))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except swarmd.DaemonError as error:
        sys.exit(str(error))
    except ValueError as error:
        sys.exit(f"give a number of seeds, then losses between 0 and 0.95: {error}")
