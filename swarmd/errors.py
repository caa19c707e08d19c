"""Errors of the daemon.

DaemonError          the message names the thing and the remedy
├── ConfigError      all problems of the configuration at once
├── TransportError   an address cannot be bound, a library is missing
├── JournalError     the journal's directory cannot be used
├── RecordError      a recording cannot be made
├── EyeError         the eye cannot start: source, model or labels
├── PluginError      a plug-in is not installed, cannot be loaded, or has failed
├── WorkerError      the worker that serves inference has ended, or a request to it has failed
└── ControlError     no daemon answers on the control socket
"""


class DaemonError(Exception):
    """Base of every error that the daemon raises for people to read."""


class ConfigError(DaemonError):
    """The configuration does not hold; lists every problem with its place."""


class TransportError(DaemonError):
    """A transport cannot start."""


class JournalError(DaemonError):
    """The journal's directory cannot be used."""


class RecordError(DaemonError):
    """A recording cannot be made."""


class EyeError(DaemonError):
    """The eye cannot start."""


class PluginError(DaemonError):
    """A plug-in is not installed, cannot be loaded, or has failed."""


class WorkerError(DaemonError):
    """The worker that serves inference has ended, or a request to it has failed."""


class LearnerError(DaemonError):
    """The child that trains has failed, or there is nothing yet that was learned."""


class ControlError(DaemonError):
    """No daemon answers on the control socket."""
