"""What `check-config` and `swarmd doctor` say of whom `[lending]` lets in, by the certificate that this device has."""

from collections.abc import Iterator

from swarmd.cli import installed
from swarmd.config.sections import Config
from swarmd.config.whom import Problem, unmatched
from swarmd.errors import DaemonError


def rules(config: Config) -> Iterator[Problem]:
    """Rules that let nobody in; nothing where the identity is not there or not to be read: that is told elsewhere."""
    if config.swarm.dev_fleet or not (config.lending.lend or config.lending.borrow):
        return
    try:
        identity = installed.identity_of(config)
    except (DaemonError, OSError):
        return
    if identity is not None:
        yield from unmatched(config.lending, identity.name, identity.claims().roles)
