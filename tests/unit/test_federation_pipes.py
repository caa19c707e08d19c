"""Which pipe an address means, and what is said of an address that means none."""

import asyncio
import builtins
from typing import Any

import pytest

from swarmd.config.bridges import MqttConfig
from swarmd.errors import ConfigError, TransportError
from swarmd.federation import uplink_zenoh
from swarmd.federation.pipes import check_address, pipe_maker
from swarmd.federation.uplink import PREFIX, Place, Way
from swarmd.federation.uplink_zenoh import _in_words, read_address, settings_of
from swarmd_protocols.ids import NodeId


@pytest.mark.parametrize(
    "address",
    ["zenoh://", "zenoh://?listen=", "zenoh://user@host", "zenoh://host:99999", "zenoh://host?speak=1", "zenoh://a/b",
     "http://host", "host:7447"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        read_address(address)


def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    assert read_address("zenoh://[::1]:7000?listen=[::]:7001").connect == ("tcp/[::1]:7000",)


def test_a_path_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "zenoh":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'swarmd\[zenoh\]'"):
        check_address("zenoh://host", MqttConfig())
    with pytest.raises(ConfigError, match=r"swarmd\[zenoh\]"):
        pipe_maker(MqttConfig(), PREFIX)("zenoh://host", [], lambda place, frame: None)
    check_address("mqtt://host", MqttConfig())


def test_a_routers_error_is_told_without_a_line_of_somebodys_source() -> None:
    error = RuntimeError("Unable to connect. Timeout! at /root/.cargo/git/zenoh/src/net/orchestrator.rs:388.\nmore")
    assert _in_words(error) == "Unable to connect. Timeout!"


def test_a_router_over_tls_needs_a_certificate() -> None:
    with pytest.raises(TransportError, match="cert_file and key_file"):
        settings_of(read_address("zenohs://?listen=a:1"), PREFIX, MqttConfig())
    assert "transport/link/tls/enable_mtls" not in settings_of(read_address("zenohs://a:1"), PREFIX, MqttConfig())


def test_only_a_router_judges_what_it_carries() -> None:
    assert "access_control" not in settings_of(read_address("zenoh://a"), PREFIX, MqttConfig())
    rules: Any = settings_of(read_address("zenoh://?listen=a:1"), PREFIX, MqttConfig())["access_control"]
    assert rules["default_permission"] == "deny"
    allowed = {what: rule["key_exprs"] for rule in rules["rules"] for what in rule["messages"]}
    assert allowed["put"] == [f"{PREFIX}/**"]
    assert allowed["query"] == allowed["reply"] == [f"{PREFIX}/*/ask/*"]


@pytest.mark.parametrize("size", [0, 1, 60_000])
def test_frames_that_wait_for_the_loop_are_bounded_however_small_they_are(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(uplink_zenoh, "import_zenoh", lambda: None)
    heard: list[bytes] = []
    path = uplink_zenoh.ZenohUplink(
        "z", read_address("zenoh://a"), [], lambda place, frame: heard.append(frame), PREFIX, MqttConfig()
    )
    key = Place(bytes(16), Way.UP, NodeId(bytes(16))).path(PREFIX)
    most = uplink_zenoh.INBOX_MAX_BYTES // (size + uplink_zenoh.FRAME_LEAST_BYTES)
    assert sum(path._take(key, bytes(size)) for _ in range(most + 5)) == most
    assert path.counts["refused"] == 5
    for _ in range(most):
        path._drain()
    assert len(heard) == most
    assert path._take(key, bytes(size)), "there is room again"


def test_questions_that_wait_for_the_loop_are_bounded() -> None:
    """Whoever a router lets in can say questions quicker than a loop looks at them."""
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra zenoh)")

    class Query:
        payload, dropped = b"?", 0

        def drop(self) -> None:
            Query.dropped += 1

    async def asked() -> list[bytes]:
        judged: list[bytes] = []

        async def judge(frame: bytes) -> list[bytes]:
            judged.append(frame)
            return []

        uplink = uplink_zenoh.zenoh_maker(MqttConfig(), PREFIX)("zenoh://a", [], lambda place, frame: None)
        assert isinstance(uplink, uplink_zenoh.ZenohUplink)
        uplink.answer_at(Place(bytes(16), Way.ASK, NodeId(bytes(16))), judge)
        for _ in range(10 * uplink_zenoh.WAITING_MAX):
            uplink._take_question(asyncio.get_running_loop(), Query())
        assert Query.dropped == 9 * uplink_zenoh.WAITING_MAX
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        uplink._take_question(asyncio.get_running_loop(), Query())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return judged

    judged = asyncio.run(asked())
    assert judged
    assert Query.dropped == 10 * uplink_zenoh.WAITING_MAX + 1, "every question ends"
