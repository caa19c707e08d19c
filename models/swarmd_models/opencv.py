"""OpenCV, loaded when something of it is first used.

It is 16 MB of a process's memory, and a worker that is asked for tensors, sounds or texts never looks at a picture.
Import it as `from swarmd_models.opencv import cv2`. Loading takes a tenth of a second or more: who measures what comes
after calls `ready` before.
"""

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cv2 as cv2
else:

    class _Late:
        """The module, once somebody asks for something in it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ready(), name)

    cv2 = _Late()

_threads = 0


def use_threads(count: int) -> None:
    """How many threads OpenCV shall use in this process, where it is not loaded yet."""
    global _threads
    _threads = count


@functools.cache
def ready() -> ModuleType:
    """Load it, if it is not."""
    import cv2 as module

    if _threads:
        module.setNumThreads(_threads)
    return module
