"""Errors of the simulator.

SimError             the message names the thing and the remedy
├── ScenarioError    a scenario file has an unknown key, a bad value or asks for the impossible
├── ReplayError      a replay file is damaged or was recorded by other code
├── TraceError       a link trace or flight log is damaged or has gaps
└── ExecutorError    a sweep engine is missing or a worker died
"""


class SimError(Exception):
    """Base of every error that the simulator raises for people to read."""


class ScenarioError(SimError):
    """A scenario file does not hold; lists every problem."""


class ReplayError(SimError):
    """A replay file is damaged, or was recorded by other code than this."""


class TraceError(SimError):
    """A link trace or flight log is damaged or has gaps."""


class ExecutorError(SimError):
    """A sweep engine is missing, or a worker died."""
