"""Real daemons, and a collector that is not ours between them and where traces and logs are read."""

from pathlib import Path

from tests.support.daemons import Start, alive_members, wait_for
from tests.support.otlp import collector, rotel


def test_a_real_collector_takes_what_daemons_send_and_passes_it_on(start: Start, tmp_path: Path) -> None:
    with collector() as server, rotel(tmp_path, server.endpoint.removesuffix("/v1/traces")) as endpoint:
        config = tmp_path / "swarmd.toml"
        config.write_text(f'[node]\norigin = [-18.88, -70.11]\n[otel]\nenabled = true\nendpoint = "{endpoint}"\n')
        a = start("a", "--no-eye", "--config", str(config)).up()
        b = start("b", "--no-eye", "--config", str(config), join=a.status()["address"]).up()
        wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
        a.ask("observe", detections=[{"label": "hot-spot", "score": 0.9, "east_m": 10.0, "north_m": 5.0}])
        wanted = {("a", "capture"), ("a", "share"), ("b", "learn"), ("b", "object")}
        log = (tmp_path / "rotel.log").read_text
        wait_for(lambda: {(span.node, span.name) for span in server.spans} >= wanted, "all spans", seen=log)
        assert len({span.trace for span in server.spans}) == 1
        by = {span.name: span for span in server.spans}
        assert by["object"].parent == by["learn"].id
        assert by["learn"].parent == by["share"].id
        wait_for(lambda: "joined" in {one.event_name for one in server.logs}, "what happened", seen=log)
