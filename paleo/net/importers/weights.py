"""What files of weights alone say: how many numbers they hold, of which type.

A safetensors file begins with the length of its header in 8 bytes, and the header, JSON, with the
type and the shape of each tensor. A model in several files has an index of them. Only headers are
read: never a tensor.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

#: How files of tensors end, and what a model has that is in several of them.
ENDING, INDEX = ".safetensors", ".safetensors.index.json"
#: The longest header that the format allows.
_LONGEST = 100_000_000


def count(path: Path) -> str:
    """Return what the tensors of a file hold, or those of an index: "70 F32 in 2 tensors".

    Raises ValueError for what is no such file, OSError for one that cannot be read.
    """
    if path.name.endswith(INDEX):
        places = json.loads(path.read_text("utf-8"))["weight_map"]
        headers = {name: _header(path.with_name(Path(name).name)) for name in set(places.values())}
        tensors = [headers[place][tensor] for tensor, place in places.items()]
    else:
        tensors = list(_header(path).values())
    numbers: Counter[str] = Counter()
    for tensor in tensors:
        numbers[str(tensor["dtype"])] += math.prod(map(int, tensor["shape"]))
    said = " and ".join(f"{number:,} {dtype}" for dtype, number in numbers.most_common())
    return f"{said or 'nothing'} in {len(tensors):,} tensors"


def _header(path: Path) -> dict[str, Any]:
    """Return what a file says of each of its tensors."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST:
            raise ValueError("no header")
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header


def hint(target: str) -> str | None:
    """Return what weights hold and what to give instead; None for any other file."""
    path = Path(target)
    if not path.name.endswith((ENDING, INDEX)):
        return None
    try:
        held = f": {count(path)}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        held = ""
    config = path.with_name("config.json")
    instead = f"give {config}, or " if config.is_file() else "for its layers "
    return (
        f"weights without layers{held}; {instead}name the PyTorch module, as in python:models:Net"
    )
