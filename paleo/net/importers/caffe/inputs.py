"""The inputs of a Caffe net: what its file says of them, and what an option says instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.errors import Mistakes
from paleo.core.tensor import format_shape
from paleo.net.importers.base import PROPOSALS, ImportOptions
from paleo.net.importers.caffe.data import (
    NO_CHANNELS,
    Source,
    channels_of,
    convolved,
    feeds,
    has_volumes,
    of_file,
    of_layer,
)
from paleo.net.importers.caffe.detection import REGIONS
from paleo.net.importers.caffe.layers import Layer
from paleo.net.importers.caffe.operators import LOSSES, needed

#: Paleo's tensors have as many dimensions at most.
_MAX_RANK = 8


def find_sources(
    net: Any, layers: list[Layer], options: ImportOptions, mistakes: Mistakes
) -> dict[str, Source]:
    """Return the inputs by name, in the file's order, with what the options say of them."""
    sources: dict[str, Source] = {}
    for source in of_file(net):
        sources[source.name] = source
    volumes = has_volumes(layers)
    images = convolved(layers)
    sliced = {name for layer in layers if layer.kind == "slice" for name in layer.bottoms}
    for layer in layers:
        if feeds(layer):
            for source in of_layer(layer, layers, volumes):
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
    _find_rows(sources, layers)
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
        if layer.kind not in _FEEDING_REGIONS or layer.bottoms or not layer.tops:
            continue
        source = sources[layer.tops[0]]
        own = regions.intersection(layer.tops)
        channels = channels_of(source.name, layers)
        if channels is None:
            source.fault = NO_CHANNELS
            continue
        source.shape = (_IMAGES_OF_REGIONS if own else 1, channels, *_DETECTOR_IMAGE)
        source.note = (
            f"{source.name} is taken as {format_shape(source.shape)}, the largest of "
            f"py-faster-rcnn's configuration: --input {source.name}=NxCxHxW says otherwise"
        )
        for name in own:
            sources[name].regions = SAMPLED // _IMAGES_OF_REGIONS


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


# Where the batch is


def _axes_of(layer: Layer) -> tuple[int, int]:
    """Return the axis that a layer joins or cuts, by its new name and its old."""
    message = layer.message
    if layer.kind == "concat":
        return message.concat_param.axis, message.concat_param.concat_dim
    return message.slice_param.axis, message.slice_param.slice_dim


def _find_rows(sources: Mapping[str, Source], layers: Sequence[Layer]) -> None:
    """Find inputs whose first axis has several rows of each sample, which a Slice takes apart.

    They are two images that are compared, or an image beside one that is like it and one that is
    not.
    """
    given = {source.shape[0] for source in sources.values() if source.shape}
    # What was joined before is taken apart again.
    joined = any(layer.kind == "concat" and 0 in _axes_of(layer) for layer in layers)
    for layer in layers:
        points, parts = list(layer.message.slice_param.slice_point), len(layer.tops)
        if layer.kind != "slice" or 0 not in _axes_of(layer) or parts < 2:
            continue
        if len(points) != parts - 1 and (points or joined):
            continue
        for total in given:
            part = total // parts
            if total % parts or (points and points != [part * i for i in range(1, parts)]):
                continue
            for source in sources.values():
                if source.shape and source.shape[0] == total and source.regions is None:
                    source.regions = parts if source.steps == 1 and not source.batch_axis else None


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
