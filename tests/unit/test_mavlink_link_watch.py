"""Alerts about the autopilot's link: after patience, one at a time, and over when it is well."""

from swarmd.bridges.mavlink.link_watch import CHANGES_BURST, CHANGES_PER_S, PATIENCE_S, Changes, LinkWatch


def standing(watch, now_s):
    return [code for code, text in watch.alerts(now_s).items() if text]


def test_a_link_that_is_silent_from_the_start_or_later():
    watch = LinkWatch("udpin:127.0.0.1:14540", 0)
    assert standing(watch, 0.0) == []
    assert standing(watch, PATIENCE_S + 0.1) == ["autopilot-silent"]
    watch.heartbeat(7, 6.0)
    watch.pose(has_fix=True, now_s=6.0)
    assert standing(watch, 6.1) == []
    assert standing(watch, 6.0 + PATIENCE_S + 0.1) == ["autopilot-silent"], "without it nothing is said of the fix"


def test_a_fix_that_is_lost_and_found():
    watch = LinkWatch("x", 0)
    for second in range(20):
        watch.heartbeat(1, second)
        watch.pose(has_fix=second < 5 or second > 15, now_s=second)
        lost = 4 + PATIENCE_S < second <= 15
        assert standing(watch, second) == (["no-fix"] if lost else []), second
    assert "without a fix" in _no_fix(watch_without_fix())


def watch_without_fix():
    watch = LinkWatch("x", 0)
    watch.alerts(0.0)
    watch.heartbeat(1, 6.0)
    watch.pose(has_fix=False, now_s=6.0)
    return watch


def _no_fix(watch):
    return watch.alerts(6.1)["no-fix"]


def test_the_wrong_vehicle_is_named_and_not_called_silence():
    watch = LinkWatch("x", 3)
    watch.alerts(0.0)
    watch.heartbeat(9, 6.0)
    assert standing(watch, 6.1) == ["wrong-sysid"]
    assert watch.alerts(6.1)["wrong-sysid"] == "system 9 speaks on x, not 3"
    watch.heartbeat(3, 6.2)
    watch.pose(has_fix=True, now_s=6.2)
    assert standing(watch, 6.3) == []


def test_changes_are_told_once_and_a_storm_of_them_seldom() -> None:
    changes = Changes()
    assert changes.seen("mode", "LOITER", 0) == "LOITER"
    assert changes.seen("mode", "LOITER", 1) == ""
    assert changes.seen("mode", "GUIDED", 2) == "GUIDED; it was LOITER"
    assert changes.seen("fix", "", 3) == ""
    assert changes.seen("fix", "not good enough", 3) == "not good enough"
    second_ns = 1_000_000_000
    told = [changes.seen("mode", ("RTL", "AUTO")[beat % 2], beat * second_ns // 10) for beat in range(1_000)]
    assert CHANGES_BURST <= sum(map(bool, told)) <= 100 * CHANGES_PER_S + CHANGES_BURST
    assert changes.seen("mode", "LAND", 200 * second_ns).startswith("LAND; it was "), "the last word is told at last"
