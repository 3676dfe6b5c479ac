"""Memory of a small GPT that computes activations again, beside what PyTorch takes.

It does so by torch.utils.checkpoint without reentrance, around each block or the core of attention.
"""

from __future__ import annotations

from typing import Any

import pytest

import paleo

#: What PyTorch takes is to be within this share of the prediction.
CLOSE = 0.04


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize("fused", [False, True], ids=["in_steps", "fused"])
def test_a_small_gpt_takes_what_is_predicted(fused: bool, mode: str, batch: int) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("torch.distributed._tools.mem_tracker", reason="needs its tools")
    from torch_nets import peak
    from torch_nets.recomputed import TOKENS, WORDS, Gpt

    shape = (batch, TOKENS)
    options = paleo.ImportOptions(input=((None, shape),))
    net = paleo.load(Gpt(fused), options)
    x = torch.randint(0, WORDS, shape)
    found: Any = peak.training(Gpt(fused, mode), x, loss_of=lambda scores: (scores * scores).mean())
    predicted = paleo.footprint(net, batch, recompute=mode).peak
    assert predicted == pytest.approx(found.tensors, rel=CLOSE)
