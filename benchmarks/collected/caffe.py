"""Prototxts of a folder, at any depth, beside a count from their text alone.

Each is read for training, or for testing where it has layers for that alone. Solvers and files
without layers are left out, and said to be. Where the importer asks how large images are, it is
told what the file itself says elsewhere: a data set of known images, or a file beside it for the
same blob.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paleo
from collected.blobs import CannotCountError
from collected.outcome import Outcome, counts_differ, outcome
from collected.prototxt import count
from collected.text_format import Fields, parsed
from paleo.core.errors import Mistakes
from paleo.net.importers import ImportOptions, read
from paleo.net.importers.base import PROPOSALS
from paleo.net.importers.caffe import proto
from paleo.net.importers.caffe.inputs import find_sources
from paleo.net.importers.caffe.layers import layers_of_phase

#: Where the prototxts are; our own where no other folder is given.
FOLDER = Path(__file__).parents[2] / "tests" / "helpers" / "prototxts"
#: What the images of data sets are that sources of data are named for.
_DATA_SETS: Mapping[str, tuple[int, ...]] = {
    "mnist": (1, 28, 28), "cifar": (3, 32, 32), "svhn": (3, 32, 32), "siamese": (2, 28, 28),
    "ilsvrc|imagenet": (3, 256, 256),
}  # fmt: skip


def names() -> list[str]:
    """Return the files that hold a net."""
    found, left_out = [], 0
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and re.search(r"prototxt|\.pt$", path.name):
            if _holds_net(_text(path)):
                found.append(str(path.relative_to(FOLDER)))
            else:
                left_out += 1
    print(f"caffe: {left_out} solvers and files without layers are left out", file=sys.stderr)
    return found


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


def _holds_net(text: str) -> bool:
    return bool(re.search(r"^\s*layers?\s*:?\s*\{", text, re.MULTILINE))


def options_of(path: Path) -> ImportOptions:
    """Return the options that a file is read with: its phase, and what it says of its images."""
    text = _text(path)
    net = parsed(text)
    layers = net.get("layer", net.get("layers", []))
    only_tested = (
        bool(layers)
        and all(_phases(layer) == {"TEST"} for layer in layers[:1])
        and not any(_phases(layer) == {"TRAIN"} for layer in layers)
    )
    phase = "test" if only_tested else "train"
    return ImportOptions(phase=phase, input=_inputs(path, net, phase))


def _phases(layer: Fields) -> set[str]:
    return {str(rule["phase"][-1]) for rule in layer.get("include", []) if "phase" in rule}


def _inputs(path: Path, net: Fields, phase: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return shapes of what data layers give without saying how large it is."""
    given = []
    for layer in net.get("layer", net.get("layers", [])):
        kind = str(layer.get("type", [""])[-1]).replace("_", "").lower()
        params = [values[-1] for name, values in layer.items() if name.endswith("data_param")]
        if layer.get("bottom") or not params or not layer.get("top") or kind == "dummydata":
            continue
        phases = _phases(layer)
        if phases and phase.upper() not in phases:
            continue
        shape = _known(params[-1]) or _beside(path, layer["top"][0])
        transform = layer.get("transform_param", [{}])[-1]
        sized = {"crop_size", "crop_h", "resize_param", "new_height", "height", "dim", "channels"}
        if shape and sized.isdisjoint({*params[-1], *transform}):
            samples = int(params[-1].get("batch_size", [1])[-1])
            given.append((layer["top"][0], (samples, *shape)))
    return tuple(given)


def _known(param: Fields) -> tuple[int, ...] | None:
    source = str(param.get("source", [""])[-1]).lower()
    return next((shape for word, shape in _DATA_SETS.items() if re.search(word, source)), None)


def _beside(path: Path, blob: str) -> tuple[int, ...] | None:
    """Return what a file for deployment beside this one has for a blob of the same name."""
    for other in sorted(path.parent.glob("*deploy*")):
        net = parsed(_text(other))
        dims = [int(size) for size in net.get("input_dim", [])]
        for shape in net.get("input_shape", []):
            dims = dims or [int(size) for size in shape.get("dim", [])]
        if net.get("input", [None])[0] == blob and len(dims) >= 4:
            return tuple(dims[1:4])
    return None


def run(name: str) -> Outcome:
    """Read a file and compare what it has."""
    path = FOLDER / name
    options = options_of(path)

    def difference(net: paleo.NetSpec) -> str:
        text = _text(path)
        sources = _sources(text, options)
        try:
            params, multiply_adds = count(
                text,
                {n: s.shape for n, s in sources.items() if s.shape},
                options.phase,
                options.proposals or PROPOSALS,
            )
        except CannotCountError as error:
            return f"it cannot be counted: {error}"
        batch = next(iter(sources.values())).batch
        return counts_differ(net, (params, 2 * multiply_adds), batch)

    return outcome(lambda: read("caffe", str(path), options), difference, [(proto, "parse")])


def _sources(text: str, options: ImportOptions) -> Mapping[str, Any]:
    net = proto.parse(text)
    if any(layer.HasField("layer") for layer in net.layers):
        net = proto.upgraded(net)
    layers, _ = layers_of_phase(net, options.phase)
    return find_sources(net, layers, options, Mistakes("it"))
