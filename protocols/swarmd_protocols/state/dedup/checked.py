"""What a detector may say of its own sightings."""

from swarmd_protocols.errors import StateError
from swarmd_protocols.state.crdt.facts import FEATURES_BYTES, POSITION_MAX_CM, VARIANCE_MAX_CM2
from swarmd_protocols.state.observations import LocalDetection
from swarmd_protocols.thumbs.form import NAME_BYTES


def check(detection: LocalDetection) -> None:
    """Refuse what the wire would refuse, before anything is taken in.

    Raises:
        StateError: A value is out of range.
    """
    if not 0 < len(detection.label.encode()) <= 64 or len(detection.asset.encode()) > 64:
        raise StateError(f"label {detection.label!r} or asset {detection.asset!r} has no 1 to 64 bytes")
    if not 0 <= detection.score_milli <= 1000 or not 0 <= detection.track_id < 1 << 47:
        raise StateError(f"score_milli {detection.score_milli} or track_id {detection.track_id} is out of range")
    if not 0 <= detection.need_milli <= 1000:
        raise StateError(f"need_milli {detection.need_milli} is out of range: 0 to 1000 thousandths are scores")
    if not 0 <= min(detection.alike_milli) <= max(detection.alike_milli) <= 1000:
        raise StateError(f"alike_milli {detection.alike_milli} is out of range: correlations are 0 to 1000 thousandths")
    if len(detection.thumb) not in (0, NAME_BYTES):
        raise StateError(f"a picture's name has {NAME_BYTES} bytes, not {len(detection.thumb)}")
    if len(detection.features) not in (0, FEATURES_BYTES):
        raise StateError(f"features have {FEATURES_BYTES} bytes, not {len(detection.features)}")
    place = (detection.east_cm, detection.north_cm, detection.covariance_cm2)
    if any(value is None for value in place):
        if any(value is not None for value in place):
            raise StateError("a position needs east_cm, north_cm and covariance_cm2 together, or none of them")
        return
    east, north, covariance = place
    assert east is not None
    assert north is not None
    assert covariance is not None
    ee, en, nn = covariance
    if max(abs(east), abs(north)) > POSITION_MAX_CM:
        raise StateError(
            f"position ({east}, {north}) cm is more than 1,000 km from the mission origin: that is another place's"
        )
    if not 0 <= ee <= VARIANCE_MAX_CM2 or not 0 <= nn <= VARIANCE_MAX_CM2 or en * en > ee * nn:
        raise StateError(f"covariance {covariance} cm2 is not that of a position")
