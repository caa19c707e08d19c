"""When two positions may be the same thing, and where a thing is when several say so. Integers only.

Rules this file keeps: every result is a pure function of integers, so every CPU decides alike, and sums are
commutative, so no order of arrival can show.
"""

from typing import TypeAlias

Covariance: TypeAlias = tuple[int, int, int]
"""(east-east, east-north, north-north), square centimetres."""

_INFORMATION_BITS = 48
"""Binary places of an inverse covariance: 1 mm and 1 km keep three digits in one sum."""


def distance_milli(dx_cm: int, dy_cm: int, a: Covariance, b: Covariance, floor_cm: int) -> int:
    """Squared Mahalanobis distance of two positions, thousandths, rounded down.

    Args:
        dx_cm: East difference.
        dy_cm: North difference.
        a: Covariance of one position.
        b: Covariance of the other.
        floor_cm: Standard deviation added to each.

    >>> distance_milli(30, 40, (2500, 0, 2500), (0, 0, 0), 0)
    1000
    """
    floor = 2 * floor_cm * floor_cm
    ee, en, nn = a[0] + b[0] + floor, a[1] + b[1], a[2] + b[2] + floor
    determinant = ee * nn - en * en
    if determinant <= 0:
        return 0 if dx_cm == dy_cm == 0 else 1 << 62
    return 1000 * (nn * dx_cm * dx_cm - 2 * en * dx_cm * dy_cm + ee * dy_cm * dy_cm) // determinant


def fuse(reports: list[tuple[int, int, Covariance]], floor_cm: int) -> tuple[int, int, Covariance]:
    """The position that independent reports of one thing make together, weighted by their information.

    Args:
        reports: (east, north, covariance) each, centimetres; at least one.
        floor_cm: Standard deviation added to each report.

    Returns:
        East and north in centimetres and the covariance; the same for every order of `reports`.

    >>> fuse([(0, 0, (100, 0, 100)), (20, 0, (100, 0, 100))], 0)
    (10, 0, (50, 0, 50))
    """
    if len(reports) == 1:
        return reports[0]
    floor = floor_cm * floor_cm
    # About a point of the set itself, so that the products stay small; the smallest is the same for every order.
    east0, north0 = min((east, north) for east, north, _ in reports)
    aa = ab = bb = ea = eb = 0
    for east, north, (ee, en, nn) in reports:
        ee, nn = ee + floor, nn + floor
        determinant = ee * nn - en * en
        if determinant <= 0:
            ee, en, nn = ee + 1, 0, nn + 1
            determinant = ee * nn
        ia = (nn << _INFORMATION_BITS) // determinant
        ib = -((en << _INFORMATION_BITS) // determinant)
        ic = (ee << _INFORMATION_BITS) // determinant
        dx, dy = east - east0, north - north0
        aa, ab, bb = aa + ia, ab + ib, bb + ic
        ea, eb = ea + ia * dx + ib * dy, eb + ib * dx + ic * dy
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return min(reports)
    half = determinant // 2
    one = 1 << _INFORMATION_BITS
    return (
        east0 + (bb * ea - ab * eb + half) // determinant,
        north0 + (aa * eb - ab * ea + half) // determinant,
        (
            (bb * one + half) // determinant,
            -((ab * one + half) // determinant),
            (aa * one + half) // determinant,
        ),
    )
