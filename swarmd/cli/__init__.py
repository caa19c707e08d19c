"""The command line; every verb imports what it needs when it runs."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `swarmd` command; see `swarmd.cli.main`."""
    from swarmd.cli.main import main as run

    return run(argv)
