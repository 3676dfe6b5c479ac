"""Finding and reading nets: by the name of a predefined one, by path, or from text.

Predefined nets are installed with the package; in a checkout or an editable install they
are in the folder `nets` beside it.
"""

from __future__ import annotations

import os
from pathlib import Path

from paleo.errors import Mistakes, NetSpecError
from paleo.graph import infer_nodes
from paleo.netspec import NetSpec, parse
from paleo.registry import unknown

__all__ = ["load", "loads", "net_names", "net_path"]

_PACKAGE = Path(__file__).parent
_FOLDERS = (_PACKAGE / "nets", _PACKAGE.parent / "nets")


def _predefined() -> dict[str, Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.json"))} if folder else {}


def net_names() -> list[str]:
    """Return the names of the predefined nets."""
    return list(_predefined())


def net_path(net: str | os.PathLike[str]) -> Path:
    """Return the file of a net.

    A name is a predefined net. A path is that file; where there is none, `nets/NAME.json`
    and `NAME.json` are the predefined net too, so that an example works in any folder.
    Raises UnknownNameError for a name that is not known, NetSpecError for a missing file.
    """
    text = os.fspath(net)
    path = Path(text)
    nets = _predefined()
    if text in nets:
        return nets[text]
    if text and _exists(path):
        return path
    if path.suffix == ".json" and path.stem in nets and str(path.parent) in (".", "nets"):
        return nets[path.stem]
    if path.suffix or path.name != text:
        raise NetSpecError(f"{text}: no such file")
    raise unknown("net", text, list(nets), "; `paleo nets` lists them, a .json file works too")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False


def load(net: str | os.PathLike[str] | NetSpec) -> NetSpec:
    """Return a net by name, from a file, or as it is.

    Raises NetSpecError with every mistake of the file, UnknownNameError for a name that is
    not known.
    """
    if isinstance(net, NetSpec):
        return net
    path = net_path(net)
    try:
        text = path.read_bytes()
    except IsADirectoryError:
        raise NetSpecError(f"{net}: a directory, not a net file") from None
    except (OSError, ValueError) as error:
        raise NetSpecError(f"{net}: {getattr(error, 'strerror', None) or error}") from None
    return loads(text, file=os.fspath(net))


def loads(text: str | bytes, file: str | None = None) -> NetSpec:
    """Return the net that a text in the net-spec format describes.

    `file` names it in messages. Raises NetSpecError with every mistake: of the format, of
    parents, and of shapes at the text's own batch size.
    """
    mistakes = Mistakes(file)
    net = parse(text, file, mistakes)
    infer_nodes(net, None, mistakes)
    mistakes.raise_as(NetSpecError)
    return net
