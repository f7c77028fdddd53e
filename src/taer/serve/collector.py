"""Python's garbage collector, whose pauses are in the answers of a service."""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Collect what nobody uses, and look at nothing that is left again until the next call.

    A full collection looks at each object in memory, of which modules and backbones have hundreds of thousands, for longer
    than most answers take, and all requests wait meanwhile. It comes often, because answers are many small objects.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
