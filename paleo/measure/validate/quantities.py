"""What is measured: the quantities of a row, their units, and what is predicted for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paleo.core.errors import near
from paleo.core.frozen import dataclass

#: Seconds of the units that end the name of a time.
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
#: Words for a time's unit besides the one in the name of the quantity.
_WORDS = {
    "s": ("sec", "seconds", "second"),
    "ms": ("msec", "milliseconds", "millisecond"),
    "us": ("usec", "microseconds", "microsecond", "\N{MICRO SIGN}s", "\N{GREEK SMALL LETTER MU}s"),
}


@dataclass(frozen=True)
class Measured:
    """A quantity: its name, whether it is a time or a rate, and what is predicted for it.

    Of a name that is not known, of kind "unknown", `problem` says so.

    A time is `scale` seconds a unit. A rate counts `things` a second. `part` is "" where
    nothing is predicted: "forward", "backward", "step" of a net, "op" of an operator, "run"
    for rates of a net, which are of training or inference as the row says.
    """

    name: str
    kind: str
    part: str = ""
    scale: float = 1.0
    things: str = ""
    problem: str = ""


#: The words for times, each of the part of that name; a latency is of the forward pass.
_TIMES = ("forward", "latency", "backward", "backward_input", "backward_weight", "step", "op")
#: The quantities that can be predicted.
QUANTITIES: Mapping[str, Measured] = {
    **{
        f"{word}_{unit}": Measured(
            f"{word}_{unit}", "time", "forward" if word == "latency" else word, scale
        )
        for word in _TIMES
        for unit, scale in _SECONDS.items()
    },
    **{
        f"{things}_per_s": Measured(f"{things}_per_s", "rate", "run", things=things)
        for things in ("images", "sequences", "samples", "tokens")
    },
}

_COLLECTIVES = (
    "allreduce|all_reduce|allgather|all_gather|reduce_scatter|reducescatter|alltoall|all_to_all"
    "|broadcast|reduce|send_recv|sendrecv|p2p|scatter|gather"
)
#: Those of collectives; bus bandwidths are GB/s, as nccl-tests count them.
_EXCHANGES = re.compile(rf"({_COLLECTIVES})_(?P<unit>ms|us|s|busbw)")
#: Quantities that are known and that nothing is predicted for.
_OTHERS = re.compile(
    rf"({_COLLECTIVES})_(ms|us|s|busbw|algbw)"
    r"|(layer|total|prefill|decode|ttft|tpot|itl|e2e|generation|epoch|train|iteration)_(ms|us|s|h)"
    r"|(prefill|decode|time|latency|ttft|tpot)_(ms|us|s)_per_\w+"
    r"|((prefill|decode|train|generation|input|output|total)_)?(tokens|requests|words)_per_s"
    r"|(\w+)_per_s_per_(gpu|device|node|chip|core)"
    r"|(t|p|g)flop?s(_per_(gpu|device|s|chip))?|(mfu|hfu)(_percent)?"
    r"|\w+_(busbw|algbw|bandwidth)|(peak_)?memory_(gb|gib|bytes|mib|mb)|(gpu|device)_hours"
)

_RATE = re.compile(r"([a-z]+) ?(/|per) ?(s|sec|second)")
_THINGS = {
    "images": ("images", "image", "img", "imgs", "samples", "sample", "examples", "frames"),
    "sequences": ("sequences", "sequence", "seq", "seqs", "sentences", "samples", "sample"),
    "tokens": ("tokens", "token", "tok", "words"),
}
_THINGS["samples"] = (*_THINGS["images"], *_THINGS["sequences"], "items", "records")


def find_quantity(name: str) -> Measured | None:
    """Return a quantity by name, of kind "unknown" where nothing is called so; None for ""."""
    if name in QUANTITIES:
        return QUANTITIES[name]
    if match := _EXCHANGES.fullmatch(name):
        unit = match["unit"]
        if unit == "busbw":
            return Measured(name, "bus bandwidth", scale=1e9)
        return Measured(name, "exchange", scale=_SECONDS[unit])
    if _OTHERS.fullmatch(name):
        return Measured(name, "other")
    if not name:
        return None
    hint = near(name, QUANTITIES) or "; such as step_ms, forward_ms, op_ms, images_per_s"
    return Measured(name, "unknown", problem=f"unknown quantity {name!r}{hint}")


def unit_problem(quantity: Measured, unit: str) -> str:
    """Return what is wrong with the unit of a row, "" if nothing is. It may be left out."""
    if not unit or quantity.kind in ("other", "unknown", "exchange", "bus bandwidth"):
        return ""
    if quantity.kind == "time":
        own = quantity.name.rpartition("_")[2]
        if unit == own or unit.lower() in _WORDS[own]:
            return ""
        return f"the unit {unit!r} does not belong to {quantity.name}, which is in {own}"
    match = _RATE.fullmatch(unit.lower())
    if match and match[1] in _THINGS[quantity.things]:
        return ""
    return f"the unit {unit!r} does not belong to {quantity.name}: expected {quantity.things}/s"
