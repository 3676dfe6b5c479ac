"""What a file of another framework does not say by itself, as words of a command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from paleo.core.checks import check_choice
from paleo.core.errors import Mistakes, SettingError, near
from paleo.net.importers import IMPORTERS
from paleo.net.importers.base import PHASES, UNKNOWN, ImportOptions

#: Which importers look at an option, and what their nets are. One of another package may look at
#: all of them.
LOOKED_AT = {
    "input": (("caffe", "onnx", "pytorch"), "of another framework"),
    "dim": (("onnx",), "an ONNX file"),
    "phase": (("caffe", "pytorch"), "a prototxt or PyTorch module"),
    "unknown": (("caffe", "onnx", "pytorch"), "of another framework"),
}


def not_looked_at(option: str, importers: Collection[str | None]) -> str:
    """Return what the nets of these importers are not, if none looks at an option; else ""."""
    built_in, what = LOOKED_AT[option]
    plugins = set(importers) - {*IMPORTERS, None}
    return "" if plugins or set(importers) & set(built_in) else what


def parse_input(text: str) -> tuple[str | None, tuple[int, ...]]:
    """Return the shape of an input, and its name if there is one: data=1x3x224x224.

    Raises ValueError for any other text.
    """
    name, equals, shape = text.rpartition("=")
    sizes = shape.lower().replace(",", "x").split("x")
    if (equals and not name) or not all(map(_is_number, sizes)):
        raise ValueError("expected a shape such as 1x3x224x224 or data=1x3x224x224")
    return name or None, tuple(map(int, sizes))


def parse_dim(text: str) -> tuple[str, int]:
    """Return the name and the size of a dimension: sequence=128.

    Raises ValueError for any other text.
    """
    name, _, size = text.rpartition("=")
    if not name or not _is_number(size):
        raise ValueError("expected a name and a size, such as sequence=128")
    return name, int(size)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "input": parse_input,
    "dim": parse_dim,
    "phase": lambda value: check_choice("--phase", value, PHASES),
    "unknown": lambda value: check_choice("--unknown", value, UNKNOWN),
}


def parse_options(text: str, importer: str | None) -> ImportOptions:
    """Return the options that a line says, as a command has them: --input=1x3x224x224 --dim N=1.

    Raises SettingError with every mistake, also where this importer (None: that of net files, which
    leave nothing open) does not look at one.
    """
    import shlex  # here: commands need the rest alone

    mistakes = Mistakes()
    said: dict[str, list[Any]] = {option: [] for option in LOOKED_AT}
    try:
        words = shlex.split(text)
    except ValueError:
        raise SettingError("options: a quotation mark is not closed") from None
    words.reverse()
    while words:
        word = words.pop()
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in LOOKED_AT:
            known, unknown = [f"--{each}" for each in LOOKED_AT], word.partition("=")[0]
            hint = near(unknown, known) or f" (there are: {', '.join(known)})"
            mistakes.add(f"options: unknown option {unknown!r}{hint}")
            continue
        if not equals:
            value = words.pop() if words else ""
        if what := not_looked_at(name, [importer]):
            mistakes.add(f"--{name}: the net is not {what}")
        try:
            said[name].append(_PARSERS[name](value))
        except SettingError as error:
            mistakes.include(error)
        except ValueError as error:
            mistakes.add(f"--{name}: {error}")
    mistakes.raise_as(SettingError)
    chosen = {name: said[name][-1] for name in ("phase", "unknown") if said[name]}
    return ImportOptions(tuple(said["input"]), dict(said["dim"]), **chosen)


def option_words(options: ImportOptions, importer: str | None) -> list[str]:
    """Return the words that `parse_options` reads as those of these options this importer looks at.

    Defaults have none.
    """
    shapes = [(name, "x".join(map(str, shape))) for name, shape in options.input]
    said = {
        "input": [shape if name is None else f"{name}={shape}" for name, shape in shapes],
        "dim": [f"{name}={size}" for name, size in options.dims.items()],
        "phase": [options.phase] if options.phase != ImportOptions.phase else [],
        "unknown": [options.unknown] if options.unknown != ImportOptions.unknown else [],
    }
    return [
        f"--{option}={value}"
        for option, values in said.items()
        if not not_looked_at(option, [importer])
        for value in values
    ]
