"""The signed floors, beside the slots: what they are told, and that it is told also where the power goes in between.

The slots' record keeps the floor of the newest root's epoch, so a floor of stolen keys leaves it only once the slots
are told what counts under that root. A life that has seen no floor tells them nothing: it may have lost its journal,
and not a floor. So that one has fallen is written down before the floor itself leaves the journal, and each later life
tells them again.
"""

from collections.abc import Mapping

from swarmd_protocols.effects import Order, Persist
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.local import LocalModel
from swarmd_protocols.releases.requests import NAME
from swarmd_protocols.releases.versions import View
from swarmd_protocols.subprotocol import SubEffect

FELL = b"releases/f/"
"""Journal keys of the models whose floor has fallen with replaced keys; the slots may not know it yet."""
_NONE = (0, 0)
"""No floor: below every release."""
_TOLD = (1, _NONE)
"""What the slots count as told where a floor fell in an earlier life: that there is none, under the first root."""


class Floors:
    """See the module.

    Args:
        local: Every model as it stands here.
    """

    def __init__(self, local: Mapping[str, LocalModel]) -> None:
        self._local = local

    def restore(self, key: bytes) -> None:
        """The journal says that a floor fell in an earlier life."""
        mine = self._local.get(key.removeprefix(FELL).decode(errors="replace"))
        if mine is not None:
            mine.floor = _TOLD

    def fell(self, view: View) -> list[SubEffect]:
        """Write down which floors have just fallen: to be done before the statements leave the journal."""
        fell = [model for model, local in self._local.items() if _floor(view, model) < local.floor[1]]
        return [Persist(FELL + model.encode(), b"\x01") for model in fell]

    def keep(self, model: str, view: View, root_epoch: int) -> list[SubEffect]:
        """Let the floor that counts be remembered beside the slots, where no journal is needed to know it."""
        local, floor = self._local[model], (root_epoch, _floor(view, model))
        if not local.runs or floor == local.floor or (not local.floor[0] and floor[1] == _NONE):
            return []
        was, local.floor = local.floor, floor
        effects: list[SubEffect] = [Order(NAME, requests.RaiseFloor(model, *floor))]
        if was[0] and was[1] == _NONE and floor[1] != _NONE:
            effects.append(Persist(FELL + model.encode(), None))  # The floor itself says it from here on.
        return effects


def _floor(view: View, model: str) -> tuple[int, int]:
    mine = view.models.get(model)
    return mine.floor.order if mine is not None and mine.floor is not None else _NONE
