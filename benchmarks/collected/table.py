"""Collections, run and summed up."""

from __future__ import annotations

import importlib
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collected.outcome import VERDICTS, Outcome
from paleo.core.errors import PaleoError

#: The collections, and the share of each that is to be read exactly.
COLLECTIONS: Mapping[str, float] = {
    "timm": 0.97, "torchvision": 0.95, "transformers": 0.93, "onnx_nodes": 0.88, "caffe": 0.92,
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What became of the nets of one collection."""

    collection: str
    outcomes: Mapping[str, Outcome]

    def count(self, verdict: str) -> int:
        """Return how many have a verdict."""
        return sum(outcome.verdict == verdict for outcome in self.outcomes.values())

    @property
    def is_met(self) -> bool:
        """Tell whether none is wrong, and no more are refused than the collection's share allows.

        The share of a sample is rounded in its favour: one net more or less is chance.
        """
        refused = math.ceil(round((1 - COLLECTIONS[self.collection]) * len(self.outcomes), 6))
        return not self.count("wrong") and self.count("refused") <= refused

    def row(self) -> str:
        """Return the collection's line of the table."""
        number = len(self.outcomes)
        seconds = statistics.median(outcome.seconds for outcome in self.outcomes.values())
        whole = sum(outcome.seconds for outcome in self.outcomes.values())
        ours = sum(outcome.ours for outcome in self.outcomes.values())
        counts = "".join(f"{self.count(verdict):>9}" for verdict in VERDICTS)
        return (
            f"{self.collection:14}{number:>7}{counts}{self.count('exact') / number:>9.1%}"
            f"{seconds:>12.3f}{ours / whole:>9.1%}"
        )

    def failures(self) -> list[str]:
        """Return a line for each net that is not exact."""
        return [
            f"{self.collection} {name}: {outcome.verdict}: {outcome.detail}"
            for name, outcome in self.outcomes.items()
            if outcome.verdict != "exact"
        ]


HEAD = "collection      count    exact  refused    wrong    share  median (s)     ours"


def sampled(names: Sequence[str], size: int | None) -> list[str]:
    """Return so many names, evenly spread; all of them without a size."""
    if size is None or size >= len(names):
        return list(names)
    return [names[(2 * i + 1) * len(names) // (2 * size)] for i in range(size)]


def run(collection: str, size: int | None, folder: str | None) -> Result | None:
    """Return the result of a collection, or of a sample of it; None where it is not there."""
    try:
        module = importlib.import_module(f"collected.{collection}")
        if folder is not None and hasattr(module, "FOLDER"):
            vars(module)["FOLDER"] = Path(folder)
        names = sampled(module.names(), size)
    except (ImportError, PaleoError) as error:
        print(f"{collection}: left out, {error}", file=sys.stderr)
        return None
    if not names:
        print(f"{collection}: left out, there are no nets of it", file=sys.stderr)
        return None
    outcomes: dict[str, Outcome] = {}
    for name in names:
        print(f"\r{collection} {len(outcomes) + 1}/{len(names)} {name:60.60}", end="\r",
              file=sys.stderr, flush=True)  # fmt: skip
        outcomes[name] = module.run(name)
    print(f"\r{'':90}", end="\r", file=sys.stderr)
    return Result(collection, outcomes)
