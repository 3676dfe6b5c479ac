"""Layers whose forward pass is computed in an element type of their own, by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.net.writer import dumps

DATA = {"type": "Input", "parents": [], "tensor": [4, 1000]}


def fc(*parents: str, **keys: Any) -> dict[str, Any]:
    product = {"type": "InnerProduct", "num_outputs": 1000, "use_bias": False}
    return {**product, "parents": [*parents], **keys}


def net(**layers: dict[str, Any]) -> paleo.NetSpec:
    return paleo.loads(json.dumps({"name": "types", "layers": {"data": DATA, **layers}}))


PLAIN = net(a=fc("data"), b=fc("a"))
MIXED = net(a=fc("data"), b=fc("a", dtype="int8"))


def test_the_forward_pass_is_of_that_type_and_the_backward_pass_is_not() -> None:
    plain, mixed = (
        paleo.summarize(each, device="T4", cost_model="roofline") for each in (PLAIN, MIXED)
    )
    # One byte an element: 4 x 1000 in, 1000 x 1000 weights, 4 x 1000 out; at 320 GB/s that is
    # longer than 2 x 4 x 10^6 FLOPs at 130 TFLOP/s.
    assert mixed.layers[2].forward == pytest.approx(1_008_000 / 320e9)
    assert mixed.layers[1].forward == plain.layers[1].forward == pytest.approx(4_032_000 / 320e9)
    assert [each.backward for each in mixed.layers] == [each.backward for each in plain.layers]
    assert mixed.num_params == plain.num_params
    assert mixed.forward_flops == plain.forward_flops


def test_products_reach_the_peak_of_their_type() -> None:
    convolution = {
        "type": "Convolution", "parents": ["data"], "filter": [3, 3, 512, 512],
        "strides": [1, 1, 1, 1], "padding": "SAME", "activation_fn": None, "use_bias": False,
        "dtype": "int8",
    }  # fmt: skip
    images = {"type": "Input", "parents": [], "tensor": [64, 56, 56, 512]}
    text = {"name": "images", "layers": {"data": images, "conv": convolution}}
    found = paleo.summarize(paleo.loads(json.dumps(text)), device="T4", cost_model="roofline")
    assert found.layers[1].forward == pytest.approx(2 * 9 * 512 * 512 * 64 * 56 * 56 / 130e12)


@pytest.mark.parametrize("model", ["tiled", "roofline"])
def test_times_of_arrays_are_those_of_numbers(model: str) -> None:
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": model}
    batches = [1, 7, 64, 300]
    many = paleo.summarize(MIXED, np.array(batches), **settings)
    alone = [paleo.summarize(MIXED, batch, **settings).forward for batch in batches]
    assert np.asarray(many.forward).tolist() == alone


@pytest.mark.parametrize(
    ("device", "model", "note"),
    [
        ("K20X", "tiled", "device K20X has no peak for int8: layers of it (1) are priced in fp32"),
        (
            "T4",
            "paleo2017",
            "cost model paleo2017 does not know int8: layers of it (1) are priced in fp32",
        ),
    ],
)
def test_where_the_type_cannot_be_computed(device: str, model: str, note: str) -> None:
    settings: Any = {"device": device, "cost_model": model}
    mixed, plain = (paleo.summarize(each, **settings) for each in (MIXED, PLAIN))
    assert mixed.forward == plain.forward
    assert note in mixed.notes
    assert note in paleo.simulate(MIXED, network="ethernet", **settings).runs[0].notes
    assert not any("int8" in each for each in plain.notes)


def test_another_device_computes_what_one_cannot() -> None:
    here = paleo.scenario(MIXED, device="K20X", network="ethernet", cost_model="roofline")
    there = here.changed(device="T4")
    assert {node.dtype for node in here.graph().nodes} == {""}
    assert [node.dtype for node in there.graph().nodes] == ["", "", "int8"]


def test_equal_layers_of_two_types_are_not_alike() -> None:
    graph = paleo.build(net(a=fc("data"), b=fc("data", dtype="int8"), c=fc("data", dtype="int8")))
    assert [node.like for node in graph.nodes] == [0, 1, 2, 2]


def test_a_net_file_keeps_it() -> None:
    assert paleo.loads(dumps(MIXED)) == MIXED
    assert paleo.loads(dumps(PLAIN)).dtypes == frozenset()


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("int9", 'layer "b": key "dtype": expected an element type, got "int9" (did you mean'),
        ("mixed_fp16", 'layer "b": key "dtype": expected an element type, got "mixed_fp16"'),
        (8, 'layer "b": key "dtype": expected an element type, got 8'),
    ],
)
def test_what_is_no_element_type(dtype: Any, message: str) -> None:
    with pytest.raises(paleo.NetSpecError) as raised:
        net(b=fc("data", dtype=dtype))
    assert message in str(raised.value)
