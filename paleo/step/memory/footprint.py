"""The memory of a net at a batch size, layer by layer and at its peak.

Bytes at every point of a step are a + b times the batch, so that the largest batch which fits
is found without a search.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.cluster.frameworks import Framework, find_framework
from paleo.core.attributes import Ends, at_ends, attributes, with_ends
from paleo.core.checks import MAX_COUNT, is_number, shown
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, has_arrays, is_array, np, total
from paleo.core.results import Result
from paleo.core.tensor import find_precision, num_elements
from paleo.costs.error_bands import Band
from paleo.net.asked import unpriced
from paleo.net.graph import Graph, build, build_once, cached_for_net, checked_batch, typical
from paleo.net.importers import ImportOptions
from paleo.net.load import NetLike, load
from paleo.net.spec import NetSpec
from paleo.step.loss import NONE, composed, with_loss
from paleo.step.matrices import Matrix, matrices
from paleo.step.memory.liveness import Schedule, scheduled
from paleo.step.memory.usage import Step
from paleo.step.optimizers import OPTIMIZERS, Optimizer, find_optimizer
from paleo.step.passes import keep_shape
from paleo.step.recompute import NOTHING, Recompute, find_recompute

#: The schedules of so many nets are kept, each of 2 MB at most.
_KEPT = 32


#: What PyTorch's allocator gave out at the peak over what is predicted, in training: docs/memory.md
#: has the 48 rows, of 16 nets. More is what oneDNN takes inside of operators.
MEASURED = Band(1.0, 1.08, 48, 0.8, "what PyTorch 2.13 allocated on x86_64, 16 nets")
#: What of a layer stays in memory.
PARTS = ("weights", "gradients", "optimizer_state", "activations")


@dataclass(frozen=True)
class LayerMemory:
    """The bytes of one layer, or of one slice of a split layer.

    `weights` are those at the end of the forward pass: in mixed precision parameters and the
    copies of them that the layers have read. `activations` are kept for the backward pass, each
    tensor counted where it is made; in inference they are what of the layer is alive when the
    sum of activations is largest. `output` is the size of its output, whether or not that takes
    memory of its own.
    """

    name: str
    type_name: str
    output: Quantity
    weights: int
    gradients: int
    optimizer_state: int
    activations: Quantity
    #: How many instances of a repeated block these are sums over: see paleo.studies.folding.
    instances: int = 1

    @property
    def total(self) -> Quantity:
        """Weights, gradients, optimizer state and activations."""
        return self.weights + self.gradients + self.optimizer_state + self.activations

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "name": self.name,
            "type": self.type_name,
            **attributes(self, "output", *PARTS, "total", unit="bytes"),
        }


@dataclass(frozen=True)
class Footprint(Result):
    """The bytes of a net at one batch size, or at an array of them.

    `activations` are those kept for the backward pass, at the end of the forward pass; in
    inference the largest sum of those alive at one time. `peak` is the largest sum of
    everything in a step, `workspace` included; it is reached in the layer `peak_layer`, in
    `peak_pass`: "forward", "backward", "recomputation" or "update". For an array of batch sizes
    both are arrays of names. Layers that are split over devices count with all their slices.
    `recompute` says what is computed again in training.
    """

    net: str
    batch_size: Quantity
    optimizer: str
    training: bool
    dtype: str
    workspace: int
    peak: Quantity
    peak_layer: Any
    peak_pass: Any
    layers: tuple[LayerMemory, ...]
    recompute: str = "none"
    #: Bytes of the activations that the backward pass needs of the forward pass; 0 in inference.
    kept: Quantity = 0
    #: Bytes of what is not of parameters where that is most: activations, and gradients of them.
    moving: Quantity = 0
    optimizer_kernels: str | None = None
    #: Bytes of the weights that are copies: in halves of parameters in fp32, and in fp8.
    copies: int = 0
    #: What a reader should know of the figures.
    notes: tuple[str, ...] = ()
    #: The repeated blocks of the net, as in NetSpec.
    repeats: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    def at(self, index: int) -> Footprint:
        """Return that of one of an array of batch sizes."""

        def one(value: Any) -> Any:
            return value[index].item() if is_array(value) else value

        names = ("batch_size", "peak", "peak_layer", "peak_pass", "kept", "moving")
        layers = tuple(
            replace(layer, output=one(layer.output), activations=one(layer.activations))
            for layer in self.layers
        )
        return replace(self, layers=layers, **{name: one(getattr(self, name)) for name in names})

    @property
    def band(self) -> Band | None:
        """How far what is allocated may be from the peak, where that was measured."""
        is_measured = self.training and find_precision(self.dtype).scaling is None
        return MEASURED if is_measured and not self.workspace else None

    @property
    def peak_ends(self) -> Ends[Any]:
        """The peak at both ends of its error band."""
        return self.band.around(self.peak) if self.band else (None, None)

    @property
    def purpose(self) -> str:
        """What it is for, in words: "training with sgd", or "inference"."""
        again = "" if self.recompute == "none" else f" and recomputation ({self.recompute})"
        by = f" ({self.optimizer_kernels})" if self.optimizer_kernels else ""
        return f"training with {self.optimizer}{by}{again}" if self.training else "inference"

    @property
    def weights(self) -> int:
        """Bytes of the parameters, and of the copies that layers read in mixed precision."""
        return sum(layer.weights for layer in self.layers)

    @property
    def gradients(self) -> int:
        """Bytes of the parameters' gradients; 0 in inference."""
        return sum(layer.gradients for layer in self.layers)

    @property
    def optimizer_state(self) -> int:
        """Bytes that the optimizer keeps from one step to the next; 0 in inference."""
        return sum(layer.optimizer_state for layer in self.layers)

    @property
    def activations(self) -> Quantity:
        """Bytes of activations: kept for the backward pass, or the largest sum in inference."""
        return total(layer.activations for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "net": self.net,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer if self.training else None,
            "optimizer_kernels": self.optimizer_kernels,
            **attributes(self, "training", "dtype", "recompute", "layers"),
            **attributes(self, *PARTS, "workspace", unit="bytes"),
            **with_ends(
                attributes(self, "peak", unit="bytes"),
                at_ends(self.peak_ends, lambda end: {"peak_bytes": int(end)}),
                times=["peak_bytes"] if self.band else (),
            ),
            **attributes(self, "peak_layer", "peak_pass", "notes"),
        }


