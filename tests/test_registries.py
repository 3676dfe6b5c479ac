"""Registries: a snapshot of all names, and a contract for everything registered.

A new layer type, cost model, scheme, device, network or net appears here on arrival.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.cli.main import COMMANDS
from paleo.registry import Registry
from paleo.work import Operation

SNAPSHOT = {
    "layer types": """Convolution Deconvolution InnerProduct Activation Sigmoid Dropout LRN
        BatchNorm Scale Softmax Elementwise Pooling AvgPool UpSampling2D Input Concatenate
        Reshape Flatten""",
    "cost models": "paleo2017 roofline",
    "schemes": "OneToAll TreeAllReduce ButterflyAllReduce ButterflyMixing",
    "devices": "CPU_I7 GEFORCE_750_M GEFORCE_780_TI K20 K20X K40 K80 TITAN_X",
    "networks": "aws ethernet ethernet20 infiniband pcie2 pcie3",
    "nets": """alex_v2 alex_v2_1gpu alex_v2_2gpu alex_v2_4gpu alex_v2_8gpu inception_v3 nin overfeat
        vgg16""",
    "commands": "summary simulate nets devices networks",
}


def test_the_names_are_these() -> None:
    found = {
        "layer types": list(paleo.LAYERS),
        "cost models": list(paleo.COST_MODELS),
        "schemes": list(paleo.COLLECTIVES),
        "devices": paleo.device_names(),
        "networks": paleo.network_names(),
        "nets": paleo.net_names(),
        "commands": list(COMMANDS),
    }
    assert {kind: sorted(names) for kind, names in found.items()} == {
        kind: sorted(names.split()) for kind, names in SNAPSHOT.items()
    }


def test_a_registry_refuses_duplicates_and_suggests_near_names() -> None:
    registry: Registry[int] = Registry("thing")
    registry.add("Thing", 1)
    with pytest.raises(ValueError, match="there is a thing 'Thing' already"):
        registry.add("Thing", 2)
    assert dict(registry) == {"Thing": 1}
    assert "thing" not in registry
    with pytest.raises(paleo.UnknownNameError, match=r"'thin' \(did you mean 'Thing'"):
        registry["thin"]
    with pytest.raises(paleo.UnknownNameError, match=r"unknown thing '\?' \(there are: Thing\)"):
        registry["?"]


#: For each layer type, keys that fit an input of 2 x 6 x 6 x 4.
EXAMPLES: dict[str, dict[str, Any]] = {
    "Input": {"tensor": [2, 6, 6, 4]},
    "Convolution": {"filter": [3, 3, -1, 8], "strides": [1, 2, 2, 1], "padding": "SAME"},
    "Deconvolution": {
        "filter": [3, 3, 8, 4],
        "strides": [1, 2, 2, 1],
        "padding": "SAME",
        "output_shape": [-1, 12, 12, 8],
    },
    "Pooling": {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
    "AvgPool": {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": [1, 1]},
    "UpSampling2D": {"ksize": [1, 2, 2, 1]},
    "InnerProduct": {"num_outputs": 8},
    "Dropout": {"dropout_keep_prob": 0.5},
    "Concatenate": {},
    "Reshape": {"output_shape": [-1, 3, 12, -1]},
    "Flatten": {},
    "Elementwise": {},
    "Softmax": {},
    "Sigmoid": {},
    "Activation": {"function": "relu"},
    "BatchNorm": {},
    "Scale": {},
    "LRN": {},
}


@pytest.mark.parametrize("name", paleo.LAYERS)
def test_every_layer_type_keeps_the_contract(name: str) -> None:
    cls = paleo.LAYERS[name]
    assert cls.type_name == name
    assert (cls.__doc__ or "").strip()
    assert all(key.doc for key in cls.keys.values())
    layers = {"in": {"type": "Input", "parents": [], "tensor": [2, 6, 6, 4]}}
    layers["x"] = {"type": name, "parents": [] if name == "Input" else ["in"], **EXAMPLES[name]}
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    node = graph.nodes[-1]
    assert node.output[0] == 2
    assert isinstance(node.num_params, int)
    for direction in (
        paleo.Pass.FORWARD,
        paleo.Pass.INPUT_GRADIENT,
        paleo.Pass.WEIGHT_GRADIENT,
    ):
        for operation in graph.operations(node, direction):
            assert isinstance(operation, Operation)
            assert operation.name
            for count in (operation.flops, *operation.reads, *operation.writes):
                assert isinstance(count, int)  # exact
                assert count >= 0
            assert operation.magnitude >= operation.flops
    # What has parameters has a gradient for them, and the other way round.
    assert bool(graph.operations(node, paleo.Pass.WEIGHT_GRADIENT)) == (node.num_params > 0)
    assert isinstance(node.layer.shard(2), cls)


@pytest.mark.parametrize("name", paleo.COLLECTIVES)
def test_every_collective_keeps_the_contract(name: str) -> None:
    collective = paleo.COLLECTIVES[name]
    assert collective.name == name
    assert collective.summary
    before = 0.0
    for workers in range(1, 70):
        seconds = collective.seconds(1000, workers, 1e6)
        assert seconds >= before  # more workers never take less
        before = float(seconds)
        assert collective.seconds(2000, workers, 1e6) == pytest.approx(2 * seconds)
    assert collective.exact == (collective.transfers(64) > 1)


@pytest.mark.parametrize("name", paleo.net_names())
def test_every_net_keeps_the_contract(name: str) -> None:
    net = paleo.load(name)
    assert net.name == name
    assert net.source
    summary = paleo.summarize(net)
    assert summary.num_params > 0
    assert summary.layers[-1].output == (summary.batch_size, 1000)
    assert len(paleo.simulate(net, workers=[1, 2], cost_model="roofline").runs) == 2
