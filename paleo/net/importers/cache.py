"""Imported nets, kept as net files in the user's cache folder, by what decides them.

That is the content of a file, or the name of a net of an installed package; the options; and the
versions of the libraries that read it, of Python and of Paleo itself. What `python:` names may be
code from anywhere, so it is never kept, nor what an importer of another package reads.

The hash of a file's content is kept, too, as long as the file is not written: weights may be
gigabytes. As Git does, a file is taken to be as it was if its times, size and place are.

A file there is as damaged as the worst disk leaves it: one that is not as it was written counts as
missing. Several processes may read and write at once, since files are written beside their place
and then renamed. Nothing that goes wrong here is an error: the net is imported then.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePath

from paleo.core.frozen import dataclass
from paleo.core.version import __version__
from paleo.net.importers.base import PACKAGES, PYTHON, ImportOptions

#: Where else the files are to be; with nothing in it, nowhere.
VARIABLE = "PALEO_CACHE"
#: Bytes that all files together may have, before those that were not used for longest go.
MOST = 256 << 20

#: Nanoseconds within which a file may be written twice and have the same times: FAT counts by 2 s.
_SAME_TIME = 2_000_000_000

#: What each importer reads with.
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "caffe": ("protobuf",),
    "keras": (),
    "onnx": ("onnx", "numpy"),
    "pytorch": ("torch",),
}
#: Where the code is that reads nets.
_NET = Path(__file__).parents[1]
_ENDING = ".net"


def folder() -> Path | None:
    """Return where imported nets are kept, as is usual on this system; None for nowhere."""
    if (said := os.environ.get(VARIABLE)) is not None:
        return Path(said) if said else None
    try:
        home = Path.home()
    except RuntimeError:  # there is none
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():  # the standard has others ignored
        return base / "paleo"
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "paleo" / "Cache"
        )
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "paleo"
    return home / ".cache" / "paleo"


@dataclass(frozen=True)
class Entry:
    """The place of one net, or of the hash of a file's content; it may be empty.

    `file` is what is read and `state` how it was when its content was looked at, if it is a file.
    """

    path: Path
    file: str | None = None
    state: tuple[int, ...] | None = None

    def text(self) -> str | None:
        """Return the text that is kept here; None if there is none."""
        with contextlib.suppress(OSError, ValueError):
            digest, _, text = self.path.read_bytes().partition(b"\n")
            if digest == _digest(text):
                found = text.decode()
                os.utime(self.path)  # it is used
                return found
        return None

    def keep(self, text: str) -> None:
        """Keep a text here, unless what it was read from has changed since."""
        if self.file is not None and _state(self.file) != self.state:
            return
        data = text.encode()
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self.path.with_name(f"{os.urandom(8).hex()}.tmp")
            try:
                temporary.write_bytes(_digest(data) + b"\n" + data)
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)
            _tidy(self.path.parent)


def entry(importer: str, target: str, options: ImportOptions) -> Entry | None:
    """Return the place of the net that an importer reads; None if it is not to be kept."""
    place = folder() if options.cache else None
    if place is None or target.startswith(PYTHON) or importer not in _LIBRARIES:
        return None
    if target.startswith(PACKAGES):
        name, file, state = target, None, None
        content: str | None = ""
        libraries = (target.partition(":")[0], *_LIBRARIES[importer])
    else:
        name, file, state = PurePath(target).name, target, _state(target)
        content = _content(target, state, place) if state else None
        libraries = _LIBRARIES[importer]
    versions = [_version(library) for library in libraries]
    if content is None or None in versions:
        return None
    decided = (importer, name, content, options, versions, sys.version, __version__, _own_code())
    return Entry(_path(place, decided), file, state)


def _path(place: Path, decided: object) -> Path:
    return place / (_digest(repr(decided).encode()).decode() + _ENDING)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _state(file: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written; None for what is no regular file."""
    try:
        found = os.stat(file)  # noqa: PTH116  # what is no path is no file either
    except (OSError, ValueError):
        return None
    is_file = stat.S_ISREG(found.st_mode)
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_ino, found.st_size, *times) if is_file else None


def _content(file: str, state: tuple[int, ...], place: Path) -> str | None:
    """Return the hash of what is in a file, None if it cannot be read."""
    known = Entry(_path(place, (str(Path(file).absolute()), state)), file, state)
    if (content := known.text()) is not None:
        return content
    is_settled = time.time_ns() - max(state[2:]) > _SAME_TIME
    try:
        with open(file, "rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return None
    if is_settled:
        known.keep(content)
    return content


def _version(library: str) -> str | None:
    """Return a library's version; None where it says nothing, as of one installed for changes."""
    try:
        found = metadata.distribution(library)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
    return None if origin.get("dir_info", {}).get("editable") else found.version


@functools.cache
def _own_code() -> tuple[tuple[str, int, int], ...]:
    """Return what changes with the code that reads nets: a checkout's version stays the same."""
    code = (path for path in sorted(_NET.rglob("*.*")) if path.suffix != ".pyc")
    return tuple(
        (path.name, found.st_size, found.st_mtime_ns) for path in code if (found := path.stat())
    )


def _tidy(place: Path) -> None:
    """Remove what was not used for longest, until the rest is no more than MOST, and remains."""
    found = []
    for path in place.iterdir():
        with contextlib.suppress(OSError):  # another process was faster
            if path.suffix in (_ENDING, ".tmp"):
                found.append((path.stat().st_mtime, path.stat().st_size, path))
    excess = sum(size for _, size, _ in found) - MOST
    for _, size, path in sorted(found):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        excess -= size
