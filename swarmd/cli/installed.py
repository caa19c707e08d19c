"""What an installed service has where, for verbs that a person runs beside it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.config.sections import Config

if TYPE_CHECKING:
    from swarmd_protocols.trust.identity import Identity

CREDENTIALS = Path("/etc/swarmd/credentials")
"""What the unit hands over by `LoadCredential=`."""
STATE = Path("/var/lib/swarmd")
"""The unit's `StateDirectory=`."""
_UNITS = ("swarmd.service", "swarmd@.service")
_UNITS_OF_ADMIN = Path("/etc/systemd/system")
_UNITS_OF_PACKAGE = (Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"))


def identity_of(config: Config) -> "Identity | None":
    """The identity that a daemon with this configuration would have here: named, handed over, or installed.

    Raises:
        DaemonError: It does not hold.
        PermissionError: There may be an installed one, which only root reads.
    """
    from swarmd.identity.files import IDENTITY_FILE, load_credentials, load_identity

    if config.swarm.identity:
        return load_identity(Path(config.swarm.identity))
    handed = load_credentials()
    if handed is not None or not (CREDENTIALS / IDENTITY_FILE).exists():
        return handed
    return load_identity(CREDENTIALS)


def state_of(config: Config) -> Path:
    """Where a daemon with this configuration keeps its state: where systemd puts it once the service has run here."""
    systemd = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(config.state.dir or systemd or (STATE if STATE.is_dir() else "swarmd-state"))


def hidden_units() -> list[Path]:
    """Whole units under `/etc` that hide the package's, also those that an upgrade brings."""
    found = [
        _UNITS_OF_ADMIN / name for name in _UNITS if any((folder / name).is_file() for folder in _UNITS_OF_PACKAGE)
    ]
    return [path for path in found if path.is_file()]
