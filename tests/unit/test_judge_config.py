"""What another judge needs is said where it is configured, and without one nothing is different."""

import pytest

from swarmd.config.loading import load
from swarmd.errors import ConfigError

JUDGED = {"judge.model": "zoo:medium-640", "eye.thumbnails": True, "inference.listen": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("less", "why"),
    [
        ({"eye.thumbnails": False}, "needs pictures of candidates"),
        ({"inference.listen": ""}, "needs a worker"),
        ({"judge.borrow": True}, r"needs lending\.borrow"),
    ],
)
def test_what_a_judge_needs_is_said(less: dict[str, object], why: str) -> None:
    assert load(None, {}, JUDGED).config.judge.model == "zoo:medium-640"
    assert not load(None, {}, {}).config.judge.model
    with pytest.raises(ConfigError, match=why):
        load(None, {}, {**JUDGED, **less})
