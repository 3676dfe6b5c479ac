"""Writing files: whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from paleo.cli.options import is_verbose
from paleo.errors import PaleoError
from paleo.netspec import NetSpec
from paleo.netwriter import dumps

__all__ = ["check_file", "write_file", "write_net"]


def write_net(net: NetSpec, output: str | None, verbose: bool) -> None:
    """Write a net to a file, or to standard output if that is None or "-"."""
    text = dumps(net)
    if output in (None, "-"):
        click.echo(text, nl=False)
    else:
        write_file(str(output), text)
    if verbose or is_verbose():
        where = "standard output" if output in (None, "-") else output
        click.echo(f"paleo: {where}: {net.name}, {len(net.layers)} layers", err=True)


def write_file(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a text in UTF-8, or bytes, to a file, which is replaced if it is there.

    It is written beside its place and then renamed, so that nobody ever finds half of it. A new
    file gets the permissions that the umask leaves, a replaced one keeps its own; a link is
    followed. What is no regular file, such as /dev/stdout, is written as it is. Raises PaleoError
    if that cannot be done, and leaves nothing behind.
    """
    name = os.fspath(path)
    with _said(name):
        try:
            _write(name, text if isinstance(text, bytes) else text.encode("utf-8"))
        except UnicodeEncodeError:
            raise OSError("not all of it is text in UTF-8") from None


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise the PaleoError that `write_file` would, as far as it can be told without writing."""
    name = os.fspath(path)
    with _said(name):
        target, mode = _place(name)
        if mode is None and not os.access(target.parent, os.W_OK):
            raise OSError("the folder is write-protected")


@contextmanager
def _said(name: str) -> Iterator[None]:
    """Raise PaleoError for what the system says of a file."""
    if not name:
        raise PaleoError("expected the name of a file to write, got an empty one")
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        why = getattr(error, "strerror", None) or error
        raise PaleoError(f"{name}: cannot be written: {why}") from None


def _place(name: str) -> tuple[Path, int | None]:
    """Return where a file is to be, and the mode of what is there."""
    target = Path(os.path.realpath(name))
    mode = target.stat().st_mode if target.exists() else None
    if name.endswith(os.sep) or (mode is not None and stat.S_ISDIR(mode)):
        raise OSError("it names a folder")
    if not target.parent.is_dir():
        raise OSError(f"there is no folder {os.path.dirname(name) or target.parent}")  # noqa: PTH120
    if mode is not None and stat.S_ISREG(mode) and not os.access(target, os.W_OK):
        raise OSError("the file there is write-protected")
    return target, mode


def _write(name: str, data: bytes) -> None:
    target, mode = _place(name)
    if mode is not None and not stat.S_ISREG(mode):
        with open(name, "wb") as special:
            special.write(data)
        return
    # Not of tempfile: that gives permissions of its own.
    temporary = target.parent / f".paleo-{os.urandom(8).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
