"""Limits on compressed files: how large one may become is checked before it is unpacked."""

from __future__ import annotations

from pathlib import Path

_BYTES = 1 << 28  # that any file may become; reading an array takes a few times as many
_RATIO = 100  # times its own size that a larger file may become; features and texts reach a tenth of this


def check_unpacked(path: Path, size: int) -> None:
    """Raise ValueError if ``size`` bytes in memory are far too many for the size of the file.

    A file that somebody made for the purpose has 18 KB and becomes 4 GB.
    """
    packed = path.stat().st_size
    if size > max(_BYTES, _RATIO * packed):
        raise ValueError(
            f"{path}: {packed:,} bytes that would become {size:,} in memory, more than {_RATIO} times as many. "
            "It may have been made to fill the memory; if you trust it, write it again without compression "
            "(.npy, .safetensors, .csv)"
        )
