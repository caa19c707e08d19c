"""How `LearningLink` is joined to the other parts of a brain, where the configuration wants it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

from swarmd.api import geojson
from swarmd.brain.compose import wants_eye
from swarmd.brain.learning_link import LearningLink, Surroundings
from swarmd.brain.parts import Parts
from swarmd.brain.view import View
from swarmd.eye.gate import EyeGate
from swarmd_models.bundle import DEFAULT_MODEL
from swarmd_models.choose import AUTO
from swarmd_models.device import temperature_c
from swarmd_protocols.learning.learning import Learning


def join_learning(parts: Parts, protocol: Learning, view: Callable[[], View], stack: AsyncExitStack) -> LearningLink:
    """The link between `Learning`, the child that trains, and who asks; joined to the driver.

    Args:
        parts: The brain's.
        protocol: Decides.
        view: What operators have judged.
        stack: Ends what is begun here.
    """
    config, driver = parts.config, parts.driver
    section = config.learning
    own_gate_fd = -1  # A worker has made one.
    if wants_eye(config) and not config.inference.listen:
        own_gate_fd = EyeGate.make()
        stack.callback(os.close, own_gate_fd)

    def model() -> tuple[str, str]:
        eye = parts.eye
        if eye is None or section.model:
            named = section.model or config.eye.model
            return (DEFAULT_MODEL if named == AUTO else named), ""
        named = DEFAULT_MODEL if eye.model_path == AUTO else eye.model_path
        return (named, eye.model_digest) if eye.model_digest else ("", "")

    def why_rest() -> str:
        charge, heat_c = parts.battery_milli(), temperature_c()
        if charge is not None and charge < section.battery_min * 1e3:
            return f"the battery is at {charge / 10:.0f} %, below learning.battery_min"
        if heat_c is not None and heat_c > section.temperature_max_c:
            return f"the device is at {heat_c:.0f} °C, above learning.temperature_max_c"
        is_busy = parts.worker is not None and parts.worker.gauges.get("waiting", 0.0) > 0
        return "requests wait for this device's inference" if is_busy else ""

    around = Surroundings(
        model,
        why_rest,
        lambda: own_gate_fd if parts.worker is None else parts.worker.gate_fd,
        lambda: reviewed_features(view()),
        lambda node: view().name_of(node),
    )
    folder = parts.journal.directory / "learning"
    link = LearningLink(section, protocol, driver.command, around, folder, config.eye.keep_frames, parts.log)
    driver.on_order(protocol.name, link.carry_out)
    parts.bus.subscribe(link.on_notice)
    link.register(parts.metrics)
    return link


async def reviewed_features(view: View) -> AsyncIterator[dict[str, Any]]:
    """Objects that operators have judged, as GeoJSON features; the loop turns between two parts of them."""
    info, names = view.info(), view.in_parts.names()
    for part in view.in_parts.objects():
        for one in part:
            if one.review:
                yield dict(geojson.object_feature(one, info, names))
        await asyncio.sleep(0)
