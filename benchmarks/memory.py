"""Predicted memory of training beside what PyTorch takes on the CPU, net by net.

    python benchmarks/memory.py            measure all and print the tables (15 minutes, 5 GB)
    python benchmarks/memory.py --write    and write them into docs/memory.md
    python benchmarks/memory.py --check    measure small cases; exit with 1 if a bound is missed
    python benchmarks/memory.py --recomputed [--write]   transformers that compute again, alone

How it is measured, and what the two figures are, is in `tests/helpers/torch_nets/peak.py`. Nothing
is fitted: predictions are those of `paleo memory`.
"""

from __future__ import annotations

import argparse
import gc
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paleo
from paleo.net.layers.convolution import Convolution
from paleo.step.memory import footprint

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "memory.md"
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

#: Mean of the errors of all nets, and error of each case that --check measures.
BOUND, BOUND_OF_TENSORS = 0.10, 0.02
#: Mean and largest error of the transformers that compute activations again.
BOUND_OF_MEAN, BOUND_OF_WORST = 0.04, 0.12

#: Nets of the zoo, and their batch sizes. Those with a star are imported from their PyTorch
#: definition: their files are Caffe's, with batch normalization as two layers.
TRAINING = {
    "lenet5": (16, 64, 256),
    "alexnet": (4, 16, 64),
    "nin_227": (4, 16, 64),
    "vgg11": (1, 4, 16),
    "googlenet": (4, 16, 32),
    "squeezenet": (4, 16, 32),
    "resnet18": (4, 16, 32),
    "resnet50*": (2, 8, 16),
    "densenet40*": (8, 32, 64),
    "densenet121": (2, 8, 16),
    "mobilenet_v1": (4, 16, 32),
    "mobilenet_v2": (4, 8, 16),
    "unet": (1, 2, 3),
    "dcgan_discriminator": (8, 32, 128),
    "msft_speech": (64, 256, 1024),
    "lstm_lm": (4, 20, 40),
}
#: Nets with other optimizers, and nets in inference.
OPTIMIZERS = (
    ("lenet5", 64, "momentum"),
    ("alexnet", 4, "momentum"),
    ("alexnet", 4, "rmsprop"),
    ("alexnet", 4, "adam"),
    ("resnet18", 4, "adagrad"),
    ("resnet18", 4, "adamw"),
    ("lstm_lm", 4, "adam"),
)
INFERENCE = (
    ("lenet5", 64),
    ("alexnet", 16),
    ("vgg11", 4),
    ("squeezenet", 16),
    ("resnet18", 16),
    ("mobilenet_v1", 16),
    ("densenet121", 8),
    ("unet", 1),
)
#: Small transformers (`tests/helpers/torch_nets/recomputed.py`), whose attention is in steps.
TRANSFORMERS = ("gpt", "llama", "moe", "vit")
MODES = ("none", "selective", "full")
BATCHES = (2, 4, 8)
#: What --check measures: the same of fewer batches, and small nets.
FEW_BATCHES = (2, 8)
SMALL = {"lenet5": (16, 64, 256), "squeezenet": (1, 2, 4), "densenet40*": (2, 4, 8)}


@dataclass(frozen=True)
class Case:
    """A net at a batch size: bytes predicted, of tensors alive, and allocated."""

    net: str
    batch_size: int
    optimizer: str | None
    predicted: int
    tensors: int
    allocated: int
    recompute: str = "none"

    @property
    def errors(self) -> tuple[float, float]:
        """How much too much is predicted, of tensors and of what was allocated."""
        return self.predicted / self.tensors - 1, self.predicted / self.allocated - 1


def loaded(name: str, batch: int) -> paleo.NetSpec:
    """Return a net of the zoo, or with a star what its PyTorch definition is imported as."""
    if not name.endswith("*"):
        return paleo.load(name)
    import torch_nets

    name = name.rstrip("*")
    factory = torch_nets.NETS[name]
    shape = (batch, *torch_nets.INPUTS[name][1:])
    options = paleo.ImportOptions(input=((None, shape),))
    return paleo.load(f"python:{factory.__module__}:{name}", options)


def predicted(name: str, batch: int, optimizer: str | None) -> int:
    """Return the peak in training with this optimizer, or in inference if there is none."""
    found: Any = footprint(
        loaded(name, batch),
        batch,
        optimizer=optimizer or "sgd",
        training=optimizer is not None,
    ).peak
    return int(found)


def measured(name: str, batch: int, optimizer: str | None = "sgd") -> Case:
    """Run a net in PyTorch, and predict what it takes."""
    import torch
    import torch_nets
    from torch_nets import peak

    plain = name.rstrip("*")
    shape = (batch, *torch_nets.INPUTS[plain][1:])
    net = torch_nets.NETS[plain]()
    if any(_is_joined(spec.layer) for spec in loaded(name, batch).layers):
        net = peak.in_place(net)
    if plain in torch_nets.VOCABULARY:
        x = torch.randint(0, torch_nets.VOCABULARY[plain], shape)
    else:
        x = torch.randn(shape)
    found = peak.training(net, x, optimizer) if optimizer else peak.inference(net, x)
    del net, x
    gc.collect()
    return Case(name, batch, optimizer, predicted(name, batch, optimizer), *found)


def recomputed(name: str, modes: Iterable[str], batches: Iterable[int]) -> Iterator[Case]:
    """Train a small transformer that computes activations again, and predict what it takes."""
    from torch_nets import peak, recomputed

    make = recomputed.NETS[name]
    example = recomputed.batch_of(name, 2)
    net = paleo.load(
        make(False, "none"), paleo.ImportOptions(input=((None, tuple(example.shape)),))
    )
    for mode in modes:
        for batch in batches:
            x = recomputed.batch_of(name, batch)
            found = peak.training(make(False, mode), x, loss_of=lambda given: given[0])
            wanted: Any = footprint(net, batch, recompute=mode).peak
            yield Case(name, batch, "sgd", int(wanted), *found, recompute=mode)


