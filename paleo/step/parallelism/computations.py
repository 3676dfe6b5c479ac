"""What one worker computes of a net in a step: forward, backward and update."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, at, ceil_div, joined, np, total
from paleo.core.tensor import find_precision
from paleo.costs import Time
from paleo.net.graph import cached_for_net, typical
from paleo.net.spec import NetSpec
from paleo.step.loader import LoaderSettings
from paleo.step.mesh_settings import MeshSettings
from paleo.step.parallelism.overlap import Made
from paleo.step.passes import PassTime, Recomputed, not_counted
from paleo.step.pieces import Piece
from paleo.step.plan import Plan
from paleo.step.recompute import RECOMPUTATION
from paleo.step.utilization import Sample, model_flops, recomputed_flops, tokens_of, typical_flops

if TYPE_CHECKING:  # most commands are about a net whose layers are looked at one by one
    from paleo.step.shortened import Shortened

#: What of a plan is of the exchange alone, of devices that share a net, or of what they wait for.
_OF_EXCHANGES = (
    *("network", "cluster", "ppp_comm", "schemes", "bucket", "gradient_dtype", "compress"),
    *("num_servers", "jitter", "nccl"),
    *MeshSettings.__annotations__,
    *LoaderSettings.__annotations__,
)


_NOTHING, _NEVER = Time(), Recomputed({})


class Computation(NamedTuple):
    """What one worker computes in a step, and the bytes of its gradients.

    `made` says in which order and when the last backward pass makes them, where they are exchanged
    while it goes on.
    """

    pieces: tuple[Piece, ...]
    num_bytes: int
    made: tuple[Made, ...] = ()

    @property
    def seconds(self) -> Quantity:
        """The seconds of all pieces, one after the other."""
        return total(piece.seconds for piece in self.pieces)


def divided(batch_size: Any, workers: Any, scaling: str, turns: int = 1) -> tuple[Any, Any]:
    """Return the samples of one worker at a time and of the whole step.

    Weak scaling gives each worker the batch, so many `turns` of it, strong scaling its share of
    one, rounded up.
    """
    if scaling == "weak":
        return batch_size, batch_size * workers * turns
    return ceil_div(batch_size, workers * turns), batch_size


class Computations:
    """What one worker computes of a net under a plan, by the samples that it has.

    It is kept, for it is asked for again and again, and the same on any network: plans that differ
    in what connects devices and in `schemes` alone may share it.
    """

    #: So many batch sizes are kept: about as many as share out a million samples (2 MB).
    MOST = 2048

    def __init__(self, net: NetSpec, plan: Plan) -> None:
        self.net = net
        self.plan = plan
        self._known: dict[int, Computation] = {}

    def suit(self, net: NetSpec, plan: Plan) -> bool:
        """Tell whether they are those of this net under this plan too."""
        alike = replace(plan, **{name: getattr(self.plan, name) for name in _OF_EXCHANGES})
        return net == self.net and alike == self.plan

    def of(self, batch: Quantity) -> Computation:
        """Return what a worker computes of so many samples, or of an array of such numbers.

        Where gradients are accumulated that is of so many in each turn: the passes are done once
        for each, and all turns but the first add their gradients to those before.
        """
        if isinstance(batch, int) and not self.net.sweep:
            if batch not in self._known:
                self._keep(batch, self._computed(batch))
            return self._known[batch]
        if self.net.sweep:  # whose sizes each batch goes with
            swept = self._computed(batch)
            vars(self).setdefault("num_bytes", swept.num_bytes)
            return swept
        sizes, places = np.unique(batch, return_inverse=True)
        known = list(map(self._known.get, sizes.tolist()))
        found: Computation = self._computed(sizes) if None in known else joined(known)
        of_all: Computation = at(found, places.reshape(np.shape(batch)))
        return of_all

    def _computed(self, batch: Quantity, *, bounds: bool = True) -> Computation:
        """Return what a worker computes, worked out anew; without `bounds` seconds alone."""
        plan = self.plan
        graph = plan.graph(self.net, batch)
        num_params = graph.num_params
        forward, backward = plan.passes(graph)
        again = plan.recomputed(graph, forward)
        update = plan.update_of(graph)
        size = plan.encoding.size
        num_bytes = size * num_params
        turns, summing = plan.accumulate, plan.summing_time(num_bytes, graph.num_tensors)
        made = made_by(backward, size, again) if plan.overlaps else ()
        return Computation(
            (
                _done("forward", turns, forward, bounds),
                *recomputation(again, turns),
                _done("backward", turns, backward, bounds, summing),
                Piece("update", "update", plan.seconds(update), time=update),
            ),
            num_bytes,
            tuple(one.longer(summing.total, num_bytes) for one in made) if turns > 1 else made,
        )

    def prepare(self, batches: Iterable[int]) -> None:
        """Compute those of these batches that are not known yet at once, as an array.

        For many batches or layers that is sooner done than one by one, and gives the same. All of
        them are known then, however many they are.
        """
        wanted = set(batches)
        for batch in wanted.intersection(self._known):
            self._known[batch] = self._known.pop(batch)  # the newest now, which stay
        asked = self.missing(wanted)
        found = self._computed(np.array(asked, np.int64))
        shape = (len(asked),)
        pieces = zip(*(piece.spread(shape) for piece in found.pieces), strict=True)
        made = zip(*(one.spread(shape) for one in found.made), strict=True)
        for batch, alone in zip(asked, pieces, strict=True):
            own = next(made) if found.made else ()
            self._keep(batch, Computation(alone, found.num_bytes, own), len(wanted))

    def missing(self, batches: Iterable[int]) -> list[int]:
        """Return those of these batches that are not known yet, in order."""
        return sorted(set(batches).difference(self._known))

    @functools.cached_property
    def num_bytes(self) -> int:
        """The bytes of the gradients, which no batch changes."""
        known = next(iter(self._known.values()), None) or self.of(1)
        return known.num_bytes

    @functools.cached_property
    def left_out(self) -> tuple[str, ...]:
        """The names of operations that the cost model leaves out."""
        plan = self.plan
        if plan.cost_model.counts_all and all(spec.layer.is_known for spec in self.net.few.layers):
            return ()
        return not_counted(typical(plan.trained(self.net), plan.dtype, plan.adapt), plan.cost_model)

    @functools.cached_property
    def sample(self) -> Sample:
        """What one sample has and takes: see paleo.step.utilization."""
        return sample_of(self.net, self.plan)

    def _keep(self, batch: int, found: Computation, least: int = 0) -> None:
        """Keep what is found, and of the others the newest; at least so many."""
        while len(self._known) >= max(self.MOST, least):
            self._known.pop(next(iter(self._known)))
        self._known[batch] = found


def sample_of(net: NetSpec, plan: Plan, short: Shortened | None = None) -> Sample:
    """Return what one sample of a net has and takes; with a `short` net, of that where it can."""
    few = short.net if short and not plan.recompute.blocks else net
    known = plan.computable(plan.trained(few))
    graph = typical(known, plan.dtype, plan.adapt)
    if short and few is not net:
        counts = short.counts(graph)
        if counts is None:
            return sample_of(net, plan)
        flops = model_flops(graph, plan.cost_model.conventions, counts)
    else:
        which = plan.dtype, plan.adapt, plan.cost_model.conventions
        counts, flops = None, cached_for_net(typical_flops, known, *which)
    again = recomputed_flops(graph, plan.recompute, counts)
    batch = int(graph.batch_size)
    computing = find_precision(plan.dtype).multiplying
    peak = float(plan.device.peak(computing)) if plan.device.peaks.get(computing) else None
    return Sample(tokens_of(few, plan.adapt), flops / batch, (flops + again) / batch, peak)


def _done(name: str, turns: int, passed: PassTime, bounds: bool, summing: Time = _NOTHING) -> Piece:
    """Return a pass that is done so many times, with sums of gradients but for the first."""
    time = passed.time.times(turns) + summing.times(turns - 1) if bounds else None
    return Piece(name, name, turns * passed.upper + (turns - 1) * summing.total, time=time)


def recomputation(again: Recomputed, turns: int = 1) -> tuple[Piece, ...]:
    """Return what is computed again in so many backward passes, if anything is."""
    if not again.before:
        return ()
    time = again.time.times(turns)
    return (Piece(RECOMPUTATION, RECOMPUTATION, turns * again.seconds, time=time),)


def made_by(backward: PassTime, size: int, again: Recomputed = _NEVER) -> tuple[Made, ...]:
    """Return the gradients of a backward pass in its order, of parameters of `size` bytes.

    Those of parameters that layers share are whole once the first of these layers is done. What is
    computed `again` comes before.
    """
    found = []
    seconds: Quantity = 0.0
    for layer in reversed(backward.layers):
        before = again.before.get(layer.node.index, ())
        seconds = seconds + total(each.seconds for each in before) + layer.seconds
        if layer.node.num_params:
            found.append(Made(seconds, size * layer.node.num_params))
            seconds = 0.0
    return (*found, Made(seconds, 0))
