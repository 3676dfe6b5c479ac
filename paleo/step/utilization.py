"""What a sample makes devices compute, and how well that uses them: tokens, MFU and HFU.

The convention, for every net and command:

- The FLOPs of a model are those of products, convolutions and attention, forward and backward, one
  multiply-add being 2; gradients that nobody needs are none. Other operations, the look-up of an
  embedding and the update count none.
- Attention is counted in full, a causal one too, of which half the scores are not needed: a token
  of L layers with H heads of Q features over T tokens takes 12 L H Q T, as in A. Chowdhery et al.,
  "PaLM: scaling language modeling with Pathways", arXiv:2204.02311, appendix B. A window counts the
  keys that it has. That a fused kernel computes scores again is not counted.
- MFU, model FLOP utilization, is those FLOPs a second over the dense peak of all devices in the
  type that layers compute in. What `--recompute` computes again is not in it.
- HFU, hardware FLOP utilization, has what is computed again, too.

Where a net's words come in there are tokens: an Input that an Embedding reads, N x T, has T tokens
a sample. Of several such inputs (words, and their kinds) the longest counts.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.operations import LAYER_PASSES, PRODUCTS, Operation, Pass
from paleo.core.quantity import Quantity, is_array, maximum, product, total
from paleo.costs import Conventions
from paleo.net.graph import Graph, cached_for_net, typical
from paleo.net.layers import Layer
from paleo.net.spec import NetSpec
from paleo.step.loss import word_lookups
from paleo.step.passes import keep_shape, needed_gradients
from paleo.step.recompute import Recompute


@dataclass(frozen=True)
class Sample:
    """What one sample has and makes devices compute in a training step.

    `tokens` are None where what comes in is no text; `flops` are the model's by the convention of
    this module, `hardware_flops` those with what is computed again. `peak` is FLOP/s of the devices
    that each worker has, None where it is not known.
    """

    tokens: Any  # a number, or an array where sizes of the net are
    flops: float
    hardware_flops: float
    peak: float | None

    def on(self, devices: float) -> Sample:
        """Return the same where each worker has so many devices on average."""
        return replace(self, peak=None if self.peak is None else devices * self.peak)

    def utilization(self, flops: float, throughput: Quantity, workers: Quantity) -> Any:
        """Return the share of peak of so many FLOPs a sample, at so many samples a second."""
        return flops * throughput / (workers * self.peak) if self.peak else None


def tokens_of(net: NetSpec, adapt: Callable[[Layer], Layer] | None = keep_shape) -> Any:
    """Return how many tokens a sample of a net has, None where no Embedding reads an Input.

    `adapt` is that of `build`. Raises NetSpecError for layers that do not fit.
    """
    return cached_for_net(_tokens_of, net, adapt)


def _tokens_of(net: NetSpec, adapt: Callable[[Layer], Layer] | None) -> Any:
    sources = word_lookups(typical(net, "fp32", adapt))
    counts = [product(source.output[1:]) for _, source in sources]
    return functools.reduce(maximum, counts) if counts else None


def model_flops(graph: Graph, conventions: Conventions, counts: Sequence[int] | None = None) -> Any:
    """Return the FLOPs of a model in both passes over a graph's batch, by the convention above.

    Which gradients somebody needs is up to the cost model's conventions. Of a short graph, `counts`
    says how often there is each node in that of the whole net.
    """
    needed = needed_gradients(graph, conventions)
    alike: Counter[tuple[int, tuple[bool, ...]]] = Counter()
    for node, count in zip(graph.nodes, counts or itertools.repeat(1), strict=False):
        alike[node.like, needed[node.index]] += count
    return total(
        count * product_flops(graph.operations(graph.nodes[like], direction, wanted))
        for (like, wanted), count in alike.items()
        for direction in LAYER_PASSES
    )


def typical_flops(
    net: NetSpec,
    dtype: str,
    adapt: Callable[[Layer], Layer] | None,
    conventions: Conventions,
) -> Any:
    """Return `model_flops` of a net over its typical batch; `adapt` is that of `build`."""
    return model_flops(typical(net, dtype, adapt), conventions)


def recomputed_flops(
    graph: Graph, recompute: Recompute, counts: Sequence[int] | None = None
) -> int:
    """Return the FLOPs over a graph's batch of what is computed again, by the same convention."""
    return sum(
        (counts[i] if counts else 1) * product_flops(graph.operations(graph.nodes[i], Pass.FORWARD))
        for i in itertools.chain(*recompute.regions(graph))
    )


def product_flops(operations: Iterable[Operation]) -> Any:
    """Return the FLOPs of those operations that are products, convolutions or attention."""
    found = total(each.flops for each in operations if isinstance(each, PRODUCTS))
    return found if is_array(found) else int(found)
