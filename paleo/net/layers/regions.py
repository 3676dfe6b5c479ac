"""Regions of images, which detectors choose and then look at: Proposals, RegionPooling.

The regions of a sample are a dimension behind the batch, N x R, however many the data would give:
R is the number that the detector keeps at most.
"""

from __future__ import annotations

from typing import ClassVar

from paleo.core.operations import Kind, Pass, Stream
from paleo.core.quantity import Quantity, product, total
from paleo.core.tensor import Shape, Shapes, format_shape, num_elements
from paleo.net.layers.base import (
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    batch_of,
    image,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Flag, Name, Sizes, Whole, key

#: What comparing two boxes takes: four extremes, two differences, two products, a sum, a quotient.
_FLOPS_OF_A_PAIR = 12
#: Bytes that say of 64 boxes whether they overlap another.
_MASK, _BOXES_OF_A_MASK = 8, 64
#: Bytes of the place where a maximum was found.
_INDEX = 8
#: What a bilinear sample takes: four products, three sums.
_FLOPS_OF_A_SAMPLE = 7


@layer_type("Proposals")
class Proposals(Layer):
    """The best candidates of each sample by their scores: N x R x num_values.

    Of those that overlap, the best is kept (non-maximum suppression).
    """

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)
    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(ends=True)

    num_regions: int = key(Whole(), "R, how many are kept of each sample")
    num_values: int = key(Whole(), "the numbers of each, such as those of a box", default=4)
    num_compared: int | None = key(
        Whole(optional=True),
        "how many of the best are compared with each other; null: none, and the R best are kept",
        default=None,
    )

    def infer_shape(self, inputs: Shapes) -> Shape:
        return (batch_of(inputs), self.num_regions, self.num_values)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is not Pass.FORWARD:
            return ()
        n, compared = batch_of(inputs), self.num_compared or 0
        (kept,) = tensor_bytes((self.infer_shape(inputs),), element_size)
        boxes = element_size * n * compared * self.num_values
        chosen = boxes if compared else kept
        reads = tensor_bytes(inputs, element_size)
        found: Operations = (Stream(Kind.COPY, reads, (chosen,), label="sort"),)
        if compared:
            # Each pair is compared once, and a bit for each says whether they overlap.
            pairs = n * compared * (compared - 1) // 2
            mask = n * compared * -(-compared // _BOXES_OF_A_MASK) * _MASK
            found += (
                Stream(
                    Kind.ELEMENTWISE,
                    (boxes,),
                    (mask,),
                    flops=_FLOPS_OF_A_PAIR * pairs,
                    label="overlaps",
                ),
                Stream(Kind.COPY, (mask, boxes), (kept,), label="suppression"),
            )
        return found


@layer_type("RegionPooling")
class RegionPooling(Layer):
    """Each region of an image brought to one size: N x R x height x width x C.

    The last parent has the regions, N x R x numbers; those before are images N x H x W x C, of
    which each region reads one, such as the levels of a pyramid.
    """

    num_parents: ClassVar[tuple[int, int | None]] = (2, None)

    size: tuple[int, ...] = key(Sizes(), "[height, width] of each region's part")
    mode: str = key(
        Name(("maximum", "average", "align")),
        "the largest or the mean of the elements in each bin, or the mean of samples between them",
        default="align",
    )
    samples: int = key(
        Whole(), "samples of a bin along each side, where the mode is align", default=2
    )
    position_sensitive: bool = key(
        Flag(),
        "whether each bin reads channels of its own, so that there are height x width times fewer",
        default=False,
    )

    def _channels(self, inputs: Shapes) -> int:
        *images, regions = inputs
        if len(regions) != 3:
            raise ShapeError(f"its regions must be N x R x 4, got {format_shape(regions)}")
        if len(self.size) != 2:
            raise ShapeError("expected [height, width]", "size")
        found = {image(shape, 2)[2] for shape in images}
        if len(found) > 1:
            raise ShapeError(f"its images differ in channels: {sorted(found)}")
        (channels,) = found
        bins = int(product(self.size)) if self.position_sensitive else 1
        if channels % bins:
            raise ShapeError(f"{channels} channels are not several for each of {bins} bins", "size")
        return int(channels) // bins

    def infer_shape(self, inputs: Shapes) -> Shape:
        channels = self._channels(inputs)
        return (batch_of(inputs), inputs[-1][1], *self.size, channels)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        output = self.infer_shape(inputs)
        *images, regions = tensor_bytes(inputs, element_size)
        (made,) = tensor_bytes((output,), element_size)
        flops: Quantity = 0
        if self.mode == "align":
            flops = num_elements(output) * self.samples**2 * _FLOPS_OF_A_SAMPLE
        reads, writes = (*images, regions), (made,)
        if direction is not Pass.FORWARD:
            reads, writes = (made, regions), (total(images),)
        return (
            Stream(
                Kind.COPY, reads, writes, flops=flops, direction=direction, label="region_pooling"
            ),
        )

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        places = num_elements(self.infer_shape(inputs)) if self.mode == "maximum" else 0
        return MemoryNeeds(inputs=(len(inputs) - 1,), own=_INDEX * places)