def footprint(
    net: NetLike,
    batch_size: Quantity | None = None,
    *,
    optimizer: str = "sgd",
    optimizer_kernels: str | None = None,
    training: bool = True,
    dtype: str = "fp32",
    loss: str = NONE,
    framework: str | Framework | None = None,
    recompute: str | Recompute = NOTHING,
    workspace: float = 0,
    importing: ImportOptions | None = None,
) -> Footprint:
    """Return what a net takes of memory at this batch size; None takes the file's.

    `optimizer` is one of `OPTIMIZERS`, computed by `optimizer_kernels` ("fused", "foreach" or
    "forloop" of PyTorch; None: tensor by tensor); in inference there is none. `dtype` is one of
    paleo.core.tensor.PRECISIONS: training in mixed precision keeps parameters in fp32, with copies
    of them for the layers to read; inference has the copies alone. A language model that ends at
    scores has the `loss` in training, one of paleo.step.loss.LOSSES. Of `framework`, one of
    paleo.cluster.FRAMEWORKS, only those matter whose models compose layers in steps, which keep
    more: "transformers". `recompute` says what is
    computed again in training, "none", "selective" or "full": see paleo.step.recompute. `workspace`
    are bytes to add at every point, such as a library's scratch memory. `importing` is for files of
    other frameworks, as in `load`. Raises a PaleoError with every mistake in settings and file.

    >>> footprint = paleo.footprint("lenet5", 64)
    >>> footprint.weights == 4 * paleo.summarize("lenet5").num_params
    True
    """
    mistakes = Mistakes()
    chosen = mistakes.check(find_optimizer, optimizer, optimizer_kernels)
    added = mistakes.check(_checked_bytes, workspace, "workspace")
    mistakes.check(find_precision, dtype)
    again = mistakes.check(find_recompute, recompute)
    software = mistakes.check(find_framework, framework)
    if batch_size is not None:
        mistakes.check(checked_batch, batch_size)
    spec = mistakes.check(load, net, importing)
    if spec and training:
        spec = mistakes.check(with_loss, spec, loss)
    mistakes.raise_as(PaleoError)
    assert chosen is not None
    assert added is not None
    assert again is not None
    assert spec is not None
    spec = composed(spec, software)
    graph = build(spec, batch_size, dtype, keep_shape)
    step = step_of(spec, graph, chosen if training else None, again)
    schedule, sums = step.schedule, step.sums()
    peak, top = _largest(sums)
    fullest = schedule.last_forward
    if not training:
        _, fullest = _largest(step.sums(activations_only=True))
    activations = step.activations(fullest)
    own = matrices(graph) if training and chosen.by_matrix else [()] * len(graph.nodes)
    size, learned = graph.element_size, graph.precision.parameter_size
    return Footprint(
        net=spec.name,
        batch_size=graph.batch_size,
        optimizer=chosen.name,
        training=training,
        dtype=dtype,
        workspace=math.ceil(added),
        peak=peak + math.ceil(added),
        peak_layer=_at([graph.nodes[node].name for node, _ in schedule.points], top),
        peak_pass=_at([direction for _, direction in schedule.points], top),
        layers=tuple(
            LayerMemory(
                node.name,
                node.type_name,
                size * num_elements(node.output),
                weights + step.copy_size * params,
                learned * params * training,
                chosen.state_bytes(params, learned, those) * training,
                kept,
            )
            for node, params, weights, kept, those in zip(
                graph.nodes, schedule.num_params, step.weights, activations, own, strict=True
            )
        ),
        recompute=str(again) if training else "none",
        kept=step.kept if training else 0,
        moving=_largest(step.moving)[0],
        optimizer_kernels=optimizer_kernels if training else None,
        copies=step.copies if training else 0,
        notes=(*_notes(spec, graph), *(again.notes(graph) if training else ())),
        repeats=spec.repeats,
    )


