"""Caffe's prototxt files: what a net computes, in protobuf's text format.

A file holds the nets of both phases, and layers in an order in which each finds what it
reads. Data layers are the inputs; where they do not say how large images are, an option does.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.errors import Mistake, Mistakes, NetSpecError, printable
from paleo.core.tensor import format_shape
from paleo.net.importers.base import ImportOptions, OperatorError, file_content, missing_library
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layout import Value
from paleo.net.importers.caffe import detection, elementwise, forks
from paleo.net.importers.caffe.data import Source, feeds
from paleo.net.importers.caffe.inputs import ARRANGING, find_sources, region_blobs, wanted
from paleo.net.importers.caffe.layers import Layer, layers_of_phase
from paleo.net.importers.caffe.operators import JUDGES, OPERATORS, Call, labels, needed
from paleo.net.importers.caffe.proto import (
    MAX_BYTES,
    FormatError,
    decode,
    parse,
    upgraded,
    weighted_types,
)
from paleo.net.spec import NetSpec

#: The files register their operators.
del detection, elementwise, forks

#: A file with more mistakes is not worth reading on.
_MOST_MISTAKES = 100
#: Near names are looked for among so many blobs.
_MOST_NEAR = 2000
#: How many types and layers a message names.
_LISTED_TYPES, _LISTED_LAYERS = 12, 3


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of a prototxt file; raises NetSpecError with all that is wrong with it."""
    return read_bytes(file_content(target, MAX_BYTES + 1), target, options)


