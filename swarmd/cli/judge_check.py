"""What `swarmd doctor` says of `[judge]`: whether the judge is there, and whether anything waits for it."""

from collections.abc import Iterator
from typing import Literal

from swarmd.config.sections import Config, JudgeSection
from swarmd.worker.answers import ABLE
from swarmd.worker.asking import named
from swarmd_models.bundle import DEFAULT_MODEL, at_rate, load_bundle
from swarmd_models.choose import AUTO
from swarmd_models.errors import ModelError


def judge(config: Config) -> Iterator[tuple[Literal["ok", "warn"], str, str]]:
    """Look at `[judge]`, where it says anything.

    Args:
        config: The merged configuration.

    Yields:
        What is wrong with what is to wait, and with the model, or that it is there: verdict, finding, remedy.
    """
    section = config.judge
    if not section.model:
        if section != JudgeSection():
            remedy = "name a model in judge.model, or leave [judge] out"
            yield "warn", "judge.model is empty: nobody is asked", remedy
        return
    if why := _waits_for_nothing(config):
        yield "warn", f"nothing waits for {section.model}: {why[0]}", why[1]
    if why := _is_missing(config):
        yield "warn", *why
    else:
        where = "here, or by a lender" if section.borrow else "here"
        yield "ok", f"{section.model} is asked {where}, {section.per_minute:g} times a minute at most", ""


def _waits_for_nothing(config: Config) -> tuple[str, str] | None:
    """Why the eye has no candidates, and the remedy."""
    eye = config.eye
    if not eye.enabled:
        return "the eye is off, and only its own candidates are asked about", "set eye.enabled, or leave [judge] out"
    if not eye.candidates_per_1000:
        return "eye.candidates_per_1000 is 0, so there are no candidates", "set it, such as to 10"
    try:
        at_rate(load_bundle(DEFAULT_MODEL if eye.model == AUTO else eye.model), eye.candidates_per_1000)
    except ModelError as error:
        return str(error), "name a model with a curve in eye.model"
    return None


def _is_missing(config: Config) -> tuple[str, str] | None:
    """Why nobody can answer, and the remedy."""
    section, serving = config.judge, config.inference
    if section.model.startswith(ABLE):
        ability = section.model.removeprefix(ABLE)
        if section.borrow or any(row.split()[1:2] == [ability] for row in serving.abilities):
            return None
        return f"no model here is said to be able to {ability}", "see inference.abilities, or set judge.borrow"
    try:
        name, digest = named(section.model)
    except ModelError as error:
        return f"judge.model: {error}", "name a model that is there"
    if section.borrow:
        return None
    served = []
    for entry in serving.models:
        if entry == "eye":
            if not config.eye.enabled:
                continue
            entry = DEFAULT_MODEL if config.eye.model == AUTO else config.eye.model
        try:
            bundle = load_bundle(entry)
        except ModelError:  # Its own start says so, and the next daemon's too.
            continue
        served.append(bundle.name)
        if bundle.name == name and digest in ("", bundle.digest):
            return None
    here = f"served here: {', '.join(served) or 'nothing'}"
    return (
        f"{section.model} is not served here, and nobody is borrowed from; {here}",
        "add it to inference.models, or set judge.borrow",
    )
