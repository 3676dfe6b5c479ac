"""The net-spec: nets as their files describe them, blocks expanded.

`paleo.net.reader` makes one of text; nets/README.md is the format's reference.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paleo.core.errors import NetSpecError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array
from paleo.net.layers import Layer
from paleo.net.repeats import LayerSpec as LayerSpec
from paleo.net.repeats import LongLayers as LongLayers

#: The keys of a net file, and what each is.
ROOT_KEYS = {
    "$schema": "where an editor finds the JSON Schema; Paleo does not look at it",
    "name": "the net's name",
    "source": "where the net is published",
    "notes": "what a reader of its figures must know, a text each",
    "dims": "named dimensions: names to whole numbers, or to expressions of other dimensions",
    "layers": "layer names to layers",
}
#: The keys that layers of all types take, besides those of their own.
LAYER_KEYS = {
    "type": "the layer's type",
    "parents": "the layers that feed this one",
    "shares": "a layer whose parameters this one uses too; they are counted there",
    "dtype": "the element type that the forward pass of this layer is computed in, whatever that "
    "of the net is, where the device can",
}
#: The container types, and their keys.
BLOCKS = {
    "Block": ("type", "parents", "layers", "endpoint", "repeat"),
    "ModelParallel": ("type", "parents", "layers", "splits"),
}
MAX_NESTING = 50
MAX_SPLITS = 1024
#: The most layers that repeated blocks may make.
MAX_LAYERS = 100_000


def in_file(name: str, repeats: Mapping[str, int]) -> str:
    """Return the name of a layer with "*" in the place of each index of these repeated blocks."""
    for prefix in repeats:  # outer ones first
        start = prefix[:-2]
        if name.startswith(start):
            index, _, behind = name[len(start) :].partition("/")
            if index.isdecimal():
                name = prefix + behind
    return name


@dataclass(frozen=True, eq=False)
class Sweep:
    """Arrays of sizes of dimensions, which broadcast, and by name the layers that have them."""

    sizes: Mapping[str, Array]
    layers: Mapping[str, Layer]


class Description(ABC):
    """The file that a net was read from, where it can be read again with other dimensions."""

    #: The file's JSON, with the dimensions that were chosen since.
    body: Mapping[str, Any]

    @abstractmethod
    def read(self, dims: Mapping[str, Any]) -> NetSpec:
        """Return the net with other dimensions, those left out as before."""

    @abstractmethod
    def with_batch(self, batch_size: int) -> NetSpec | None:
        """Return the net with another batch size of its own, None where inputs do not say it."""


@dataclass(frozen=True)
class NetSpec:
    """A net as its file describes it: layers in the file's order, blocks expanded.

    It knows no batch size but the file's own; `paleo.build` gives it one.
    """

    name: str
    layers: Sequence[LayerSpec]
    #: The file it was read from, for messages.
    file: str | None = None
    #: Where the net is published.
    source: str = ""
    #: What a reader of its figures must know, such as what an importer took for granted.
    notes: tuple[str, ...] = ()
    #: The sizes of its named dimensions.
    dims: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    #: How many instances its repeated blocks have, by "block/*/": layers have an index for the "*".
    repeats: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    #: What was read, and the layers that it gave.
    described: tuple[Description, Sequence[LayerSpec]] | None = field(
        default=None, compare=False, repr=False
    )
    #: Arrays of sizes of dimensions: the layers above have the largest of each.
    sweep: Sweep | None = field(default=None, repr=False)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Found once: what is known of a net is looked up by it, whose layers are many.

        The different layers, and how many there are, say enough to tell nets apart.
        """
        layers = frozenset({id(spec.layer): spec.layer for spec in self.few.layers}.values())
        return hash((self.name, len(self.layers), layers, self.file))

    @property
    def few(self) -> NetSpec:
        """The net without the equal blocks that are made when they are asked for.

        It has each of the different layers.
        """
        return self._few or self

    @functools.cached_property
    def _few(self) -> NetSpec | None:
        layers = self.layers
        if not isinstance(layers, LongLayers):
            return None
        return replace(self, layers=layers.few, described=None)

    def with_few(self, few: NetSpec) -> NetSpec:
        """Return this net changed as its few layers are, of which these are `few`."""
        layers = self.layers
        if not isinstance(layers, LongLayers):
            return few
        return replace(few, layers=layers.with_few(few.layers))

    @property
    def description(self) -> Description | None:
        """What it was read from; None if it has been changed since, or was made otherwise."""
        if self.described is None or self.described[1] is not self.layers:
            return None
        return self.described[0]

    @property
    def splits(self) -> tuple[int, ...]:
        """The different numbers of slices that its layers are split into, none if unsplit."""
        slices = Counter(spec.origin for spec in self.few.layers if spec.shard is not None)
        return tuple(sorted(set(slices.values())))

    @functools.cached_property
    def dtypes(self) -> frozenset[str]:
        """The element types that layers of it are computed in, whatever that of the net is."""
        return frozenset(spec.dtype for spec in self.few.layers if spec.dtype)

    def in_file(self, name: str) -> str:
        """Return the name of a layer with "*" in the place of each index of a repeated block."""
        return in_file(name, self.repeats)

    def without_dtypes(self, dtypes: Collection[str]) -> NetSpec:
        """Return this net with layers of these element types computed in the net's own."""
        few = self.few
        layers = tuple(
            replace(spec, dtype="") if spec.dtype in dtypes else spec for spec in few.layers
        )
        return self.with_few(replace(few, layers=layers))

    def with_dims(self, **dims: Any) -> NetSpec:
        """Return this net with other sizes of named dimensions; its name says which.

        Sizes may be arrays of whole numbers, of dimensions that no parameter depends on: then
        `paleo.data_parallel`, `summarize` and `footprint` have a result for each, element by
        element with those of an array of batch sizes.

        Raises NetSpecError for a dimension that it does not have, for a size that is no whole
        number above 0, and with every layer that no longer fits.

        >>> paleo.load("gpt2").with_dims(seq=512).name
        'gpt2 seq=512'
        """
        if not dims:
            return self
        if self.description is not None:
            return self.description.read(dims)
        if not self.dims:
            raise NetSpecError(f"{self.file or self.name}: it has no dims to set")
        raise NetSpecError(f"{self.file or self.name}: set its dims before it is edited")

    def of_numbers(self) -> NetSpec:
        """Return this net; raises NetSpecError if sizes of it are arrays."""
        if self.sweep:
            names = ", ".join(self.sweep.sizes)
            raise NetSpecError(f"{self.name}: it has arrays of sizes ({names}): one is asked for")
        return self

    def with_batch(self, batch_size: int) -> NetSpec:
        """Return this net with another batch size of its own."""
        if self.description is not None:
            found = self.description.with_batch(batch_size)
            if found is not None:
                return found
        layers = tuple(
            replace(spec, layer=spec.layer.of_shape((batch_size, *spec.layer.infer_shape(())[1:])))
            if spec.layer.is_input
            else spec
            for spec in self.layers
        )
        return replace(self, layers=layers)
