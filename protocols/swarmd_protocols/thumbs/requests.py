"""What the daemon asks of the sub-protocol `thumbs`, and what it is told."""

import msgspec

JOURNAL = b"thumbs/"
"""What begins the keys of the journal's records of own pictures; the name of the picture follows."""


class Shelve(msgspec.Struct, frozen=True, gc=False):
    """A picture of the own eye, which a sighting is about to name."""

    jpeg: bytes


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Somebody wants to see this picture; answered by `ThumbLearned`, at once or later."""

    name: bytes


class ThumbLearned(msgspec.Struct, frozen=True, gc=False):
    """Detail of `StateChanged("thumbs", …)`: a picture that was asked for is here, or will not come."""

    name: bytes
    jpeg: bytes
    """b"" where it will not come."""
    problem: str = ""
    """Why not, for people."""
