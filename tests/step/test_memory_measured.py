"""Predicted memory beside what PyTorch takes: small nets measured here, others in docs/memory.md.

`benchmarks/memory.py` measures them all and writes that page's tables; what the two measured
figures are is in `torch_nets/peak.py`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from benchmark_modules import benchmark_of

import paleo
from paleo.step.memory import footprint

benchmark = benchmark_of("memory")

#: Tensors alive are to be within this share of the prediction, which no net was fitted to.
CLOSE = 0.02
ROW = re.compile(
    r"^\| (\w+\*?) \| (\d+) \|(?: ([a-z]+) \|)? ([\d,.]+) \| ([\d,.]+) \| [^|]* \| ([\d,.]+) \|",
    re.MULTILINE,
)


def documented(heading: str) -> list[Any]:
    """Return the cases of the table that follows a heading of docs/memory.md."""
    _, _, rest = benchmark.PAGE.read_text("utf-8").partition(heading)
    table, _, _ = rest.lstrip("\n").partition("\n\n")
    return [
        benchmark.Case(net, int(batch), optimizer, *(_bytes(text) for text in sizes))
        for net, batch, optimizer, *sizes in ROW.findall(table)
    ]


def _bytes(megabytes: str) -> int:
    return round(1e6 * float(megabytes.replace(",", "")))


TRAINING = documented("Training with plain gradient descent, in MB (10^6 bytes):")
OTHERS = documented("Other optimizers:")
INFERENCE = documented("Inference:")


def test_the_page_has_nets_of_the_zoo_at_three_batch_sizes_each() -> None:
    found: dict[str, list[int]] = {}
    for case in TRAINING:
        found.setdefault(case.net, []).append(case.batch_size)
    assert {net: tuple(batches) for net, batches in found.items()} == benchmark.TRAINING
    assert len(found) >= 8
    assert {net.rstrip("*") for net in found} <= set(paleo.net_names())
    assert all(len(set(batches)) >= 3 for batches in found.values())
    assert [(c.net, c.batch_size, c.optimizer) for c in OTHERS] == list(benchmark.OPTIMIZERS)
    assert [(c.net, c.batch_size) for c in INFERENCE] == list(benchmark.INFERENCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*TRAINING, *OTHERS, *INFERENCE], ids=lambda c: f"{c.net}-{c.batch_size}-{c.optimizer}"
)
def test_the_page_shows_what_is_predicted_now(case: Any) -> None:
    if case.net.endswith("*"):
        pytest.importorskip("torch", reason="needs PyTorch")
    optimizer = None if case in INFERENCE else case.optimizer or "sgd"
    now = benchmark.predicted(case.net, case.batch_size, optimizer)
    assert now == pytest.approx(case.predicted, abs=0.05e6 + 1)


def test_the_mean_error_over_nets_is_at_most_a_tenth() -> None:
    tensors, allocated = benchmark.mean_errors(TRAINING)
    assert tensors <= CLOSE
    assert allocated <= benchmark.BOUND == 0.10
    for net in benchmark.TRAINING:
        own, _ = benchmark.mean_errors(case for case in TRAINING if case.net == net)
        assert own <= benchmark.BOUND, net
    text = benchmark.PAGE.read_text("utf-8")
    assert f"| **all nets** | **{100 * tensors:.1f} %** | **{100 * allocated:.1f} %** |" in text


def test_the_tables_are_replaced_between_their_marks() -> None:
    begin, end = "<!-- measured -->\n", "<!-- end of measured -->\n"
    text = f"before\n{begin}old\n{end}after\n"
    assert benchmark.written(text, "new") == f"before\n{begin}\nnew\n{end}after\n"


def test_errors_are_means_of_each_net_first() -> None:
    cases = [
        benchmark.Case("a", 1, "sgd", 110, 100, 100),  # 10 % too much
        benchmark.Case("a", 2, "sgd", 90, 100, 120),  # 10 % and 25 % too little
        benchmark.Case("b", 1, "sgd", 100, 100, 100),
    ]
    tensors, allocated = benchmark.mean_errors(cases)
    assert tensors == pytest.approx((0.10 + 0) / 2)
    assert allocated == pytest.approx(((0.10 + 0.25) / 2 + 0) / 2)


def torch_and_peak() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip(
        "torch.distributed._tools.mem_tracker", reason="needs PyTorch with its distributed tools"
    )
    from torch_nets import peak

    return peak


@pytest.mark.parametrize(
    ("net", "batch"),
    [("lenet5", 16), ("lenet5", 64), ("squeezenet", 1), ("resnet18", 1)],
)
def test_training_takes_what_is_predicted(net: str, batch: int) -> None:
    torch_and_peak()
    tensors, allocated = benchmark.measured(net, batch).errors
    assert abs(tensors) <= CLOSE
    assert abs(allocated) <= benchmark.BOUND


#: Those that PyTorch's own code has, by their defaults on the CPU.
_OF_TORCH = ("sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw")


@pytest.mark.parametrize("optimizer", _OF_TORCH)
def test_every_optimizer_takes_what_is_predicted(optimizer: str) -> None:
    assert optimizer in torch_and_peak().OPTIMIZERS
    tensors, _ = benchmark.measured("lenet5", 2, optimizer).errors
    assert abs(tensors) <= 0.001


def test_inference_takes_what_is_predicted() -> None:
    torch_and_peak()
    tensors, _ = benchmark.measured("lenet5", 64, None).errors
    assert abs(tensors) <= 0.001


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "conv_1d",
        "conv_3d",
        "odd_convolutions",
        "deconvolution",
        "squeeze_excite",
        "convnext",
        "shufflenet",
        "upsampled_unet",
        "encoder",
        "vit",
    ],
)
def test_small_nets_of_every_kind_take_what_is_predicted(name: str) -> None:
    peak = torch_and_peak()
    import torch
    import torch_nets

    factory, shape, _, vocabulary = torch_nets.SMALL_NETS[name]
    shape = (8, *shape[1:])
    x = torch.randint(0, vocabulary, shape) if vocabulary else torch.randn(shape)
    options = paleo.ImportOptions(input=((None, shape),))
    net = paleo.load(f"python:{factory.__module__}:{factory.__name__}", options)
    found = peak.training(factory(), x, loss_of=lambda scores: (scores * scores).mean())
    assert footprint(net, 8).peak == pytest.approx(found.tensors, rel=CLOSE)