def footprints(net: NetSpec, batch_sizes: Iterable[int], **settings: Any) -> dict[int, Footprint]:
    """Return `footprint` of each of these batch sizes, and take its settings and errors.

    Several are found at once, as an array: that gives the same, and is sooner done.
    """
    first, *others = sorted(set(batch_sizes), reverse=True)
    found = {first: footprint(net, first, **settings)}
    # Dimensions of 1 are repeated, but not those of an array; and an array of counts may overflow.
    together = [batch for batch in others if batch > 1] if found[first].peak <= MAX_COUNT else []
    if len(together) > 1 and has_arrays():
        whole = footprint(net, np.array(together, np.int64), **settings)
        found |= {batch: whole.at(i) for i, batch in enumerate(together)}
    for batch in others:
        if batch not in found:
            found[batch] = footprint(net, batch, **settings)
    return found


def largest_batch(
    net: NetLike,
    capacity: float,
    *,
    optimizer: str = "sgd",
    optimizer_kernels: str | None = None,
    training: bool = True,
    dtype: str = "fp32",
    loss: str = NONE,
    framework: str | Framework | None = None,
    recompute: str | Recompute = NOTHING,
    workspace: float = 0,
    importing: ImportOptions | None = None,
) -> int:
    """Return the largest batch whose peak is at most `capacity` bytes; 0 if there is none.

    The others are those of `footprint`, and so are the errors.

    >>> batch = paleo.largest_batch("resnet50", 12 * 2**30)
    >>> paleo.footprint("resnet50", batch).peak <= 12 * 2**30
    True
    >>> paleo.footprint("resnet50", batch + 1).peak <= 12 * 2**30
    False
    """
    mistakes = Mistakes()
    chosen = mistakes.check(find_optimizer, optimizer, optimizer_kernels)
    room = mistakes.check(_checked_bytes, capacity, "capacity")
    added = mistakes.check(_checked_bytes, workspace, "workspace")
    mistakes.check(find_precision, dtype)
    again = mistakes.check(find_recompute, recompute)
    software = mistakes.check(find_framework, framework)
    spec = mistakes.check(load, net, importing)
    if spec and training:
        spec = mistakes.check(with_loss, spec, loss)
    mistakes.raise_as(PaleoError)
    assert room is not None
    assert again is not None
    assert added is not None
    assert spec is not None
    spec = composed(spec.of_numbers(), software)
    left = math.floor(room) - math.ceil(added)
    added_by = chosen if training else None
    sums = functools.partial(_deciding_sums, spec, dtype, added_by, again)
    # Two batch sizes say where each line reaches the capacity. Not 1: dimensions of 1 are
    # repeated, as a batch of 2 is not.
    (two,) = sums((2,))
    if max(two) > left:
        (one,) = sums((1,))
        return int(max(one) <= left)
    lines = zip(*sums((2, 3)), strict=True)
    largest: int = min(2 + (left - low) // (high - low) for low, high in lines if high > low)
    return largest


def step_for(net: NetSpec, batch_size: Quantity, **settings: Any) -> Step:
    """Return the training step of a net that is `footprint`'s with these settings, all of them."""
    net, optimizer = _trained(net, settings)
    graph = build(net, batch_size, settings["dtype"], keep_shape)
    return step_of(net, graph, optimizer, settings["recompute"])


def step_once(net: NetSpec, batch_size: int, **settings: Any) -> Step:
    """Return what `step_for` does, sooner where nobody asks for the net at another batch size."""
    net, optimizer = _trained(net, settings)
    graph = build_once(net, batch_size, settings["dtype"], keep_shape)
    return Step(graph, optimizer, recompute=settings["recompute"])


def _trained(net: NetSpec, settings: Mapping[str, Any]) -> tuple[NetSpec, Optimizer]:
    optimizer = find_optimizer(settings["optimizer"], settings["optimizer_kernels"])
    return composed(with_loss(net, settings["loss"]), settings.get("framework")), optimizer


def step_of(net: NetSpec, graph: Graph, optimizer: Optimizer | None, recompute: Recompute) -> Step:
    """Return a step of a net in which a Sigmoid keeps its shape."""
    schedule = None
    precision = graph.precision
    kind = graph.dtype if precision.scaling else "mixed_fp16" if precision.is_mixed else "fp32"
    with contextlib.suppress(PaleoError):  # which has no other batch size than this
        schedule = _schedule(net, kind, optimizer is not None, recompute)
    return Step(graph, optimizer, schedule, recompute)


@functools.lru_cache(maxsize=_KEPT)
def _schedule(net: NetSpec, dtype: str, training: bool, recompute: Recompute) -> Schedule:
    """Return when the tensors of a step are alive at most batch sizes, in this type or its like."""
    return scheduled(typical(net, dtype, keep_shape), training=training, recompute=recompute)


def _deciding_sums(
    net: NetSpec,
    dtype: str,
    optimizer: Optimizer | None,
    recompute: Recompute,
    batch_sizes: tuple[int, ...],
) -> list[list[int]]:
    """Return the bytes at the points that decide, for each of these batch sizes."""
    which = (dtype, optimizer is not None, recompute, batch_sizes)
    lines, num_params = cached_for_net(_lines, net, *which)
    sums = [list(each) for each in zip(*lines, strict=True)]
    if optimizer is None:
        return sums
    size = find_precision(dtype).parameter_size
    own = cached_for_net(_matrices, net, dtype) if optimizer.by_matrix else ()
    return [optimizer.added(each, num_params, size, own) for each in sums]


def _matrices(net: NetSpec, dtype: str) -> tuple[tuple[Matrix, ...], ...]:
    return matrices(typical(net, dtype, keep_shape))


def _lines(
    net: NetSpec, dtype: str, training: bool, recompute: Recompute, batch_sizes: tuple[int, ...]
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the bytes at the points of a step that decide which batch is the largest.

    They are without an optimizer's, for each point those at these batch sizes, one or two: all
    capacities and optimizers ask for them. The last point is the last of the step; the others are
    those that no other is above, and grows no slower. The parameters of each node come second.
    """
    steps = [_plain_sums(net, dtype, training, recompute, batch) for batch in batch_sizes]
    *others, last = zip(*(sums for sums, _ in steps), strict=True)
    found: list[tuple[int, ...]] = []
    steepest = -math.inf
    for line in sorted(others, reverse=True):
        rise = line[-1] - line[0]
        if rise > steepest:
            found.append(line)
            steepest = rise
    _, schedule = steps[0]
    return [*found, last], schedule.num_params


@functools.lru_cache(maxsize=2)  # those of one batch are asked for, and then with another's
def _plain_sums(
    net: NetSpec, dtype: str, training: bool, recompute: Recompute, batch_size: int
) -> tuple[list[int], Schedule]:
    """Return the bytes at each point of a step, without an optimizer's."""
    graph = build(net, batch_size, dtype, keep_shape)
    step = step_of(net, graph, OPTIMIZERS["sgd"] if training else None, recompute)
    return step.sums(), step.schedule


def _checked_bytes(value: Any, name: str) -> float:
    """Return a number of bytes; raises SettingError if it is none, or less than 0."""
    if is_number(value) and 0 <= value < math.inf:  # false for NaN
        return value
    raise SettingError(f"{name}: expected bytes, 0 or more, got {shown(value)}")


def _largest(values: Sequence[Any]) -> tuple[Any, Any]:
    """Return the largest and the position of the first such, as arrays where values are."""
    if any(map(is_array, values)):
        stacked = np.stack(np.broadcast_arrays(*values))
        return stacked.max(axis=0), np.argmax(stacked, axis=0)
    most = max(values)
    return most, values.index(most)


def _at(names: list[str], position: Any) -> Any:
    """Return the name at a position, or those at an array of them."""
    if is_array(position):
        return np.array(names)[position]
    return names[position]


def _notes(spec: NetSpec, graph: Graph) -> tuple[str, ...]:
    notes = [*spec.notes]
    if spec.splits:
        notes.append("layers that are split over devices count with all their slices")
    unknown = {operation.name for operation in unpriced(graph)}
    if unknown:
        notes.append(f"not known, and assumed to keep what they read: {', '.join(sorted(unknown))}")
    return tuple(notes)
