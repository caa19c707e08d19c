"""The daemon on each device of a swarm: captures, infers, gossips, agrees."""

__version__ = "0.1.0"
