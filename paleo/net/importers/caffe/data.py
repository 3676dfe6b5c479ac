"""What a Caffe file says of what it feeds: inputs at its root, and data layers.

Data layers read files, which are not opened. They say how many images there are, and where those
are cut or brought to one size, how large they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paleo.core.tensor import format_shape
from paleo.net.importers.caffe.layers import Layer
from paleo.net.importers.caffe.operators import NEEDS, OPERATORS

Shape = tuple[int, ...]

#: Red, green and blue.
_COLORS = 3
NO_CHANNELS = "it does not say how many channels its images have"


@dataclass
class Source:
    """A blob that is fed. `shape` is None as long as nothing says what it is."""

    name: str
    shape: Shape | None
    #: The layer that gives it; None for the file's own `input`.
    layer: str | None
    #: What it lacks, or what is wrong with what the file says.
    fault: str | None = None
    key: str | None = None
    #: The images that labels belong to, which say how many there are.
    images: str | None = None
    #: The images that it is as large as, for another image beside them.
    alike: str | None = None
    #: How many times an image is as large as its labels, of which it has one for each place.
    dense: int = 0
    batch_axis: int = 0
    #: The time steps that stand before the samples in the first axis.
    steps: int = 1
    #: How many samples there are, where that is known without the shape.
    samples: int | None = None
    #: Whether these are rows of a file, which may be steps.
    rows: bool = False
    #: The regions of each image, where it has a row for each region.
    regions: int | None = None
    #: What was taken for granted of it.
    note: str = ""

    @property
    def batch(self) -> int:
        """The samples in it."""
        assert self.shape is not None
        return self.shape[self.batch_axis] // self.steps // (self.regions or 1)


def of_file(net: Any) -> Iterator[Source]:
    """Yield the inputs at the root of a file."""
    shapes = [tuple(each.dim) for each in net.input_shape]
    dims = list(net.input_dim)
    for i, name in enumerate(net.input):
        shape: Shape | None = shapes[i] if i < len(shapes) else None
        key = "input_shape"
        if shape is None and dims:
            key = "input_dim"
            # Four numbers each; a single input may have fewer axes.
            shape = tuple(dims) if len(net.input) == 1 else tuple(dims[4 * i : 4 * i + 4])
        yield Source(name, shape or None, None, key=key)


def of_layer(layer: Layer, layers: Sequence[Layer], volumes: bool) -> Iterator[Source]:
    """Yield the tops of a data layer."""
    if layer.kind == _TRANSFORMING:
        yield from _detect_net(layer, layers)
        return
    shapes = _READERS.get("input" if layer.message.HasField("input_param") else layer.kind)
    if shapes is not None:
        for name, shape in zip(layer.tops, shapes(layer.message, len(layer.tops)), strict=True):
            yield Source(name, shape, layer.name, key="shape" if shape is not None else None)
        return
    first = _images(layer, layers, volumes)
    yield first
    for name in layer.tops[1:]:
        yield Source(
            name,
            None,
            layer.name,
            images=first.name if layer.kind != "hdf5data" or "label" in name.lower() else None,
            dense=_dense(layer) if name == layer.tops[1] else 0,
            samples=first.samples,
            rows=first.rows,
        )


def _dense(layer: Layer) -> int:
    """Return how many times an image is as large as its map of labels; 0 if it has none."""
    if layer.kind not in _DENSE:
        return 0
    factor: int = layer.message.dense_image_data_param.label_divide_factor
    return max(1, factor)


def _images(layer: Layer, layers: Sequence[Layer], volumes: bool) -> Source:
    """Return the first top of a layer that reads files."""
    message = layer.message
    name = next(iter(layer.tops), layer.name)
    param = next(
        (value for field, value in message.ListFields() if field.name.endswith("data_param")), None
    )
    samples = getattr(param, "batch_size", 0)
    source = Source(name, None, layer.name, samples=samples if samples > 0 else None)
    source.rows = layer.kind == "hdf5data"
    transform = message.transform_param
    sizes = _sizes(transform, param)
    if layer.type == "Python":
        _of_text(source, message.python_param.param_str)
        return source
    if layer.kind.startswith(("hdf5data", "python")) or param is None or not sizes:
        return source
    if samples < 1:
        source.fault, source.key = "it does not say how many images there are", "batch_size"
        return source
    gray = transform.force_gray or not getattr(param, "is_color", True)
    # One mean is for all channels, however many they are.
    means = len(transform.mean_value)
    channels = 1 if gray else (means if means > 1 else channels_of(name, layers))
    if channels is None:
        source.fault, source.key = NO_CHANNELS, "transform_param"
        return source
    if "video" in layer.kind:
        # The frames of others than C3D's are channels, or as many as there are.
        own = volumes and message.HasField("video_data_param")
        length = message.video_data_param if own else message.image_data_param
        if not length.HasField("new_length"):
            return source
        sizes = (length.new_length, *sizes)
    source.shape = (samples, channels, *sizes)
    return source


_BATCH = re.compile(r"batch(?:_?size)?\W+(\d+)", re.IGNORECASE)
_SHAPE = re.compile(
    r"(?:im|img|image|input|crop|data)_?(?:shape|size)\W+(\d+)(?:\D{1,3}?(\d+))?", re.IGNORECASE
)


def _of_text(source: Source, text: str) -> None:
    """Read what a Python layer's text says of its images: how many, how high and how wide."""
    batch, size = _BATCH.search(text), _SHAPE.search(text)
    sides = [size[1], size[2] or size[1]] if size else []
    if not size:
        found = (re.search(rf"{side}\W+(\d+)", text) for side in ("height", "width"))
        sides = [side[1] for side in found if side is not None]
    source.samples = int(batch[1]) if batch else None
    if batch and len(sides) == 2:
        source.shape = (int(batch[1]), _COLORS, *map(int, sides))
        source.note = (
            f"{source.name} is taken as {format_shape(source.shape)}, as param_str has it: --input "
            f"{source.name}=NxCxHxW says otherwise"
        )


