"""What numbers are of, in words: the parts of titles and of the settings below them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from paleo.collectives import COLLECTIVES
from paleo.costs import ConvolutionChoice
from paleo.metrics import Metrics
from paleo.quantity import Quantity
from paleo.rows import DataRow, Run

__all__ = ["best_said", "cluster", "joined", "pricing", "run_setting"]


def cluster(of: Run | Metrics) -> list[str]:
    """Return on what steps were predicted, and how the workers share them."""
    scaling = [f"{of.scaling} scaling"] if of.scaling else []
    return [of.device, of.network, f"{of.parallel}-parallel", *scaling]


class Priced(Protocol):
    """What says how something was priced; a step also at which share of the network, `ppp_comm`."""

    @property
    def cost_model(self) -> str: ...
    @property
    def ppp_comp(self) -> Quantity: ...
    @property
    def use_pipeline(self) -> bool: ...
    @property
    def fuse(self) -> bool: ...
    @property
    def convolutions(self) -> ConvolutionChoice: ...


def pricing(of: Priced) -> dict[str, str]:
    """Return how this was priced, under the names of the settings; "" for what is not said."""
    ppp_comm = getattr(of, "ppp_comm", None)
    return {
        "cost_model": f"cost model {of.cost_model}",
        "ppp_comp": f"ppp_comp {of.ppp_comp:g}",
        "ppp_comm": "" if ppp_comm is None else f"ppp_comm {ppp_comm:g}",
        "use_pipeline": "pipelined" if of.use_pipeline else "",
        "fuse": "fused" if of.fuse else "",
        "convolutions": str(of.convolutions),
    }


def best_said(row: DataRow) -> str:
    """Return what the best scheme is: "best exact" where others, which may be quicker, are not.

    After an exact one all workers have the sum.
    """
    exact = {COLLECTIVES[name].exact for name in row.communication}
    return "best exact" if len(exact) > 1 else "best"


def joined(parts: Iterable[str]) -> str:
    """Return the parts that say something as one text."""
    return ", ".join(filter(None, parts))


def run_setting(run: Run) -> str:
    """Return what the numbers of a run are of, but for the net."""
    return joined([*cluster(run), f"batch {run.batch_size}", run.dtype, *pricing(run).values()])
