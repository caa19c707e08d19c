"""`swarmd asyncapi`: the AsyncAPI 3 document of the MQTT topics, generated from the code that publishes them."""

import argparse
from pathlib import Path

from swarmd.cli.common import print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    parser = subparsers.add_parser("asyncapi", help="print the AsyncAPI 3 document of the MQTT topics")
    parser.add_argument("--swarm", default="swarm", help="the swarm's name, part of every topic (default: %(default)s)")
    parser.add_argument("-c", "--config", help="configuration file, for broker and base topic")


def run(args: argparse.Namespace) -> int:
    """Print the document as JSON."""
    import os

    from swarmd.bridges.mqtt.asyncapi import document
    from swarmd.config.loading import load

    loaded = load(Path(args.config) if args.config else None, os.environ, {})
    print_json(document(args.swarm, loaded.config.mqtt))
    return 0
