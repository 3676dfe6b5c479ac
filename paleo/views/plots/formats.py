"""The kinds of image that a picture is written as."""

from __future__ import annotations

import os
from pathlib import Path

from paleo.core.errors import SettingError

#: The kinds of image, by the end of the file's name.
IMAGES = ("png", "svg", "pdf")


def image_format(path: str | os.PathLike[str]) -> str:
    """Return the kind of image that a file's name asks for; raises SettingError if none."""
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in IMAGES:
        ends = ", ".join(f".{each}" for each in IMAGES)
        raise SettingError(f"{os.fspath(path)}: a plot is a file that ends in one of {ends}")
    return suffix
