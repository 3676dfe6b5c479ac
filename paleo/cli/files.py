"""Writing files: whole or not at all."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from paleo.cli.options import debug_option, is_verbose, several, verbose
from paleo.cli.printing import say, show
from paleo.core.errors import Mistakes, PaleoError
from paleo.net.spec import NetSpec
from paleo.net.writer import dumps

#: The options of what writes a net file: where to, and what is said of it.
file_option = click.option(
    "-o",
    "--output",
    type=click.Path(readable=False),  # what is wrong with it, write_file says
    help="The file to write.  [default: standard output]",
)
written_options = several(
    (
        click.option("--verbose", is_flag=True, help="Print on standard error what is written."),
        debug_option,
    )
)


def write_net(net: NetSpec, output: str | None, is_said: bool) -> None:
    """Write a net to a file, or to standard output if that is None or "-"."""
    write_text(dumps(net), output)
    if is_said or is_verbose():
        where = "standard output" if output in (None, "-") else output
        say(f"{where}: {net.name}, {len(net.layers)} layers")


def write_text(text: str | bytes, output: str | None) -> None:
    """Write a text to a file, or to standard output if that is None or "-"."""
    if output in (None, "-"):
        show(text)
    else:
        write_file(str(output), text)


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


def check_apart(option: str, file: str | None, other: str, other_file: str | None) -> None:
    """Raise UsageError if two options name the same file."""
    if file and other_file and Path(file).resolve() == Path(other_file).resolve():
        raise click.UsageError(f"--{option} and --{other} both name {other_file}")


@contextmanager
def _said(name: str, what: str = "written") -> Iterator[None]:
    """Raise PaleoError for what the system says of a file."""
    if not name:
        raise PaleoError("expected the name of a file to write, got an empty one")
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        why = getattr(error, "strerror", None) or error
        raise PaleoError(f"{name}: cannot be {what}: {why}") from None


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


#: What a file's name is made of; anything else becomes a "_".
_ODD = r"[^A-Za-z0-9.+=-]+"
#: File names are cut after so many characters: file systems take 255 bytes.
_LONGEST = 200


def write_nets(nets: Sequence[NetSpec], folder: Path) -> None:
    """Write convolutions of nets into a folder, which is made if it is not there.

    Raises PaleoError before anything is written if a file in the way is something else.
    """
    if not nets:
        say("note: there are no convolutions to extract")
    files: dict[str, NetSpec] = {}
    taken: set[str] = set()
    for net in nets:
        stem = re.sub(_ODD, "_", net.name).lstrip(".")[:_LONGEST]
        name, number = stem, 1
        while name.casefold() in taken:  # file systems may not tell letters' cases apart
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.casefold())
        files[f"{name}.json"] = net
    mistakes = Mistakes()
    for file, net in files.items():
        if (folder / file).exists() and not _is_extract(folder / file, net):
            mistakes.add(f"{folder / file}: there is something else of this name; it is kept")
    mistakes.raise_as(PaleoError)
    with _said(str(folder), "made a folder"):
        folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        mistakes.check(check_file, folder / file)
    if mistakes:
        raise PaleoError(mistakes.found[:1])  # of a folder, one line says it
    for file, net in files.items():
        write_file(folder / file, dumps(net))
        verbose(f"{folder / file}: {net.source}")


def _is_extract(path: Path, net: NetSpec) -> bool:
    """Tell whether a file is the net of this name and source, so that it may be replaced."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and (found.get("name"), found.get("source")) == (
        net.name,
        net.source,
    )
