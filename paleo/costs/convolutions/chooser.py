"""The quickest algorithm for a convolution: of a library, within a limit of workspace.

Every cost model chooses here, by its own prices. Where batches are arrays, so is the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from paleo.costs.base import Explanation, Time, explanation, quicker
from paleo.costs.convolutions.base import ALGORITHMS, Counts
from paleo.costs.convolutions.choice import ConvolutionChoice
from paleo.costs.convolutions.libraries import ASKED, GEMM, LIBRARIES
from paleo.quantity import Quantity, is_array
from paleo.work import Convolution

__all__ = ["Chooser"]


class Chooser(NamedTuple):
    """How a cost model prices a convolution of elements of this type.

    `by_default` are the algorithms where `choice` asks for no library; of equally quick ones the
    first is taken. `price` returns the time by the algorithm of a name: None where the cost model
    has none, or where it certainly takes longer than the best so far. `counted` returns what the
    algorithm computes, moves and needs, as the cost model counts, and `shown` what it has to say
    of it besides.
    """

    operation: Convolution
    choice: ConvolutionChoice
    dtype: str
    by_default: tuple[str, ...]
    price: Callable[[str, Time | None], Time | None]
    counted: Callable[[str], Counts]
    shown: Callable[[str], Explanation] | None = None

    def candidates(self) -> Mapping[str, Any]:
        """Return algorithms by name, each with whether it may be chosen: one value, or an array.

        A matrix product without workspace is among them, and may be. Raises SettingError if the
        cuDNN of this machine is asked and there is none.
        """
        choice = self.choice
        if choice.library == ASKED:
            return self._asked()
        names = self.by_default
        if choice.library is not None:
            names = LIBRARIES[choice.library].offers(self.operation)
        if choice.only_gemm:
            names = tuple(name for name in names if ALGORITHMS[name].is_gemm)
        limit = choice.workspace
        if limit is None:
            return dict.fromkeys(names, True)
        return {name: name == GEMM or self.counted(name).workspace <= limit for name in names}

    def _asked(self) -> Mapping[str, Any]:
        """Return the product, and what cuDNN prefers of what applies: for each batch, its own."""
        batches: Any = self.operation.batch
        if not is_array(batches):
            return {GEMM: True, self._preferred(batches): True}
        import numpy as np

        own = {batch: self._preferred(batch) for batch in np.unique(batches).tolist()}
        each = np.array([own[batch] for batch in batches.ravel().tolist()]).reshape(batches.shape)
        return {GEMM: True, **{name: each == name for name in sorted(set(own.values()) - {GEMM})}}

    def _preferred(self, batch: int) -> str:
        from paleo.costs.convolutions import cudnn  # which looks for a library

        operation = replace(self.operation, batch=batch)
        for name in cudnn.ask(operation, self.dtype, self.choice.workspace):
            algorithm = ALGORITHMS[name]
            if algorithm.applies(operation) and (algorithm.is_gemm or not self.choice.only_gemm):
                return algorithm.name
        return GEMM

    def time(self) -> Time:
        """Return the time of the quickest candidate that may be chosen, element by element.

        What cuDNN chose takes no more than a product: it would not have been chosen.
        """
        best: Time | None = None
        for name, allowed in self.candidates().items():
            if allowed is False:
                continue
            time = self.price(name, best)
            if time is not None:
                time = _where(allowed, time)
                best = time if best is None else quicker(best, time)[1]
        assert best is not None
        return best

    def explanation(self) -> Explanation:
        """Return why it takes what `time` says; for numbers, not arrays.

        It names the algorithm, says what that computes, moves and needs, and what the others would
        take.
        """
        found = self.candidates()
        priced = {name: time for name in found if (time := self.price(name, None)) is not None}
        name = min(
            (each for each in priced if found[each]), key=lambda each: _seconds(priced[each])
        )
        time = priced[name]
        if self.choice.library == ASKED:
            name = list(priced)[-1]
        own = self.shown(name) if self.shown else explanation(name, time)
        counts = self.counted(name)
        work = counts.work
        details: tuple[tuple[str, Quantity, str], ...] = (
            ("computation", _whole(work.flops), "FLOP"),
            ("reads", _whole(work.bytes_read), "bytes"),
            ("writes", _whole(work.bytes_written), "bytes"),
            ("workspace", _whole(counts.workspace), "bytes"),
        )
        others = tuple(
            (f"by {other}" + ("" if found[other] else " beyond the workspace"), each.total, "s")
            for other, each in priced.items()
            if other != name
        )
        return replace(
            own,
            algorithm=name,
            time=time,
            bound=time.bound,
            why=own.why or ALGORITHMS[name].summary,
            details=(*details, *own.details, *others),
        )


def _where(allowed: Any, time: Time) -> Time:
    """Return a time that nobody takes where it is not allowed."""
    if not is_array(allowed):
        return time
    import numpy as np

    return replace(time, total=np.where(allowed, time.total, np.inf))


def _seconds(time: Time) -> Any:
    return time.total


def _whole(value: Quantity) -> Quantity:
    """Return a count as a whole number where it is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
