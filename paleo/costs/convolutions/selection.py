"""The quickest algorithm for a convolution: of a library, within a limit of workspace.

Every cost model chooses here, by its own prices. Where batches are arrays, so is the choice. Of
several convolutions as one, an algorithm is priced for those alone that it may be quickest for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Convolution
from paleo.core.quantity import Quantity, is_array, largest, np, some
from paleo.costs.convolutions.base import ALGORITHMS, Counts
from paleo.costs.convolutions.libraries import ASKED, GEMM, LIBRARIES
from paleo.costs.convolutions.settings import ConvolutionChoice
from paleo.costs.convolutions.subsets import all_of
from paleo.costs.model import Explanation, only_where
from paleo.costs.times import Time

#: More than sums of seconds are rounded by.
_MARGIN = 1 + 1e-9


def counts_of(name: str, operation: Convolution) -> Counts:
    """Return what the algorithm of this name takes for a convolution."""
    return ALGORITHMS[name].counts(operation)


class Chooser(NamedTuple):
    """How a cost model prices a convolution of elements of this type.

    `by_default` are the algorithms where `choice` asks for no library, each with whether it
    applies; of equally quick ones the first is taken. `price` returns the time by the algorithm of
    a name: None where the cost model has none. `counted` returns what the algorithm computes, moves
    and needs, as the cost model counts, and `shown` what it has to say of it besides. `least`
    returns by a name and a convolution seconds below which the algorithm is not: infinite if
    another, that applies wherever it does, is never slower.
    """

    operation: Convolution
    choice: ConvolutionChoice
    dtype: str
    by_default: Mapping[str, Any]
    price: Callable[[str, Convolution], Time | None]
    counted: Callable[[str, Convolution], Counts] = counts_of
    shown: Callable[[str], Explanation] | None = None
    least: Callable[[str, Convolution], Quantity] = lambda *_: 0.0

    def candidates(self) -> Mapping[str, Any]:
        """Return algorithms by name, each with whether it applies: one value, or an array.

        A matrix product is among them, and does. Raises SettingError if the cuDNN of this machine
        is asked and there is none.
        """
        choice = self.choice
        if choice.library == ASKED:
            return self._asked()
        found = self.by_default
        if choice.library is not None:
            found = LIBRARIES[choice.library].offers(self.operation)
        if choice.only_gemm:
            found = {name: applies for name, applies in found.items() if ALGORITHMS[name].is_gemm}
        return found

    def _fits(self, name: str, operation: Convolution) -> Any:
        """Return whether an algorithm needs no more workspace than it may, for each batch."""
        limit = self.choice.workspace
        if limit is None or name == GEMM or self.choice.library == ASKED:
            return True
        return self.counted(name, operation).workspace_bytes <= limit

    def _asked(self) -> Mapping[str, Any]:
        """Return the product, and what cuDNN prefers of what applies: for each batch, its own."""
        batches: Any = self.operation.batch
        if not is_array(batches):
            return {GEMM: True, self._preferred(batches): True}
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

    def price_by(self, algorithm: str) -> Time | None:
        """Return the time by one algorithm; None where it does not apply, or has no price."""
        applies = ALGORITHMS[algorithm].applies(self.operation)
        return self.price(algorithm, self.operation) if applies else None

    def time(self) -> Time:
        """Return the time of the quickest candidate that may be chosen, element by element.

        What cuDNN chose takes no more than a product: it would not have been chosen.
        """
        everything = all_of(self.operation)
        asked = [
            (name, applies, part)
            for name, applies in self.candidates().items()
            if (part := everything.where(applies))
        ]
        bounds: dict[str, Quantity] = {}
        if len(asked) > 1:
            # The sooner a quick one is priced, the fewer others are.
            bounds = {name: self.least(name, part.operation) for name, _, part in asked}
            asked.sort(key=lambda each: largest(bounds[each[0]]))
        best: Time | None = None
        for name, applies, part in asked:
            if best is not None:
                part = part.likely(bounds[name] <= _MARGIN * part.of(best).total)
            if part:
                fits = self._fits(name, part.operation)
                time = self.price(name, part.operation) if some(fits) else None
                if time is not None:
                    best = part.quicker(best, only_where(part.taken(applies) & fits, time))
        assert best is not None
        return best

    def explanation(self) -> Explanation:
        """Return why it takes what `time` says; for numbers, not arrays.

        It names the algorithm, says what that computes, moves and needs, and what the others would
        take.
        """
        operation = self.operation
        found = {name: self._fits(name, operation) for name in self.candidates()}
        priced = {name: time for name in found if (time := self.price(name, operation)) is not None}
        fitting = [name for name in priced if found[name]]
        name = min(fitting, key=lambda name: float(priced[name].total))
        time = priced[name]
        if self.choice.library == ASKED:
            name = list(priced)[-1]
        own = self.shown(name) if self.shown else Explanation(name, time)
        counts = self.counted(name, operation)
        work = counts.work
        details: tuple[tuple[str, Quantity, str], ...] = (
            ("computation", _whole(work.flops), "FLOP"),
            ("reads", _whole(work.bytes_read), "bytes"),
            ("writes", _whole(work.bytes_written), "bytes"),
            ("workspace", _whole(counts.workspace_bytes), "bytes"),
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
            why=own.why or ALGORITHMS[name].summary,
            details=(*details, *own.details, *others),
        )


def _whole(value: Quantity) -> Quantity:
    """Return a count as a whole number where it is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
