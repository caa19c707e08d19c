"""Errors of seeing.

ModelError           no state has changed
├── ArtefactError    a model, bundle or label file is missing, corrupt or of a kind that cannot be used
├── BackendError     a runtime is missing, refused the model or failed while running it
│   └── OutputError  it answered with NaN or infinity
├── SourceError      a frame source cannot be opened or has gone
│   └── SourceRefused    and it will not come by waiting: something must be changed
├── FrameError       one frame cannot be used
└── SiteError        a site map or survey area does not hold; the message names the file and the remedy
"""


class ModelError(Exception):
    """Base of every error that this package raises."""


class ArtefactError(ModelError):
    """A model, bundle or label file is missing, corrupt or of a kind that cannot be used."""


class BackendError(ModelError):
    """A runtime is missing, refused the model or failed while running it."""


class OutputError(BackendError):
    """A runtime answered with NaN or infinity."""


class SourceError(ModelError):
    """A frame source cannot be opened or has gone."""


class SourceRefused(SourceError):
    """A frame source will not come by waiting: a password, a path or this device must be changed first."""

    def __init__(self, text: str, patience_s: float = 0.0) -> None:
        """Say why; `patience_s` seconds of trying are worth it, since a server may be told of a stream late."""
        super().__init__(text)
        self.patience_s = patience_s


class FrameError(ModelError):
    """One frame cannot be used."""


class SiteError(ModelError):
    """A site map or survey area does not hold; the message names the file and the remedy."""
