"""What a step is asked by: kernels, degrees, and the parts that it consists of."""

from __future__ import annotations

from paleo.cluster.device import Device
from paleo.core.errors import HardwareError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity
from paleo.costs import Time
from paleo.costs.tiled.backends import Backend
from paleo.step.serving.program import HALF
from paleo.step.serving.tables import Line, Plane

#: How tokens reach experts of other groups: all of them go to all devices, or each to its own.
ALL_GATHER, ALL_TO_ALL = "all_gather", "all_to_all"
#: And as DeepEP moves them: many tokens go once to each host, whose devices pass them on.
ONCE_A_HOST = "once_a_host"


class Parts(NamedTuple):
    """Times of a step by the names of its parts; numbers or arrays."""

    times: dict[str, Time]

    def __add__(self, other: Parts) -> Parts:  # type: ignore[override]
        found = dict(self.times)
        for name, time in other.times.items():
            found[name] = found.get(name, Time()) + time
        return Parts(found)

    @property
    def seconds(self) -> Quantity:
        return sum((time.total for time in self.times.values()), 0.0)

    def times_of(self, count: Quantity) -> Parts:
        """Return what so many take."""
        return Parts({name: time.times(count) for name, time in self.times.items()})


@dataclass(frozen=True)
class Degrees:
    """Over how many devices one copy of a net is spread, and how.

    `tp` devices share each layer, `pp` the layers, `cp` the positions of a request: each has a part
    of its cache, and of its prompt. Of those that share layers, `attention_dp`
    groups have different requests, each a copy of all but the experts; of these devices `ep` have
    different experts, and tp / ep share each.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    cp: int = 1

    @property
    def of_attention(self) -> int:
        """Devices that share one request's attention."""
        return self.tp // self.attention_dp

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.cp


@dataclass(frozen=True)
class Kernels:
    """Whose kernels run: `backend`, in which numbers, and how devices exchange.

    `weights` and `experts` are names of `QUANTIZATIONS`, and so is `attention`, of the products
    before and behind attention where those differ. `cache` is the bytes of a number of keys and
    values. `reduces` is the scheme of all-reduces, whose kernel adds what came before and
    normalizes, too, where it `folds_norms`. `exchange` is how tokens reach experts where attention
    is data parallel. With `evens_experts` each of them has as many rows as the others, as where
    those that are chosen most have several copies. `version` has the numbers of the server's, none
    where it is its own.
    """

    backend: Backend | None
    weights: str = "bf16"
    experts: str = "bf16"
    cache: float = HALF
    reduces: str = "auto"
    folds_norms: bool = False
    attention: str = ""
    exchange: str = ALL_GATHER
    evens_experts: bool = False
    version: tuple[int, ...] = ()


def widest(device: Device) -> str:
    """Return bf16, or fp16 where a device has no peak of it."""
    try:
        device.peak("bf16")
    except HardwareError:
        return "fp16"
    return "bf16"


class Tables(NamedTuple):
    """Seconds of the parts of a step: of all tokens, of those sampled, of attention.

    `steps` are of requests that decode with so many keys, `prompts` of a prompt's new tokens behind
    others.
    """

    rows: Line
    scores: Line
    steps: Plane
    prompts: Plane