def mean_and_worst(cases: Iterable[Case]) -> tuple[float, float]:
    """Return the mean and the largest error of tensors alive, without its sign."""
    sizes = [abs(case.errors[0]) for case in cases]
    return mean(sizes), max(sizes)


def _is_joined(layer: paleo.Layer) -> bool:
    return isinstance(layer, Convolution) and layer.activation_fn is not None


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def mean_errors(cases: Iterable[Case]) -> tuple[float, float]:
    """Return the means over nets of each net's mean error, without its sign."""
    by_net: dict[str, list[Case]] = {}
    for case in cases:
        by_net.setdefault(case.net, []).append(case)
    first, second = (
        mean(mean(abs(case.errors[which]) for case in own) for own in by_net.values())
        for which in (0, 1)
    )
    return first, second


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(head)
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _percent(error: float) -> str:
    text = f"{100 * error:+.1f} %"
    return text if float(text[:-2]) else "0.0 %"


def _figures(case: Case) -> list[str]:
    sizes = (case.predicted, case.tensors, case.allocated)
    mega = [f"{size / 1e6:,.1f}" for size in sizes]
    tensors, allocated = (_percent(error) for error in case.errors)
    return [mega[0], mega[1], tensors, mega[2], allocated]


_FIGURES = ("predicted", "tensors alive", "error", "allocated", "error")


def page(training: list[Case], others: list[Case], inference: list[Case]) -> str:
    """Return the tables of the page."""
    import torch

    version, _, _ = torch.__version__.partition("+")
    nets = list(dict.fromkeys(case.net for case in training))
    tensors, allocated = mean_errors(training)
    lines = [f"PyTorch {version} on {platform.machine()}.", ""]
    lines += ["Training with plain gradient descent, in MB (10^6 bytes):", ""]
    lines += _table(
        ("net", "batch", *_FIGURES),
        ([case.net, str(case.batch_size), *_figures(case)] for case in training),
    )
    lines += ["", "Mean error of each net, without its sign:", ""]
    rows = []
    for net in nets:
        own = mean_errors(case for case in training if case.net == net)
        rows.append([net, *(f"{100 * error:.1f} %" for error in own)])
    rows.append(["**all nets**", *(f"**{100 * error:.1f} %**" for error in (tensors, allocated))])
    lines += _table(("net", "of tensors alive", "of what is allocated"), rows)
    lines += ["", "Other optimizers:", ""]
    lines += _table(
        ("net", "batch", "optimizer", *_FIGURES),
        ([c.net, str(c.batch_size), str(c.optimizer), *_figures(c)] for c in others),
    )
    lines += ["", "Inference:", ""]
    lines += _table(
        ("net", "batch", *_FIGURES),
        ([case.net, str(case.batch_size), *_figures(case)] for case in inference),
    )
    return "\n".join(lines) + "\n"


def page_of_recomputed(cases: list[Case]) -> str:
    """Return the page's table of activations that are computed again."""
    lines = _table(
        ("net", "batch", "recompute", *_FIGURES),
        ([c.net, str(c.batch_size), c.recompute, *_figures(c)] for c in cases),
    )
    average, worst = mean_and_worst(cases)
    said = f"Of tensors alive, mean error {100 * average:.1f} %, worst {100 * worst:.1f} %."
    return "\n".join([*lines, "", said]) + "\n"


def written(text: str, tables: str, mark: str = "measured") -> str:
    """Return the text of the page with other tables between its marks."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    assert len(pattern.findall(text)) == 1
    return pattern.sub(lambda _: f"{begin}\n{tables}\n{end}", text)


def _run(cases: Iterable[tuple[Any, ...]]) -> list[Case]:
    found = []
    for arguments in cases:
        case = measured(*arguments)
        found.append(case)
        print(case.net, case.batch_size, case.optimizer or "inference", *_figures(case), flush=True)
    return found


def _recomputed(batches: Iterable[int]) -> tuple[list[Case], bool]:
    """Return the transformers as measured, and whether a bound is missed."""
    cases = []
    for name in TRANSFORMERS:
        for case in recomputed(name, MODES, batches):
            cases.append(case)
            print(case.net, case.batch_size, case.recompute, *_figures(case), flush=True)
    average, worst = mean_and_worst(cases)
    return cases, average > BOUND_OF_MEAN or worst > BOUND_OF_WORST


def main() -> int:
    """Measure and print; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/memory.md")
    parser.add_argument("--check", action="store_true", help="small cases; exit with 1 if missed")
    parser.add_argument("--recomputed", action="store_true", help="transformers alone")
    options = parser.parse_args()
    again, is_missed = _recomputed(FEW_BATCHES if options.check else BATCHES)
    if options.write:
        text = written(PAGE.read_text("utf-8"), page_of_recomputed(again), "recomputed")
        PAGE.write_text(text, "utf-8")
    if options.recomputed:
        return int(is_missed)
    nets = SMALL if options.check else TRAINING
    training = _run((net, batch) for net, batches in nets.items() for batch in batches)
    missed = is_missed or max(mean_errors(training)) > BOUND
    if options.check:
        missed |= any(abs(case.errors[0]) > BOUND_OF_TENSORS for case in training)
        return int(missed)
    others = _run(OPTIMIZERS)
    tables = page(training, others, _run((net, batch, None) for net, batch in INFERENCE))
    print(tables)
    if options.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), tables), "utf-8")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
