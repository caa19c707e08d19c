"""`swarmd version`: versions of swarmd and of what it runs on."""

import argparse

from swarmd.cli.common import add_json, print_json

PACKAGES = (
    "ai-edge-litert",
    "msgspec",
    "numpy",
    "opencv-python-headless",
    "PyNaCl",
    "pyzmq",
    "cyclonedds",
    "pymavlink",
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    add_json(subparsers.add_parser("version", help="versions of swarmd and of what it runs on"))


def run(args: argparse.Namespace) -> int:
    """Print them; a package that is not installed shows as empty."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from swarmd import __version__
    from swarmd_protocols.channel.channel import WIRE_VERSION

    found = {
        "swarmd": __version__,
        "wire": str(WIRE_VERSION),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    if args.json:
        print_json(found)
    else:
        print("\n".join(f"{name:24} {number or '-'}" for name, number in found.items()))
    return 0
