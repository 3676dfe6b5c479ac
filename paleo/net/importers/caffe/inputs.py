"""The inputs of a Caffe net: what its file says of them, and what an option says instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.errors import Mistakes
from paleo.core.tensor import format_shape
from paleo.net.importers.base import PROPOSALS, ImportOptions
from paleo.net.importers.caffe.detection import REGIONS
from paleo.net.importers.caffe.layers import Layer
from paleo.net.importers.caffe.operators import LOSSES, NEEDS, OPERATORS, needed

Shape = tuple[int, ...]

#: Red, green and blue.
_COLORS = 3
_NO_CHANNELS = "it does not say how many channels its images have"

#: Paleo's tensors have as many dimensions at most.
_MAX_RANK = 8


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


def find_sources(
    net: Any, layers: list[Layer], options: ImportOptions, mistakes: Mistakes
) -> dict[str, Source]:
    """Return the inputs by name, in the file's order, with what the options say of them."""
    sources: dict[str, Source] = {}
    for source in _of_file(net):
        sources[source.name] = source
    volumes = _has_volumes(layers)
    images = _convolved(layers)
    sliced = {name for layer in layers if layer.kind == "slice" for name in layer.bottoms}
    for layer in layers:
        if feeds(layer):
            for source in _of_layer(layer, layers, volumes):
                if source.images and source.name in images:
                    source.alike, source.images = source.images, None
                elif source.images and source.name in sliced and not source.dense:
                    source.images = None  # a label of several numbers
                if source.name in sources:
                    mistakes.add(
                        f'its top "{source.name}" is another layer\'s too', layer.name, "top"
                    )
                sources[source.name] = source
    read = wanted(layers)
    _suppose_images(sources, layers)
    _override(sources, layers, options, mistakes)
    _find_regions(sources, layers, options, mistakes)
    _find_steps(sources, layers)
    for source in sources.values():
        first = sources.get(source.images or source.alike or "")
        if source.shape is None and source.fault is None and first is not None:
            samples = first.shape[0] if first.shape else first.samples
            if source.alike:
                source.shape = first.shape
                source.note = f"{source.name} is taken to be as large as {first.name}"
            elif samples is not None:
                sides = first.shape[2:] if first.shape and source.dense else ()
                source.shape = (samples, 1, *(size // source.dense for size in sides))
        if source.shape is not None:
            _check(source, mistakes)
        elif source.name in read and (source.fault or source.images not in read):
            # Labels follow from their images; only if nobody reads those are they asked for.
            _ask(source, mistakes)
    _find_time(sources, layers)
    return sources


#: Layers that cut, arrange or join what they read.
ARRANGING = ("slice", "split", "reshape", "flatten", "concat", "power")


def wanted(layers: Sequence[Layer]) -> set[str]:
    """Return the blobs that must have a shape: losses do without labels, however those are cut."""
    found: set[str] = set()
    read = {bottom for layer in layers for bottom in layer.bottoms}
    for layer in reversed(layers):
        tops = found.intersection(layer.tops) or not read.intersection(layer.tops)
        if layer.kind not in ARRANGING or tops:
            found.update(needed(layer))
    return found


def _check(source: Source, mistakes: Mistakes) -> None:
    """Note a shape that is none, and forget it."""
    assert source.shape is not None
    where = f'the shape of "{source.name}"'
    wrong = next((size for size in source.shape if not 1 <= size <= MAX_SIZE), None)
    if wrong is not None:
        text = "x".join(map(str, source.shape))
        mistakes.add(
            f"{where}, {text}, has a size of {wrong}: expected 1 up to {MAX_SIZE}, here or with "
            "--input",
            source.layer,
            source.key,
        )
    elif not 1 <= len(source.shape) <= _MAX_RANK:
        mistakes.add(f"{where} has {len(source.shape)} axes: expected 1 to {_MAX_RANK}")
    else:
        return
    source.shape = None


def _ask(source: Source, mistakes: Mistakes) -> None:
    """Say that an option is needed."""
    samples = source.samples or "N"
    what = source.fault or f'it does not say how large "{source.name}" is'
    mistakes.add(
        f"{what}: give it with --input {source.name}={samples}xCxHxW", source.layer, source.key
    )


def _override(
    sources: dict[str, Source], layers: list[Layer], options: ImportOptions, mistakes: Mistakes
) -> None:
    """Put in what the options say; blobs that nothing gives become inputs by it."""
    given = {top for layer in layers for top in layer.tops}
    missing = dict.fromkeys(b for layer in layers for b in layer.bottoms if b not in given)
    named = {name for name, _ in options.input if name is not None}
    unnamed = iter(
        [name for name in [*sources, *(missing if not sources else [])] if name not in named]
    )
    for name, shape in options.input:
        wanted = next(unnamed, None) if name is None else name
        if wanted is None:
            mistakes.add(f"--input {format_shape(shape)}: it has no input left for that")
        elif wanted in sources or wanted in missing:
            source = sources.setdefault(wanted, Source(wanted, None, None))
            source.shape, source.fault, source.images, source.note = shape, None, None, ""
        else:
            hint = mistakes.near(wanted, sources)
            mistakes.add(f'--input {wanted}={format_shape(shape)}: "{wanted}" is no input{hint}')


# Detectors

#: The largest image of py-faster-rcnn's configuration (SCALES, MAX_SIZE), and the images and
#: regions of a batch: IMS_PER_BATCH and BATCH_SIZE.
_DETECTOR_IMAGE = (600, 1000)
_IMAGES_OF_REGIONS, SAMPLED = 2, 128
#: Its data layer, that of MNC, which has the same sizes, and that of a port to C++.
_FEEDING_REGIONS = ("python.roidatalayer", "python.mncdatalayer", "frcnnroidata")


def region_blobs(layers: Sequence[Layer]) -> set[str]:
    """Return the blobs that layers read as regions."""
    return {
        layer.bottoms[REGIONS[layer.kind]]
        for layer in layers
        if REGIONS.get(layer.kind, len(layer.bottoms)) < len(layer.bottoms)
    }


def _suppose_images(sources: Mapping[str, Source], layers: Sequence[Layer]) -> None:
    """Take images of which py-faster-rcnn's data layer does not say how large they are."""
    regions = region_blobs(layers)
    for layer in layers:
        if layer.kind not in _FEEDING_REGIONS or not layer.tops:
            continue
        source = sources[layer.tops[0]]
        own = regions.intersection(layer.tops)
        channels = _channels(source.name, layers)
        if channels is None:
            source.fault = _NO_CHANNELS
            continue
        source.shape = (_IMAGES_OF_REGIONS if own else 1, channels, *_DETECTOR_IMAGE)
        source.note = (
            f"{source.name} is taken as {format_shape(source.shape)}, the largest of "
            f"py-faster-rcnn's configuration: --input {source.name}=NxCxHxW says otherwise"
        )
        for name in own:
            sources[name].regions = SAMPLED // _IMAGES_OF_REGIONS


def _channels(name: str, layers: Sequence[Layer]) -> int | None:
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


def _find_regions(
    sources: Mapping[str, Source],
    layers: Sequence[Layer],
    options: ImportOptions,
    mistakes: Mistakes,
) -> None:
    """Find how many regions of each image are fed.

    As many rows as there are images, or fewer, stand for a number that is set when the net runs.
    """
    names = region_blobs(layers)
    images = [s for name, s in sources.items() if name not in names and s.shape]
    read = {bottom for layer in layers for bottom in needed(layer)}
    first = next((source for source in images if source.name in read), None)
    if first is None:
        return
    for name in names.intersection(sources):
        source, batch = sources[name], first.batch
        rows, width = (1, 5) if source.shape is None else (source.shape[0], prod(source.shape[1:]))
        if any(given == name for given, _ in options.input) or rows > batch:
            if rows % batch:
                mistakes.add(f'{rows} rows of "{name}" are not as many for each of {batch} images')
                continue
            source.regions = rows // batch
        else:
            if source.regions is None or options.proposals is not None:
                source.regions = options.proposals or PROPOSALS
            source.note = (
                f"{name} is taken as {source.regions} regions of an image: --input "
                f"{name}={batch * source.regions}x{width} says otherwise"
            )
        source.shape = (batch * source.regions, width)
        source.fault = source.images = None


# What a file says


def _of_file(net: Any) -> Iterator[Source]:
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


def _of_layer(layer: Layer, layers: Sequence[Layer], volumes: bool) -> Iterator[Source]:
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
    channels = 1 if gray else (means if means > 1 else _channels(name, layers))
    if channels is None:
        source.fault, source.key = _NO_CHANNELS, "transform_param"
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


def _has_volumes(layers: Sequence[Layer]) -> bool:
    """Tell whether a layer has windows along three axes, so that frames are an axis of images."""
    return any(
        layer.kind.endswith("3d") or len(layer.message.convolution_param.kernel_shape.dim) == 3
        for layer in layers
    )


def _convolved(layers: Sequence[Layer]) -> set[str]:
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


# Where the batch is

#: Layers through which axes pass as they are, if they work on later ones.
_KEEPING = """
    embed dropout relu prelu sigmoid tanh power eltwise concat slice split softmax accuracy
    scale bias innerproduct absval exp log elu bnll"""
_RECURRENT = ("lstm", "rnn")
#: Which bottom of a type has a number for each step of each sequence.
_NUMBERS = {"embed": 0, "lstm": 1, "rnn": 1}


def _time_major(layers: Sequence[Layer]) -> set[str]:
    """Return the blobs of T x N x ...: what recurrent layers read and give, and all beside it."""
    keeping = {*_KEEPING.split(), *LOSSES}
    found: set[str] = set()
    groups = []
    for layer in layers:
        if layer.kind in _RECURRENT:
            # A third bottom is the same at all steps: N x D.
            groups.append([*layer.bottoms[:2], *layer.tops[:1]])
            found.update(groups[-1][:1])
        elif layer.kind in keeping and not _is_flattening(layer):
            groups.append([*layer.bottoms, *layer.tops])
    size = -1
    while size < len(found):  # until nothing more is beside what is found
        size = len(found)
        for group in (*groups, *reversed(groups)):
            if not found.isdisjoint(group):
                found.update(group)
    return found


def _find_steps(sources: Mapping[str, Source], layers: Sequence[Layer]) -> None:
    """Find numbers of each step of as many sequences as there are images: words, where they end.

    HDF5 files have a row for each step; the file says how many of those are read at once.
    """
    time_major = _time_major(layers)
    images = next((s for s in sources.values() if s.shape and s.name not in time_major), None)
    if images is None:
        return
    numbers = {
        layer.bottoms[place]
        for layer in layers
        for place in (_NUMBERS.get(layer.kind, 1 if layer.kind in LOSSES else -1),)
        if 0 <= place < len(layer.bottoms)
    }
    for name in numbers & time_major & set(sources):
        source = sources[name]
        if source.shape is None and source.samples and source.rows:
            source.shape, source.images = (source.samples, images.batch), None
            source.note = (
                f"{name} is taken as {format_shape(source.shape)}, the steps of each of "
                f"{images.batch} samples: --input {name}=TxN says otherwise"
            )


def _find_time(sources: Mapping[str, Source], layers: Sequence[Layer]) -> None:
    """Find the inputs of T x N x ..., and those of (T N) x ... that are made such later."""
    time_major = _time_major(layers)
    splits = [
        tuple(layer.message.reshape_param.shape.dim[:2])
        for layer in layers
        if layer.kind == "reshape" and time_major.intersection(layer.tops)
    ]
    for source in sources.values():
        shape = source.shape
        if shape is None or source.regions:
            continue
        if source.name in time_major:
            source.batch_axis = int(len(shape) > 1)
            continue
        for first, second in (split for split in splits if len(split) == 2):
            steps = first if first > 0 else shape[0] // max(second, 1)
            samples = second if second > 0 else shape[0] // steps
            if first and second and steps * samples == shape[0]:
                source.steps = steps


def _is_flattening(layer: Layer) -> bool:
    return layer.kind == "innerproduct" and layer.message.inner_product_param.axis in (0, 1)
