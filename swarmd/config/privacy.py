"""`[privacy]`: what nobody may be shown of a picture that leaves the eye."""

from dataclasses import dataclass

from swarmd.config.option import option


@dataclass(frozen=True, slots=True)
class PrivacySection:
    """What is made unreadable in pictures that leave the eye: kept frames, thumbnails, pictures of recordings."""

    show: str = option(
        "findings",
        "What such a picture shows: `findings`, each box with a little around it, all else one flat grey, or whole "
        "`frames`, in which only what is known to be private is covered.",
        choices=("findings", "frames"),
    )
    detector: str = option(
        "",
        "Bundle of a detector that searches each for people, and vehicles for their plates, whatever model runs, "
        "and covers them; where it cannot run, no picture leaves. Without one what the model itself takes for private.",
    )
    masks: tuple[str, ...] = option(
        (),
        "Parts of the frame that are always covered: `left,top,right,bottom` as shares of it, such as `0,0,0.5,0.25`.",
    )


def mask_problem(text: str) -> str:
    """What is wrong with one of `masks`, or "".

    >>> mask_problem("0,0,0.5,0.25")
    ''
    """
    try:
        x1, y1, x2, y2 = (float(number) for number in text.split(","))
    except ValueError:
        x1 = y1 = x2 = y2 = float("nan")
    if 0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0:
        return ""
    return f"{text!r}; write left,top,right,bottom as shares of the frame, such as 0,0,0.5,0.25"
