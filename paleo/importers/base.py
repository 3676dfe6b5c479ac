"""What every importer is given, and the errors that it reports.

An importer is a folder beside this module with `read(target, options)`, which returns a
NetSpec or raises NetSpecError with every mistake of the file. It says what each operator of
its format is in the terms of `paleo.importers.builder.Builder`; layouts and the batch
dimension are the Builder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PHASES", "PYTHON", "UNKNOWN", "ImportOptions", "OperatorError"]

#: How a target begins that names a PyTorch module instead of a file.
PYTHON = "python:"
#: Which layers of a file are taken, where it has some for training and others for testing.
PHASES = ("train", "test")
#: What to do about an operator that is not understood.
UNKNOWN = ("error", "zero")


class OperatorError(ValueError):
    """What does not fit in one operator; the message is one line, without file and layer."""


@dataclass(frozen=True)
class ImportOptions:
    """What a file of another framework does not say by itself.

    `input` has shapes of inputs, as the framework writes them, each with the input's name
    or None; `dims` sizes of dimensions that the file leaves open. With `unknown` "zero",
    operators that are not understood cost nothing and are listed as not counted.
    """

    input: tuple[tuple[str | None, tuple[int, ...]], ...] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    phase: str = "train"
    unknown: str = "error"