def read_bytes(content: bytes, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that the bytes of a prototxt describe; `target` names it in messages."""
    net, weighted = _load(content, target)
    mistakes = Mistakes(target)
    result = _Reader(target, net, weighted, options, mistakes).read()
    if len(mistakes.found) > _MOST_MISTAKES:
        del mistakes.found[_MOST_MISTAKES:]
        mistakes.add("there are more mistakes, which are not listed")
    mistakes.raise_as(NetSpecError)
    assert result is not None
    return result


def _load(content: bytes, target: str) -> tuple[Any, set[str]]:
    """Return the NetParameter in a file, in today's format if it was in the oldest.

    Beside it are the types that may have parameters, as far as the text tells.
    """
    try:
        if len(content) > MAX_BYTES:
            raise FormatError(f"more than {MAX_BYTES >> 20} MiB are no description of a net")
        text = decode(content)
        net = parse(text)
    except ImportError:
        raise missing_library(target, "protobuf", "caffe") from None
    except FormatError as error:
        raise NetSpecError(Mistake(str(error), target)) from None
    if net.layer and net.layers:
        raise NetSpecError(
            Mistake("it has both `layer` and `layers`, of which Caffe reads only one", target)
        )
    if any(layer.HasField("layer") for layer in net.layers):
        net = upgraded(net)
    if not net.layer and not net.layers:
        raise NetSpecError(Mistake(_no_layers(net), target))
    return net, weighted_types(text)


def _no_layers(net: Any) -> str:
    """Return what is to be said of a file without layers."""
    named = net.net or net.train_net or next(iter(net.test_net), "")
    if named:
        return f'it is a solver, not a net: name the file in its `net`, "{named}"'
    if net.HasField("base_lr") or net.HasField("lr_policy"):
        return "it is a solver, not a net: name the net's file"
    return "it has no layers: it is no net, or cut off"


class _Reader:
    """Goes through the layers in the file's order, which is the order they are computed in."""

    def __init__(
        self,
        target: str,
        net: Any,
        weighted: Container[str],
        options: ImportOptions,
        mistakes: Mistakes,
    ) -> None:
        self.options = options
        self.mistakes = mistakes
        self.layers, left_out = layers_of_phase(net, options.phase)
        self.sources = find_sources(net, self.layers, options, mistakes)
        self.blobs: dict[str, Value | Source | None] = dict(self.sources)
        self.reported: set[str] = set()
        #: The layer that gives a blob, for what is read before it is there.
        self.givers = {top: layer.name for layer in self.layers for top in layer.tops}
        self.left_out = {top: layer for layer in left_out for top in layer.tops}
        read = wanted(self.layers)
        shaped = [each for each in self.sources.values() if each.shape]
        first = min(
            shaped, key=lambda each: (each.name not in read, bool(each.regions)), default=None
        )
        self.batch = first.batch if first is not None else 1
        name = printable(net.name.strip()) or Path(target).stem
        self.builder = Builder(name, target, self.batch)
        #: How many elements each parameter has.
        self.parameter_sizes: dict[str, int] = {}
        self.kinds = {layer.kind for layer in self.layers}
        #: The names of losses, and of programs of the user's such as evaluations, that are not
        #: understood, and that only such and losses read.
        self.ends = self._find_ends(weighted)

    def _find_ends(self, weighted: Container[str]) -> set[str]:
        found: set[str] = set()
        read: set[str] = set()
        for layer in reversed(self.layers):
            is_end = _is_loss(layer) or layer.type == "Python"
            known = layer.kind in OPERATORS or feeds(layer) or not is_end
            if layer.kind in JUDGES:
                continue
            if known or not read.isdisjoint(layer.tops) or _named(layer) in weighted:
                read.update(layer.bottoms)
            else:
                found.add(layer.name)
        return found

    def read(self) -> NetSpec | None:
        """Return the net, or None if it has mistakes."""
        self._check_types()
        if not self.sources:
            self._ask_for_input()
            return None
        for layer in self.layers:
            if len(self.mistakes.found) > _MOST_MISTAKES:
                return None
            if not self._is_source(layer):
                self._add(layer)
        if self.mistakes:
            return None
        if all(self.blobs[name] is source for name, source in self.sources.items()):
            self.mistakes.add(f"no layer reads its inputs in the {self.options.phase} phase")
            return None
        return self.builder.finish()

    def _is_source(self, layer: Layer) -> bool:
        own = [self.sources[name] for name in layer.tops if name in self.sources]
        return feeds(layer) and any(source.layer == layer.name for source in own)

    def _ask_for_input(self) -> None:
        """Say that nothing is an input, though something is read that no layer gives."""
        missing = [b for layer in self.layers for b in layer.bottoms if b not in self.givers]
        name = next(iter(missing), "NAME")
        other = self.left_out.get(name)
        if other is None:
            said = f"say what is one with --input {name}=NxCxHxW"
        else:
            said = (
                f'layer "{other.name}" gives "{name}" only with {self._only_with(other)}, '
                f"or give it with --input {name}=NxCxHxW"
            )
        self.mistakes.add(f"nothing in it is an input in the {self.options.phase} phase: {said}")

    def _check_types(self) -> None:
        """Note the types that are not understood, all in one line."""
        unknown: dict[str, list[str]] = {}
        for layer in self.layers:
            if not layer.kind:
                self.mistakes.add("it must be given", layer.name, "type")
            elif not (layer.kind in OPERATORS or feeds(layer) or layer.name in self.ends):
                unknown.setdefault(_type(layer), []).append(layer.name)
        if not unknown or self.options.unknown == "zero":
            self._refuse_regions(unknown)
            return
        listed = [
            f"{kind} ({_list(names, _LISTED_LAYERS)})"
            for kind, names in list(unknown.items())[: _LISTED_TYPES + 1]
        ]
        self.mistakes.add(
            f"types of layers that are not understood: {_list(listed, _LISTED_TYPES)}; "
            "--unknown=zero takes them as costing nothing"
        )

    def _refuse_regions(self, unknown: Mapping[str, list[str]]) -> None:
        """Note what reads regions and is not understood: it is not known how many it gives on."""
        regions = region_blobs(self.layers)
        for layer in self.layers:
            reads = next((name for name in layer.bottoms if name in regions), None)
            if reads and layer.name in unknown.get(_type(layer), ()):
                self.mistakes.add(
                    f'{_type(layer)} reads the regions "{reads}" and is not understood: '
                    "how many it gives on is not known",
                    layer.name,
                )

    def _take(self, name: str) -> Value | None:
        """Return a blob; inputs become layers when they are first read."""
        value = self.blobs[name]
        if isinstance(value, Source):
            if value.shape is None:
                return None
            if value.note:
                self.builder.note(value.note)
            value = self.blobs[name] = self._feed(value, value.shape)
        return value

    def _feed(self, source: Source, shape: tuple[int, ...]) -> Value:
        if source.batch != self.batch:
            return self.builder.input(source.name, shape, None)
        if source.regions:
            apart = (source.batch, source.regions, *shape[1:])
            return self.builder.reshape(source.name, self.builder.input(source.name, apart), shape)
        if source.steps == 1:
            return self.builder.input(source.name, shape, source.batch_axis)
        # Samples of many steps each: their convolutions take the steps of all for a batch.
        apart = (source.steps, source.batch, *shape[1:])
        fed = self.builder.input(source.name, apart, 1)
        return fed.with_axes([fed.axes[0] + fed.axes[1], *fed.axes[2:]], shape)

    def _add(self, layer: Layer) -> None:
        """Build a layer. What depends on one that was not built is passed over in silence."""
        first = self.blobs.get(next(iter(layer.bottoms), ""))
        if layer.kind in ARRANGING and isinstance(first, Source) and first.shape is None:
            # Labels that no loss needs a shape of.
            self.blobs.update(dict.fromkeys(layer.tops, first))
            return
        least = len(needed(layer))
        given = [
            self._is_given(layer, name) or (i >= least and isinstance(self.blobs.get(name), Source))
            for i, name in enumerate(layer.bottoms)
        ]
        values: Sequence[Value | None] = [None] * len(layer.tops)
        if all(given) and layer.kind:
            try:
                values = self._build(layer)
            except OperatorError as fault:
                self.mistakes.add(str(fault), layer.name, fault.key)
        for name, value in zip(layer.tops, values, strict=False):
            if value is not None and max(value.shape, default=1) > MAX_SIZE:
                text = format_shape(value.shape)
                self.mistakes.add(f"its output of {text} is too large", layer.name)
                value = None
            if name in self.blobs and name not in layer.bottoms:
                self.mistakes.add(f'its top "{name}" is another layer\'s too', layer.name, "top")
            self.blobs[name] = value

    def _is_given(self, layer: Layer, name: str) -> bool:
        """Tell whether a bottom is there to be read; notes it if no layer gives it."""
        if name not in self.blobs:
            if name not in self.reported:
                self.mistakes.add(self._missing(name), layer.name, "bottom")
                self.reported.add(name)
            return False
        value = self.blobs[name]
        return value is not None and not (isinstance(value, Source) and value.shape is None)

    def _missing(self, name: str) -> str:
        """Return what is to be said of a bottom that is not there to be read."""
        if name in self.givers:
            return f'its bottom "{name}" is given only later, by layer "{self.givers[name]}"'
        other = self.left_out.get(name)
        if other is None:
            hint = self.mistakes.near(name, self.blobs) if len(self.blobs) < _MOST_NEAR else ""
            hint = hint or f"; if it is an input, give it with --input {name}=NxCxHxW"
            return f'no layer gives its bottom "{name}"{hint}'
        return f'layer "{other.name}" gives its bottom "{name}" only with {self._only_with(other)}'

    def _only_with(self, layer: Layer) -> str:
        """Return with what a layer would be there that is left out."""
        stages = [stage for rule in layer.message.include for stage in rule.stage]
        if stages:
            listed = " ".join(f'stage: "{printable(stage)}"' for stage in stages)
            return f"state {{ {listed} }} in the file"
        return "--phase train" if self.options.phase == "test" else "--phase test"

    def _build(self, layer: Layer) -> Sequence[Value | None]:
        call = Call(self.builder, layer, self._take, self.parameter_sizes, self.options, self.kinds)
        operator = OPERATORS.get(layer.kind)
        if operator is None:
            build = self._build_end if layer.name in self.ends else self._build_unknown
            return build(layer, call)
        result = operator(call)
        values = [result] if isinstance(result, Value) else list(result)
        if len(values) < len(layer.tops):
            raise OperatorError(f"it gives {len(values)} tops, and {len(layer.tops)} are named")
        return values

    def _build_end(self, layer: Layer, call: Call) -> Sequence[Value | None]:
        """Build what nobody reads: a loss, or what is listed as not counted.

        What losses read is taken to be what it is given, as by a layer that picks samples.
        """
        count, scores = max(1, len(layer.tops)), call.bottom()
        if any(top in other.bottoms for top in layer.tops for other in self.layers):
            names = [layer.name, *(f"{layer.name}_{i + 1}" for i in range(1, count))]
            bottoms = [call.optional(i) or scores for i in range(count)]
            return [
                self.builder.unknown(name, _type(layer), [x], x.shape)
                for name, x in zip(names, bottoms, strict=True)
            ]
        if _is_loss(layer) and scores.batched:
            call.builder.note(f"{_type(layer)} is taken as a loss that reads its inputs once")
            return [call.builder.loss(layer.name, "other", scores, labels(call, 1, scores))] * count
        values = [value for value in call.there() if value.batched]
        shape = (scores.shape[0], 1)
        return [call.builder.unknown(layer.name, _type(layer), values, shape)] * count

    def _build_unknown(self, layer: Layer, call: Call) -> Sequence[Value | None]:
        if self.options.unknown != "zero" or not layer.bottoms:
            return [None] * len(layer.tops)
        inputs = call.there()
        shape = inputs[0].shape
        names = [layer.name, *(f"{layer.name}_{i + 1}" for i in range(1, len(layer.tops)))]
        return [
            self.builder.unknown(name, _type(layer), inputs, shape)
            for name in names[: max(1, len(layer.tops))]
        ]


def _named(layer: Layer) -> str:
    """Return the word by which a file's text names what a layer computes."""
    own = layer.message.python_param.layer
    return own if layer.type == "Python" and own else layer.type


def _is_loss(layer: Layer) -> bool:
    """Tell whether a layer gives a loss: by its weight, or by how Caffe has losses be named."""
    return any(layer.message.loss_weight) or layer.kind.endswith("loss")


def _type(layer: Layer) -> str:
    """Return a type as it is named in messages."""
    own = layer.message.python_param
    if layer.type == "Python" and own.layer:
        return printable(f"Python {own.module}.{own.layer}")
    return printable(layer.type)


def _list(names: Sequence[str], most: int) -> str:
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])
