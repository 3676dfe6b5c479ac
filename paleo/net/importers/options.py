"""What a file of another framework does not say by itself, as words of a command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from paleo.core.checks import check_choice, whole_number
from paleo.core.errors import Mistakes, SettingError, near
from paleo.net.importers import IMPORTERS
from paleo.net.importers.base import PHASES, UNKNOWN, ImportOptions

#: Which importers look at an option, None for what reads Paleo's own net files, and what their nets
#: are. An importer of another package may look at all of them.
LOOKED_AT: Mapping[str, tuple[tuple[str | None, ...], str]] = {
    "input": (("caffe", "keras", "onnx", "pytorch", "tensorflow"), "of another framework"),
    "dim": (("onnx", None), "a net file or an ONNX file"),
    "phase": (("caffe", "pytorch"), "a prototxt or PyTorch module"),
    "unknown": (("caffe", "keras", "onnx", "pytorch", "tensorflow"), "of another framework"),
    "proposals": (("caffe", "onnx", "pytorch", "tensorflow"), "of another framework"),
    "value": (("onnx", "tensorflow"), "an ONNX file or SavedModel"),
}
#: The options that are said once, and the field of ImportOptions of those that are not, or of
#: another name.
_ONCE = ("phase", "unknown", "proposals")
_FIELDS = {"dim": "dims", "value": "values"}


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


def parse_dims(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the sizes of a dimension: seq=1024,4096.

    Raises ValueError for any other text.
    """
    name, _, sizes = text.rpartition("=")
    if not name or not all(map(_is_number, sizes.split(","))):
        raise ValueError("expected a name and sizes, such as seq=1024,4096")
    return name, tuple(map(int, sizes.split(",")))


def parse_value(text: str) -> tuple[str, tuple[float, ...]]:
    """Return the name of an input and its numbers: new_shape=1,3,448,448.

    Raises ValueError for any other text.
    """
    name, _, numbers = text.rpartition("=")
    try:
        values = tuple(float(number) for number in numbers.split(","))
    except ValueError:
        values = ()
    if not name or not values or not all(map(math.isfinite, values)):
        raise ValueError("expected a name and numbers, such as new_shape=1,3,448,448")
    return name, values


def parse_proposals(text: str) -> int:
    """Return how many regions of an image are kept; raises ValueError for no number of them."""
    return whole_number(int(text) if _is_number(text) else text)


def import_options(said: Mapping[str, Any]) -> ImportOptions:
    """Return the options that were said, by their names on a command line."""
    values = dict(said)
    for name in ("dim", "value"):
        values[name] = dict(values.get(name, ()))
    values["input"] = tuple(values.get("input", ()))
    return ImportOptions(**{_FIELDS.get(name, name): value for name, value in values.items()})


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "input": parse_input,
    "dim": parse_dim,
    "phase": lambda value: check_choice("--phase", value, PHASES),
    "unknown": lambda value: check_choice("--unknown", value, UNKNOWN),
    "proposals": parse_proposals,
    "value": parse_value,
}


def parse_options(text: str, importer: str | None) -> ImportOptions:
    """Return the options that a line says, as a command has them: --input=1x3x224x224 --dim N=1.

    Raises SettingError with every mistake, also where this importer (None: that of net files) does
    not look at one.
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
    once = {name: said.pop(name) for name in _ONCE}
    return import_options({**said, **{name: last[-1] for name, last in once.items() if last}})


def option_words(options: ImportOptions, importer: str | None) -> list[str]:
    """Return the words that `parse_options` reads as those of these options this importer looks at.

    Defaults have none.
    """
    shapes = [(name, "x".join(map(str, shape))) for name, shape in options.input]
    said = {
        "input": [shape if name is None else f"{name}={shape}" for name, shape in shapes],
        "dim": [f"{name}={size}" for name, size in options.dims.items()],
        **{
            name: [getattr(options, name)]
            for name in _ONCE
            if getattr(options, name) != getattr(ImportOptions, name)
        },
        "value": [
            f"{name}={','.join(f'{number:.17g}' for number in numbers)}"
            for name, numbers in options.values.items()
        ],
    }
    return [
        f"--{option}={value}"
        for option, values in said.items()
        if not not_looked_at(option, [importer])
        for value in values
    ]
