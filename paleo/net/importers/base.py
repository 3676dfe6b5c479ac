"""What every importer is given, and the errors that it reports.

An importer is a folder beside this module with `read(target, options)`, which returns a
NetSpec or raises NetSpecError with every mistake of the file. It says what each operator of
its format is in the terms of `paleo.net.importers.builder.builder.Builder`; layouts and the batch
dimension are the Builder's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain, count
from typing import TypeVar

from paleo.core.errors import NetSpecError
from paleo.core.files import read_bytes
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity

#: How a target begins that names a PyTorch module instead of a file.
PYTHON = "python:"
#: How one begins that names a net of an installed package; the package is called so, and the extra.
PACKAGES = ("timm:", "torchvision:")
#: All of what is no file.
CODE = (PYTHON, *PACKAGES)
#: Which layers of a file are taken, where it has some for training and others for testing.
PHASES = ("train", "test")
#: What to do about an operator that is not understood.
UNKNOWN = ("error", "zero")
#: The regions of an image that Faster R-CNN keeps in testing (Ren et al., 2015, section 4.1).
PROPOSALS = 300


_Key = TypeVar("_Key")
_Handler = TypeVar("_Handler")


class OperatorError(ValueError):
    """What does not fit in one operator; the message is one line, without file and layer.

    `key` is the field of the layer that is to be mended, where the format has one.
    """

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


#: Sizes that no other dimension is likely to be a multiple of.
PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def prime_batch(sizes: Iterable[int]) -> int | None:
    """Return a batch to trace with, which divides none of these sizes; None if each does."""
    distinct = set(sizes)
    return next((prime for prime in PRIMES if all(size % prime for size in distinct)), None)


def missing_library(target: str, library: str, extra: str) -> NetSpecError:
    """Return what is to be said where the library that a format needs is not installed."""
    return NetSpecError(
        f'{target}: reading it needs {library}; install it with: pip install "paleo[{extra}]"'
    )


#: Larger messages cannot be.
_MOST_PROTOBUF = 2 << 30


def file_content(target: str, most: int | None = None) -> bytes:
    """Return what is in a file, or the first bytes of it; raises NetSpecError."""
    try:
        if most is None:
            return read_bytes(target, _MOST_PROTOBUF)
        with open(target, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise NetSpecError(f"{target}: cannot be read: {error.strerror}") from None


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken: this one, or one with a number behind it."""
    numbered = (f"{name}_{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first of some names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def register(table: dict[_Key, _Handler], *keys: _Key) -> Callable[[_Handler], _Handler]:
    """Return a decorator that enters what an operator is in the table of an importer."""

    def enter(handler: _Handler) -> _Handler:
        table.update(dict.fromkeys(keys, handler))
        return handler

    return enter


def by_word(words: Mapping[_Key, str]) -> dict[str, _Key]:
    """Return a table the other way round: the key of each word of its texts."""
    return {word: key for key, text in words.items() for word in text.split()}


@dataclass(frozen=True)
class ImportOptions:
    """What a file of another framework does not say by itself.

    `input` has shapes of inputs, as the framework writes them, each with the input's name
    or None; `dims` sizes of dimensions that the file leaves open. With `unknown` "zero",
    operators that are not understood cost nothing and are listed as not counted. `proposals`
    are the regions of an image that a detector keeps, None where nothing is said: as many as it
    says itself, else PROPOSALS. `values` are the numbers of inputs that decide on shapes. Without
    `cache` the user's cache folder is left alone.
    """

    input: tuple[tuple[str | None, tuple[int, ...]], ...] = ()
    dims: Mapping[str, Quantity] = field(default_factory=dict)
    phase: str = "train"
    unknown: str = "error"
    proposals: int | None = None
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cache: bool = True
