"""Power in the cost model `tiled`: what a training step leaves of it; derived by hand."""

from __future__ import annotations

import pytest

import paleo
from paleo.core.operations import MatMul
from paleo.costs import COST_MODELS, Target
from paleo.net.graph import build
from paleo.net.load import loads
from paleo.step.estimates import estimate_forward

TILED = COST_MODELS["tiled"]


def test_in_training_power_limits_short_products_wholly_too() -> None:
    """An H100: 700 W for 0.983 pJ an operation are 712 TFLOP/s, however short a product is."""
    h100 = paleo.find_device("H100_SXM")
    product = MatMul(4096, 5120, 8192, 2)
    flops = 2 * 4096 * 5120 * 8192
    burst = TILED.price(product, Target(h100, "bf16"))
    steady = TILED.price(product, Target(h100, "bf16", continuous=True))
    assert burst.total < flops / 712e12 < 0.5e-3
    assert steady.total >= flops / 712.2e12
    assert steady.total < 1.1 * flops / 712e12
    # A step of a net is such a load, a pass of inference by itself is none.
    net = loads(
        """{"name": "one", "layers": {
        "x": {"type": "Input", "parents": [], "tensor": [1, 8192]},
        "y": {"type": "InnerProduct", "parents": ["x"], "num_outputs": 5120, "use_bias": false}
        }}"""
    )
    graph = build(net, 4096, "bf16")
    seconds = [
        estimate_forward(graph, h100, cost_model="tiled", training=training).upper
        for training in (True, False)
    ]
    assert seconds[0] == pytest.approx(steady.total)
    assert seconds[1] == pytest.approx(burst.total)
