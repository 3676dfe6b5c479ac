"""Error bands: how far the truth may be from a prediction, by what was held out of fits.

A band is of measured cases that are alike: of a kind of operation or of whole nets, and as far as
there are rows of an element type, a framework, a direction and an architecture. Where there are too
few, the band of a wider group is taken, in the order of LEVELS. A sum of operations is between the
sums of their ends, since the errors of one kind go together; of whole nets there are bands of their
own, which are taken where the cost model has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from paleo.core.attributes import Ends, at_ends
from paleo.core.frozen import dataclass
from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Convolution,
    Fused,
    FusedExperts,
    GroupedMatMul,
    MatMul,
    Operation,
)
from paleo.core.quantity import Quantity

#: The digits of a number of which no error band is known, and the fewest of one that has a band.
MOST_DIGITS, LEAST_DIGITS = 4, 2
#: The kind of a whole net's pass or step.
NET = "net"
#: The kind of a step that devices share by more than its data, its messages and waiting included.
ON_MESH = "mesh"
#: Seconds of a server to a first token, and for each other one; its software is the server.
FIRST_TOKEN, TOKEN = "first token", "token"
#: The kinds of whole steps and passes, which have a direction and a software.
WHOLE = (NET, ON_MESH, FIRST_TOKEN, TOKEN)


#: What a net's times are of: steps or their passes, or forward passes as in inference.
TRAINING, INFERENCE = "training", "inference"
#: The architecture of all devices of which nothing was fitted.
UNKNOWN = ""

#: What each kind of operation is called.
_CALLED = {
    NET: "nets",
    ON_MESH: "steps on meshes",
    FIRST_TOKEN: "first tokens",
    TOKEN: "tokens",
    "gemm": "matrix products",
    "bmm": "batched matrix products",
    "convolution": "convolutions",
    "recurrent": "recurrent layers",
    "attention": "attention",
    "stream": "operations that move data",
}


@dataclass(frozen=True)
class Like:
    """What measured cases have in common, None for what they need not.

    `direction` is TRAINING or INFERENCE, of nets alone. `bits` are those of the elements that
    operations read and write. `software` is the family of what runs a net, of
    paleo.cluster.frameworks or of what compiles for it, "" for any other framework; of an operation
    "" where its kernels were timed by themselves. An `architecture` is one that has constants of
    its own, or UNKNOWN.
    """

    kind: str
    direction: str | None = None
    bits: int | None = None
    software: str | None = None
    architecture: str | None = None

    def keeping(self, names: Iterable[str]) -> Like:
        """Return what has only this in common, and the kind."""
        return Like(self.kind, **{name: getattr(self, name) for name in names})

    @property
    def wider(self) -> Iterator[Like]:
        """What has ever less in common, from this itself on, in the order of LEVELS.

        Cases on architectures of which nothing is known are never taken with others.
        """
        levels: Iterable[tuple[str, ...]] = LEVELS.get(self.kind, LEVELS[""])
        if self.architecture == UNKNOWN:
            levels = [(*(set(level) - {"architecture"}), "architecture") for level in levels]
        yield from dict.fromkeys(map(self.keeping, levels))

    def said(self, asked: Like | None = None) -> str:
        """Return which cases these are, in words; and of what was `asked` there were too few."""
        words = " ".join(self._words())
        missed = [] if asked is None else asked._words(known=self)[1:]
        return f"{words}; too few were measured {' '.join(missed)}" if missed else words

    def _words(self, known: Like | None = None) -> list[str]:
        """Return the kind, and what there is in common that is not in `known`."""
        is_net, called = self.kind in WHOLE, _CALLED.get(self.kind, self.kind)
        new = {
            name: None if known and getattr(known, name) is not None else getattr(self, name)
            for name in ("direction", "bits", "software", "architecture")
        }
        words = [called]
        if new["direction"] is not None:
            words.append(f"in {new['direction']}")
        if new["bits"] is not None:
            words.append(f"in {new['bits']} bits")
        if new["software"] is not None and is_net:
            words.append(f"by {(new['software'] or 'other frameworks').replace('_', ' ')}")
        elif new["software"]:
            words.append(f"timed from the {new['software']}")
        if new["architecture"] == UNKNOWN:
            words.append("on architectures as if nothing had been fitted to them")
        elif new["architecture"]:
            words.append(f"on {new['architecture']}")
        return words


#: What cases have in common, in the order in which bands of them are looked for, by their kind;
#: "" is any operation, of which times of kernels are never taken with times from the host. The last
#: two of nets serve who asks for an architecture alone.
_OF_WHOLE = (
    ("direction", "bits", "software", "architecture"),
    ("direction", "bits", "software"),
    ("direction", "software"),
    ("direction", "bits", "architecture"),
    ("direction", "bits"),
    ("direction", "architecture"),
    ("direction",),
    ("architecture",),
    (),
)
LEVELS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(WHOLE, _OF_WHOLE),
    "": (
        ("bits", "software", "architecture"),
        ("bits", "software"),
        ("software", "architecture"),
        ("software",),
    ),
}


@dataclass(frozen=True)
class Band:
    """The truth is between `low` and `high` times a prediction, by `count` errors, in `coverage`.

    `low` is 0 or `high` infinite where there were too few errors for such a coverage. `source`
    says of what predictions the errors were, `sources` how many published or measured them.
    """

    low: float
    high: float
    count: int
    coverage: float
    source: str = ""
    sources: int = 0
    #: Whether it is of all of a step, and not of its computation alone.
    whole: bool = False

    def __str__(self) -> str:
        """Return the band as it stands behind a time: "+9 % -7 %"."""
        return f"{100 * (self.high - 1):+.0f} % {100 * (self.low - 1):+.0f} %"

    @property
    def said(self) -> str:
        """The band in a sentence: what measured cases took, and which cases those are."""
        for decimals in (2, 3, 4):  # as many as tell both ends apart
            low, high = (None if end is None else f"{end:.{decimals}f}" for end in self.ends)
            if low != high:
                break
        return self.says(low, high, " times what is predicted")

    def says(self, low: str | None, high: str | None, unit: str = "") -> str:
        """Return the sentence with texts for both ends, None for one that is not known."""
        if low is None and high is None:
            return f"too few cases were measured ({self.cases})"
        if low is None or high is None:
            between = f"at least {low}" if high is None else f"at most {high}"
        elif low == high:
            between = f"about {high}"
        else:
            between = f"between {low} and {high}"
        return f"{100 * self.coverage:.0f} % of measured cases took {between}{unit} ({self.cases})"

    @property
    def cases(self) -> str:
        """How many cases were measured, and which."""
        cases = f"{self.count:,} cases" + f" from {self.sources} sources" * (self.sources > 1)
        return f"{cases}: {self.source}" if self.source else cases

    @property
    def ends(self) -> Ends[float]:
        """The factors at both ends; None for an end that is not known."""
        return self.low or None, self.high if self.high < float("inf") else None

    @property
    def digits(self) -> int:
        """How many significant digits it supports: the first that it moves, and the next."""
        low, high = self.ends
        width = ((high or math.inf) - (low or 0.0)) / 2
        if not 0 < width < 1:
            return LEAST_DIGITS
        return max(LEAST_DIGITS, min(MOST_DIGITS, 1 + math.ceil(-math.log10(width))))

    def around(self, seconds: Quantity) -> Ends[Quantity]:
        """Return the least and the most that so many seconds are in truth."""
        return at_ends(self.ends, lambda factor: factor * seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output; None for an open end."""
        return {
            "low": self.low,
            "high": self.high if self.high < float("inf") else None,
            "count": self.count,
            "coverage": self.coverage,
            **({"source": self.source} if self.source else {}),
            **({"sources": self.sources} if self.sources else {}),
        }


def kind_of(operation: Operation) -> str:
    """Return the kind of operation that an error band is of."""
    if isinstance(operation, Fused):
        return kind_of(operation.head)
    if isinstance(operation, MatMul):
        return "gemm"
    if isinstance(operation, FusedExperts):
        return kind_of(operation.products[0])
    if isinstance(operation, GroupedMatMul):
        return kind_of(operation.products)
    if isinstance(operation, BatchMatMul):
        return "recurrent" if operation.dependent else "bmm"
    if isinstance(operation, Convolution):
        return "convolution"
    return "attention" if isinstance(operation, Attention) else "stream"
