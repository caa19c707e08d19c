"""Flags of `swarmd run` and `check-config`, made from the configuration's own declarations."""

import argparse
import contextlib
from typing import Any

_NEGATIONS = {"--no-eye"}
_REPEATED = {"--join": "IP:PORT", "--backend": "NAME"}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add every flag that a configuration key declares, and `--set SECTION.KEY=VALUE` for the rest."""
    import dataclasses

    from swarmd.config.sections import sections

    for section, kind in sections().items():
        for field in dataclasses.fields(kind):
            flag = field.metadata.get("flag")
            if not flag:
                continue
            name, doc = f"{section}.{field.name}", field.metadata["doc"].replace("%", "%%")
            if flag in _NEGATIONS:
                parser.add_argument(flag, dest=name, action="store_const", const="false", help=doc)
            elif flag in _REPEATED:
                parser.add_argument(flag, dest=name, action="append", metavar=_REPEATED[flag], help=doc)
            else:
                parser.add_argument(flag, dest=name, metavar=field.name.upper(), help=doc)
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any other key"
    )


def flags_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say, as "section.key" to a value.

    Raises:
        ConfigError: A `--set` is none.
    """
    from swarmd.config.loading import kind_of, parse_text
    from swarmd.errors import ConfigError

    texts: dict[str, str] = {}
    for name, value in vars(args).items():
        if "." in name and value is not None:
            texts[name] = ",".join(part for part in value if part) if isinstance(value, list) else value
    for setting in args.settings:
        name, equals, value = setting.partition("=")
        if not equals or "." not in name:
            raise ConfigError(f"--set {setting}: write --set SECTION.KEY=VALUE")
        texts[name] = value
    flags: dict[str, Any] = {}
    for name, text in texts.items():
        flags[name] = text  # What is no value of its key is refused with all else that is wrong.
        kind = kind_of(*name.split(".", 1))
        with contextlib.suppress(ValueError):
            flags[name] = text if kind is None else parse_text(text, kind)
    return flags
