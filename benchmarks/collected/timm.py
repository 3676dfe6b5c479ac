"""One net of each family that timm lists, beside PyTorch's own counter.

Nets are made with weights that have no data, on images of the size in their configuration; nothing
is computed and nothing is downloaded.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from collected.outcome import Outcome, module_outcome
from paleo.net.importers import ImportOptions
from paleo.net.importers.pytorch import packages
from paleo.net.importers.pytorch.reader import read_module

#: Samples in a batch.
BATCH = 2
#: What timm calls the sizes of a net, smallest first.
_SIZES = """
    test zepto atto femto pico nano xxtiny xtiny tiny ti xxsmall xxs xsmall xs mini micro wee
    pwee dwee dpwee little dlittle small s medium m betwixt mediumd base b xmedium large l
    xlarge xl xxlarge huge giant giantopt gigantic enormous
"""
#: Parts of a name that only say how large something is: 50, 26t, patch16, x1, p32.
_SIZE = re.compile(r"\d.*|(patch|window|[a-z])\d.*")
#: A number at the end of a word, which says how deep a net is; after a v it is a version.
_DEPTH = re.compile(r"(?<![v\d])\d+[a-z]{0,2}$")


def family(name: str) -> tuple[str, str]:
    """Return what a net has in common with those that differ from it in size alone.

    That is the module that defines it, and its name without sizes.
    """
    registry: Any = importlib.import_module("timm.models._registry")
    sizes = _SIZES.split()
    words = [word for word in name.split("_") if not _SIZE.fullmatch(word) and word not in sizes]
    return registry._model_to_module[name], "_".join(_DEPTH.sub("", word) for word in words)


def size(name: str) -> tuple[int, list[int], str]:
    """Return what orders a family's nets by size, as far as their names say it."""
    sizes = _SIZES.split()
    ranks = [sizes.index(word) for word in name.split("_") if word in sizes]
    return min(ranks, default=len(sizes)), [int(n) for n in re.findall(r"\d+", name)], name


def names() -> list[str]:
    """Return the smallest net of each family."""
    smallest: dict[tuple[str, str], str] = {}
    for name in sorted(packages.names("timm"), key=size):
        smallest.setdefault(family(name), name)
    return sorted(smallest.values())


def run(name: str, phase: str = "test") -> Outcome:
    """Import a net and compare what it counts in a phase, "test" or "train"."""
    torch: Any = importlib.import_module("torch")
    target = f"timm:{name}"
    _, net, shapes = packages.find(target, BATCH)
    options = ImportOptions(input=tuple((None, shape) for shape in shapes), phase=phase)
    return module_outcome(
        lambda: read_module(target, name, net, options),
        net,
        [torch.empty(shape, device="meta") for shape in shapes],
        batch=BATCH,
        training=phase == "train",
    )
