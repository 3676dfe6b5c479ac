"""One net by three ways: PyTorch's own counter, the module imported, its ONNX export imported.

Parameters and output shapes must be equal, FLOPs of products and convolutions within 1 % of
`torch.utils.flop_counter.FlopCounterMode`, forward and backward (corrected as
`torch_nets/count.py` says: groups, and what is counted on the meta device).
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

import paleo

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("onnx", reason="needs onnx")

import torch_nets  # noqa: E402
from products import counts  # noqa: E402
from torch_nets import count  # noqa: E402

#: Well-known nets, and small ones with what those lack.
WELL_KNOWN = ("lenet5", "alexnet", "resnet18", "squeezenet", "mobilenet_v2", "lstm_lm")
SMALL = (
    "mlp",
    "conv_1d",
    "conv_3d",
    "deconvolution",
    "squeeze_excite",
    "convnext",
    "shufflenet",
    "upsampled_unet",
    "encoder",
    "stock_encoder",
    "gpt",
    "vit",
    "swin",
    "einsum_attention",
)
BATCH = 2


def exported(factory: Any, x: Any, path: Path) -> Path:
    """Write the ONNX file of a net in training form, nothing folded."""
    module = factory().train()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(
                module,
                (x,),
                path,
                dynamo=False,
                training=torch.onnx.TrainingMode.TRAINING,
                do_constant_folding=False,
                opset_version=17,
            )
        finally:
            logging.disable(logging.NOTSET)
    return path


@pytest.mark.parametrize("name", [*WELL_KNOWN, *SMALL])
def test_a_net_is_the_same_by_every_way(name: str, tmp_path: Path) -> None:
    if name in WELL_KNOWN:
        factory = torch_nets.NETS[name]
        shape = (BATCH, *torch_nets.INPUTS[name][1:])
        dtype = torch.int64 if name in torch_nets.VOCABULARY else torch.float32
    else:
        factory, shape, dtype, _ = torch_nets.SMALL_NETS[name]
    forward, backward = count.flops(factory, shape, batch=BATCH, dtype=dtype)
    options = paleo.ImportOptions(input=((None, shape),))
    module = paleo.load(f"python:{factory.__module__}:{factory.__name__}", options)
    x = torch.zeros(shape, dtype=dtype)
    file = paleo.load(exported(factory, x, tmp_path / f"{name}.onnx"))
    with torch.device("meta"):
        given = factory()(torch.zeros(shape, dtype=dtype))
    for net in (module, file):
        params, own_forward, own_backward = counts(net, BATCH)
        assert params == count.parameters(factory)
        assert own_forward == pytest.approx(forward, rel=0.01)
        assert own_backward == pytest.approx(backward, rel=0.01)
        output = paleo.build(net, BATCH).nodes[-1].output
        # Paleo has channels last, and may keep a dimension of 1 that the framework drops.
        assert sorted(size for size in output if size > 1) == sorted(
            size for size in given.shape if size > 1
        )
