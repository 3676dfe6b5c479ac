"""PyTorch's own exports to ONNX: the nets of `torch_nets`, against what is known of them."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.net.importers.base import ImportOptions
from paleo.net.importers.onnx import read

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

from products import counts  # noqa: E402
from torch_nets import COUNTED, INPUTS, NETS, SMALL_NETS  # noqa: E402

#: What PyTorch itself cannot export while it trains.
NOT_IN_TRAINING = {"odd_convolutions", "norms", "tagger"}
WELL_KNOWN = ("lenet5", "resnet18", "mobilenet_v2", "squeezenet", "googlenet")
#: No products of matrices, which is what multiply-adds are counted of.
NO_PRODUCTS = {"Pooling", "AvgPool", "GlobalPooling", "Dropout", "Reduce"}


def export(net: Any, sample: Any, path: Path, training: bool) -> None:
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                net.train(training),
                (sample,),
                str(path),
                dynamo=False,
                input_names=["x"],
                dynamic_axes={"x": {0: "batch"}},
                training=mode,
                do_constant_folding=not training,
                opset_version=18 if training else 17,
            )
    finally:
        logging.disable(logging.NOTSET)


def multiply_adds(summary: paleo.NetSummary) -> Any:
    return (
        sum(layer.forward_flops for layer in summary.layers if layer.type_name not in NO_PRODUCTS)
        / 2
    )


@pytest.mark.parametrize("name", sorted(set(SMALL_NETS) - NOT_IN_TRAINING))
def test_parameters_of_small_nets(name: str, tmp_path: Path) -> None:
    small = SMALL_NETS[name]
    net = small.factory()
    sample = (
        torch.zeros(small.shape, dtype=small.dtype)
        if small.vocabulary
        else torch.randn(small.shape)
    )
    path = tmp_path / f"{name}.onnx"
    export(net, sample, path, training=True)
    summary = paleo.summarize(read(str(path), ImportOptions()))
    assert summary.num_params == sum(each.numel() for each in net.parameters())
    # Folded for inference, it multiplies as much.
    export(net, sample, path, training=False)
    inference = paleo.summarize(read(str(path), ImportOptions()))
    assert multiply_adds(inference) == multiply_adds(summary)


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_well_known_nets(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    export(NETS[name](), torch.zeros(2, *INPUTS[name][1:]), path, training=True)
    summary = paleo.summarize(read(str(path), ImportOptions()))
    assert (summary.num_params, multiply_adds(summary)) == COUNTED[name]


class Mixture(torch.nn.Module):  # type: ignore[name-defined]
    """Each token goes to 2 of 4 experts, which come one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(16, 4)
        self.ups = torch.nn.ModuleList(torch.nn.Linear(16, 24) for _ in range(4))
        self.downs = torch.nn.ModuleList(torch.nn.Linear(24, 16) for _ in range(4))

    def forward(self, x: Any) -> Any:
        tokens = x.reshape(-1, 16)
        weights, experts = self.router(tokens).softmax(-1).topk(2, -1)
        y = torch.zeros_like(tokens)
        for i, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            token, place = torch.where(experts == i)
            y.index_add_(0, token, down(up(tokens[token]).relu()) * weights[token, place, None])
        return y.view_as(x)


@pytest.mark.parametrize("batch", ["open", "fixed"])
@pytest.mark.parametrize("dynamo", [False, True])
def test_a_mixture_of_experts(dynamo: bool, batch: str, tmp_path: Path) -> None:
    path, x = tmp_path / "mixture.onnx", torch.randn(2, 6, 16)
    more: dict[str, Any] = {}
    if batch == "open" and dynamo:
        more = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
    elif batch == "open":
        more = {"dynamic_axes": {"x": {0: "batch"}}}
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = Mixture().eval()
            names = {} if dynamo else {"input_names": ["x"]}
            torch.onnx.export(net, (x,), str(path), dynamo=dynamo, verbose=False, **names, **more)
    finally:
        logging.disable(logging.NOTSET)
    params = 16 * 4 + 4 + 4 * (2 * 16 * 24 + 24 + 16)
    # 24 rows and two matrices of 16x24; the router has 12 rows.
    flops = 2 * 12 * 16 * 4 + 2 * (2 * 24 * 16 * 24)
    assert counts(read(str(path), ImportOptions()), 2)[:2] == (params, flops)