def _detect_net(layer: Layer, layers: Sequence[Layer]) -> Iterator[Source]:
    """Yield the images and maps of labels that DIGITS makes of what its data layers give."""
    param = layer.message.detectnet_groundtruth_param
    batches = [
        other.message.data_param.batch_size
        for other in layers
        if not set(other.tops).isdisjoint(layer.bottoms)
    ]
    height, width, stride = param.image_size_y, param.image_size_x, max(1, param.stride)
    samples = next(filter(None, batches), 1)
    # Whether something is there, its box, its size, how much it counts; then one for each class.
    channels = 8 + max((each.dst for each in param.object_class), default=0) + 1
    shapes = ((samples, 3, height, width), (samples, channels, height // stride, width // stride))
    for name, shape in zip(layer.tops, shapes, strict=False):
        yield Source(name, shape, layer.name, key="detectnet_groundtruth_param")


def has_volumes(layers: Sequence[Layer]) -> bool:
    """Tell whether a layer has windows along three axes, so that frames are an axis of images."""
    return any(
        layer.kind.endswith("3d") or len(layer.message.convolution_param.kernel_shape.dim) == 3
        for layer in layers
    )


def convolved(layers: Sequence[Layer]) -> set[str]:
    """Return the blobs that convolutions read, and those that become such on the way."""
    found: set[str] = set()
    for layer in reversed(layers):
        passes = layer.kind in _PASSING and not found.isdisjoint(layer.tops)
        if passes or "convolution" in layer.kind:
            found.update(layer.bottoms)
    return found


def feeds(layer: Layer) -> bool:
    """Tell whether what a layer gives is fed: it reads files, or what it reads is not computed."""
    if layer.kind == _TRANSFORMING:
        return True
    return not layer.bottoms and bool(layer.kind) and layer.kind not in OPERATORS


def _sizes(transform: Any, param: Any) -> Shape | None:
    """Return the height and width of images, if they are cut or brought to one size."""
    crop = transform.crop_size or getattr(param, "crop_size", 0)
    # Where images are brought to one of some sizes by chance, the first stands for all.
    resize = next(iter(transform.resize_param), None)
    choices = (
        (transform.crop_h, transform.crop_w),
        (crop, crop),
        (getattr(param, "new_height", 0), getattr(param, "new_width", 0)),
        (resize.height, resize.width) if resize is not None else (0, 0),
    )
    return next((pair for pair in choices if all(pair)), None)


def _listed(shapes: Sequence[Any], count: int) -> list[Shape | None]:
    """Return a shape for each of `count` tops: one for all, or one each."""
    found: list[Shape | None] = [tuple(each.dim) for each in shapes]
    if len(found) == 1:
        found *= count
    return (found + [None] * count)[:count]


def _dummy(message: Any, count: int) -> list[Shape | None]:
    param = message.dummy_data_param
    if param.shape:
        return _listed(param.shape, count)
    columns = [list(each) for each in (param.num, param.channels, param.height, param.width)]
    columns = [each * count if len(each) == 1 else each for each in columns]
    if any(len(each) < count for each in columns):
        return [None] * count
    return [tuple(each[i] for each in columns) for i in range(count)]


def _memory(message: Any, count: int) -> list[Shape | None]:
    param = message.memory_data_param
    shape = tuple(param.dim) or (param.batch_size, param.channels, param.height, param.width)
    labels: Shape = (shape[0], 1)
    found: list[Shape | None] = [shape, *[labels] * (count - 1)]
    return found[:count]


#: DIGITS's layer behind the data layers of a detector: the size of its images is its own.
_TRANSFORMING = "detectnettransformation"
NEEDS[_TRANSFORMING] = 0
#: Layers that images pass through as images.
_PASSING = ("concat", "slice", "split", "eltwise", "power", "scale", "batchnorm", "bn", "lrn")
#: Data layers that read a map of labels beside each image.
_DENSE = ("denseimagedata", "imagesegdata", "imagelabelmapdata")
_READERS: Mapping[str, Any] = {
    "input": lambda message, count: _listed(message.input_param.shape, count),
    "dummydata": _dummy,
    "memorydata": _memory,
}


def channels_of(name: str, layers: Sequence[Layer]) -> int | None:
    """Return how many channels images in color have, None if it is not known.

    They are 3, or those of several images side by side, which a Slice takes apart.
    """
    for layer in layers:
        param = layer.message.slice_param
        points = list(param.slice_point)
        axis = param.axis if param.HasField("axis") else param.slice_dim
        if layer.kind != "slice" or layer.bottoms != (name,) or axis != 1 or not points:
            continue
        if points[-1] < _COLORS:
            return _COLORS
        filters = {
            tuple(getattr(spec, "name", spec) for spec in reader.message.param)
            for top in layer.tops
            for reader in layers
            if top in reader.bottoms
        }
        width = points[0]
        regular = points == [width * (i + 1) for i in range(len(layer.tops) - 1)]
        # The same filters read each of them, so that all are of one size.
        shared = len(filters) == 1 and any(filters) and all(*filters)
        return width * len(layer.tops) if regular and shared else None
    return _COLORS
