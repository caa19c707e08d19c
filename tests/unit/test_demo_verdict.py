"""Why `swarmd demo` ends with 1 is said."""

from swarmd.cli.demo import disagreement


def test_drones_that_ended_as_one_have_no_problem() -> None:
    assert disagreement({"members": {"a": 2, "b": 2}, "digests": {"a": "1f", "b": "1f"}}, 2) == ""


def test_who_heard_too_few_and_digests_that_differ_are_said() -> None:
    said = disagreement({"members": {"a": 1, "b": 2}, "digests": {"a": "1f", "b": "2f"}}, 2)
    assert "a heard 1 of 2 members" in said
    assert "b heard" not in said
    assert "do not hold the same facts" in said
