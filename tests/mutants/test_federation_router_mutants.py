"""The prefix rule of our Zenoh routers taken out: the story of a real router must see it."""

from typing import Any

import pytest

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra zenoh)")

from swarmd.federation import uplink_zenoh
from tests.integration.test_federation_zenoh import (
    test_a_router_of_ours_carries_only_what_lies_below_the_prefix as story,
)


async def test_a_router_that_carries_anything_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = uplink_zenoh.settings_of

    def settings_of(*arguments: Any) -> dict[str, object]:
        return {key: value for key, value in real(*arguments).items() if key != "access_control"}

    monkeypatch.setattr(uplink_zenoh, "settings_of", settings_of)
    with pytest.raises(AssertionError, match="films/1"):
        await story()
