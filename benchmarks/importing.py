"""How long reading ResNet-50 takes, beside reading the same file with its own library.

    python benchmarks/importing.py            print the table
    python benchmarks/importing.py --check    exit with status 1 if a bound is missed

The file has its weights where its format does: 100 MB in ONNX. What is not installed (protobuf,
onnx, PyTorch) is left out. A ratio of 1 would be Paleo taking no time of its own, and 0 where the
figure is ours alone.

Whole collections, each of which needs a package (what is missing is said):

    python benchmarks/importing.py --collection timm,torchvision,transformers,onnx_nodes
    python benchmarks/importing.py --collection caffe --path FOLDER    prototxts, at any depth
    ... --sample 12      an evenly spread sample of each, the same every time
    ... --failures       the nets that are not exact, with their messages
    ... --check          exit with status 1 if one is wrong, or more are refused than should be
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ratios import Figure, ratio, report

import paleo
from paleo.net.importers import ImportOptions, read
from paleo.net.layers.convolution import Convolution
from paleo.net.layers.pooling import Pooling

TESTS = Path(__file__).parents[1] / "tests" / "helpers"
#: A batch of images.
IMAGES = (2, 3, 224, 224)
#: Operators of the deep module.
OPERATORS = 2000


def prototxt(net: paleo.NetSpec) -> str:
    """Return a ResNet as a Caffe prototxt: the types that it has, and no others."""
    lines = [f'name: "{net.name}"', 'input: "data"']
    lines += [f"input_dim: {size}" for size in (1, 3, 224, 224)]
    for spec in net.layers:
        layer, body = spec.layer, ""
        if layer.is_input:
            continue
        match layer.type_name:
            case "Convolution":
                assert isinstance(layer, Convolution)
                body = (
                    f"convolution_param {{ num_output: {layer.filter[-1]} "
                    f"kernel_size: {layer.filter[0]} stride: {layer.strides[0]} "
                    f"pad: {layer.padding[0][0]} bias_term: {str(layer.use_bias).lower()} }}"
                )
                kind = "Convolution"
            case "Pooling":
                assert isinstance(layer, Pooling)
                body = (
                    f"pooling_param {{ pool: MAX kernel_size: {layer.ksize[0]} "
                    f"stride: {layer.strides[0]} }}"
                )
                kind = "Pooling"
            case "GlobalPooling" | "AvgPool":
                kind, body = "Pooling", "pooling_param { pool: AVE global_pooling: true }"
            case "InnerProduct":
                kind, body = "InnerProduct", "inner_product_param { num_output: 1000 }"
            case "Scale":
                kind, body = "Scale", "scale_param { bias_term: true }"
            case name:
                kind = {"Activation": "ReLU", "Elementwise": "Eltwise"}.get(name, name)
        bottoms = " ".join(f'bottom: "{parent}"' for parent in spec.parents)
        lines.append(
            f'layer {{ name: "{spec.name}" type: "{kind}" {bottoms} top: "{spec.name}" {body} }}'
        )
    return "\n".join(lines)


def imported(importer: str, target: str, options: ImportOptions | None = None) -> object:
    """Read a net as every command does, and count its parameters to see that it is one."""
    net = read(importer, target, options or ImportOptions())
    assert 25e6 < paleo.build(net).num_params < 26e6
    return net


def of_caffe(folder: Path) -> Iterator[Figure]:
    """Yield a prototxt over `text_format.Parse`."""
    text_format = importlib.import_module("google.protobuf.text_format")
    from paleo.net.importers.caffe.proto import parse

    path = folder / "resnet50.prototxt"
    path.write_text(prototxt(paleo.load("resnet50")), "utf-8")

    message = type(parse(path.read_text("utf-8")))

    def baseline() -> object:
        return text_format.Parse(path.read_text("utf-8"), message())

    name = "ResNet-50, prototxt / google.protobuf.text_format.Parse"
    yield name, ratio(lambda: imported("caffe", str(path)), baseline, 40), 3.0


def of_onnx(folder: Path) -> Iterator[Figure]:
    """Yield an ONNX file over `onnx.load`, and a command that finds its net in the cache."""
    import contextlib
    import io
    import logging
    import warnings

    import onnx
    import torch
    from torch_nets import residual

    path = folder / "resnet50.onnx"
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(residual.resnet50(), (torch.zeros(IMAGES),), path, dynamo=False)
    logging.disable(logging.NOTSET)
    read_in = ratio(lambda: imported("onnx", str(path)), lambda: onnx.load(path), 5)
    yield "ResNet-50, ONNX with its weights / onnx.load", read_in, 3.0

    environment = {**os.environ, "PALEO_CACHE": str(folder / "cache")}

    def summary(net: str) -> None:
        words = [sys.executable, "-m", "paleo", "summary", net, "--format=csv"]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True, env=environment)

    found = ratio(lambda: summary(str(path)), lambda: summary("resnet50"), 7)
    yield "a command with that file the second time / with resnet50 by its name", found, 1.6


def of_pytorch(_folder: Path) -> Iterator[Figure]:
    """Yield a module over `torch.export`."""
    import torch
    from torch_nets import residual

    def baseline() -> object:
        with torch.device("meta"):
            return torch.export.export(residual.resnet50(), (torch.zeros(IMAGES),))

    options = ImportOptions(input=((None, IMAGES),))
    target = f"python:{residual.__name__}:resnet50"
    read_in = ratio(lambda: imported("pytorch", target, options), baseline, 3)
    yield "ResNet-50, PyTorch module / torch.export on the meta device", read_in, 2.0
    ours = min(ours_of_export() for _ in range(3))  # the quietest
    yield f"{OPERATORS:,} operators of a module, ours / torch.export", ours, 0.1


def ours_of_export() -> float:
    """Return how long Paleo takes for a deep module beside its export, over the export.

    As in timeit, no garbage is collected meanwhile: when that is done is chance.
    """
    import torch
    from collected.outcome import Clock
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.wide, self.back = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.back(nn.functional.gelu(self.wide(self.norm(x))))

    blocks = OPERATORS // 5  # of five operators each
    module = nn.Sequential(*(Block() for _ in range(blocks)))
    options = ImportOptions(input=((None, (2, 16, 8)),))
    clock = Clock()
    gc.disable()
    begun = time.perf_counter()
    with clock.around((torch.export, "export")):
        net = paleo.load(module, options)
    whole = time.perf_counter() - begun
    gc.enable()
    assert len(net.layers) == 1 + 5 * blocks
    return (whole - clock.seconds) / clock.seconds


def collections(chosen: list[str], arguments: argparse.Namespace) -> bool:
    """Print a row for each collection, with its failures if asked; tell whether all are met."""
    from collected.table import COLLECTIONS, HEAD, run

    if unknown := [name for name in chosen if name not in COLLECTIONS]:
        sys.exit(f"unknown collections: {', '.join(unknown)} (there are: {', '.join(COLLECTIONS)})")
    found = [run(name, arguments.sample, arguments.path) for name in chosen]
    results = [result for result in found if result is not None]
    if arguments.failures:
        print(*(line for result in results for line in result.failures()), sep="\n", end="\n\n")
    print(HEAD)
    for result in results:
        print(result.row() + ("" if result.is_met else "  MISSED"))
    return len(results) == len(chosen) and all(result.is_met for result in results)


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--collection", help="names of collections, with commas")
    parser.add_argument("--path", help="folder of prototxts, for the collection caffe")
    parser.add_argument("--sample", type=int, help="take so many nets of each collection")
    parser.add_argument("--failures", action="store_true", help="list the nets that are not exact")
    arguments = parser.parse_args()
    check = arguments.check
    if arguments.collection:
        met = collections(arguments.collection.split(","), arguments)
        return int(check and not met)
    sys.path.insert(0, str(TESTS))
    needed = {of_caffe: ["google"], of_onnx: ["onnx", "torch"], of_pytorch: ["torch"]}
    with tempfile.TemporaryDirectory() as name:
        missed = report(
            functools.partial(measure, Path(name))
            for measure, libraries in needed.items()
            if all(map(importlib.util.find_spec, libraries))
        )
    return int(check and missed)


if __name__ == "__main__":
    sys.exit(main())
