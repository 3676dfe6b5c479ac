"""Reading files that users name, which may be anything, and names of files in a folder."""

from __future__ import annotations

import errno
import os

from paleo.core.errors import PaleoError

#: No text that is read here is as large: nets of thousands of layers have some megabytes.
MOST_TEXT = 256 << 20


def read_bytes(path: str | os.PathLike[str], most: int = MOST_TEXT) -> bytes:
    """Return what is in a file.

    Raises OSError where it cannot be read or has more than `most` bytes: /dev/zero never ends.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except ValueError as error:  # a name with a NUL
        raise OSError(errno.EINVAL, str(error)) from None
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most >> 20} MiB: too large to be read")
    return data


def read_text(path: str | os.PathLike[str], error: type[PaleoError]) -> str:
    """Return the text of a file in UTF-8; raises such an error where it cannot be read."""
    file = os.fspath(path)
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{file}: not text in UTF-8") from None
    except OSError as why:
        raise error(f"{file}: {why.strerror or why}") from None


def names_in(folder: str | os.PathLike[str], ending: str) -> list[str]:
    """Return the names of the files in a folder that end so, without the ending, in order."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return sorted(name.removesuffix(ending) for name in names if name.endswith(ending))
