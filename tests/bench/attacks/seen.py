"""What an attack did."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """What was seen of one attack.

    Attributes:
        had: What the review saw.
        worked: Whether any of that is seen today.
        text: What is seen.
    """

    had: str
    worked: bool
    text: str
