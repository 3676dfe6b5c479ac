"""Products in fp8 as plan files have them: a recipe beside bf16 is an element type."""

from __future__ import annotations

from paleo.core.scaling import SCALINGS
from paleo.step.plans.entries import Entries, Said

#: Element types by the names of recipes.
_DTYPES = {scaling.name: dtype for dtype, scaling in SCALINGS.items()}


def say_fp8(entries: Entries, recipe: str, key: str) -> None:
    """Note the element type of a recipe beside bf16, which was said before; else, a note."""
    before = entries.said.get("dtype")
    if recipe not in _DTYPES:
        entries.note(f"not modelled: {entries.path(key)} {recipe}: give --dtype")
    elif before and before.value != "mixed_bf16":
        entries.note(
            f"not modelled: {entries.path(key)}: products in fp8 with {before.value}; they are of "
            "that type"
        )
    else:
        entries.said["dtype"] = Said(_DTYPES[recipe], entries.path(key))
