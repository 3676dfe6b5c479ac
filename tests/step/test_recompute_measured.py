"""Memory of small transformers that compute activations again, beside what PyTorch takes.

They do so by torch.utils.checkpoint without reentrance, around each block or the core of attention.
All cases are in docs/memory.md (`benchmarks/memory.py --recomputed`); here is one of each net, and
a GPT whose attention is one kernel.
"""

from __future__ import annotations

from typing import Any

import pytest

import paleo

#: What PyTorch takes is to be within this share of the prediction; of a mixture, whose experts it
#: has one after the other, and the prediction all at once.
CLOSE = {"moe": 0.08}


@pytest.mark.parametrize(
    ("name", "mode", "fused"),
    [
        ("gpt", "none", False),
        pytest.param("gpt", "selective", False, marks=pytest.mark.deeper),
        pytest.param("gpt", "full", False, marks=pytest.mark.deeper),
        pytest.param("gpt", "none", True, marks=pytest.mark.deeper),
        ("gpt", "full", True),
        ("llama", "selective", False),
        pytest.param("llama", "full", True, marks=pytest.mark.deeper),
        ("vit", "selective", False),
        # Takes longest, and .ci/run has the benchmark measure it.
        pytest.param("moe", "full", False, marks=pytest.mark.deeper),
    ],
)
def test_a_small_transformer_takes_what_is_predicted(name: str, mode: str, fused: bool) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("torch.distributed._tools.mem_tracker", reason="needs its tools")
    from torch_nets import peak, recomputed

    x = recomputed.batch_of(name, 8)
    options = paleo.ImportOptions(input=((None, tuple(x.shape)),))
    make = recomputed.NETS[name]
    net = paleo.load(make(fused, "none"), options)
    found: Any = peak.training(make(fused, mode), x, loss_of=lambda given: given[0])
    predicted = paleo.footprint(net, 8, recompute=mode).peak
    assert predicted == pytest.approx(found.tensors, rel=CLOSE.get(name, 0.04))
