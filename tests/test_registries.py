"""Registries: a snapshot of all names, and a contract for everything registered.

A new layer type, cost model, scheme, device, network or net appears here on arrival.
"""

from __future__ import annotations

import pytest
from layer_examples import EXAMPLES, Example

import paleo
from paleo.cli.main import COMMANDS
from paleo.generators import GENERATORS
from paleo.importers import IMPORTERS
from paleo.registry import Registry
from paleo.work import Operation

SNAPSHOT = {
    "layer types": """Convolution Deconvolution InnerProduct Activation Sigmoid Dropout LRN
        BatchNorm Scale Softmax Elementwise Pooling AvgPool UpSampling2D Input Concatenate
        Reshape Flatten Parameter Embedding MatMul Einsum Attention RNN GRU LSTM PReLU
        LayerNorm RMSNorm GroupNorm InstanceNorm L2Norm GlobalPooling Resize Slice Transpose
        Expand Pad Rearrange Gather Reduce Loss Accuracy Unknown""",
    "cost models": "paleo2017 roofline",
    "schemes": "OneToAll TreeAllReduce ButterflyAllReduce ButterflyMixing",
    "devices": "CPU_I7 GEFORCE_750_M GEFORCE_780_TI K20 K20X K40 K80 TITAN_X",
    "networks": "aws ethernet ethernet20 infiniband pcie2 pcie3",
    "nets": """alex_v2 alex_v2_1gpu alex_v2_2gpu alex_v2_4gpu alex_v2_8gpu alexnet
        dcgan_discriminator dcgan_generator densenet121 densenet40 googlenet inception_v3 lenet5
        lenet5_224 lstm_lm mobilenet_v1 mobilenet_v2 msft_speech nin nin_227 overfeat resnet101
        resnet152 resnet18 resnet34 resnet50 squeezenet squeezenet_complex_bypass
        squeezenet_simple_bypass unet vgg11 vgg13 vgg16 vgg19""",
    "commands": "summary simulate compare metrics memory convert nets generate devices networks",
    "importers": "caffe onnx pytorch",
    "generators": "squeezenet",
    "optimizers": "sgd momentum rmsprop adagrad adam adamw",
    "datasets": "imagenet cifar10 cifar100 mnist fashion_mnist svhn coco places365",
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
        "importers": list(IMPORTERS),
        "generators": list(GENERATORS),
        "optimizers": list(paleo.OPTIMIZERS),
        "datasets": list(paleo.DATASETS),
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


def test_every_layer_type_has_examples_of_all_its_keys() -> None:
    assert {example.kind for example in EXAMPLES} == set(paleo.LAYERS)
    for name, cls in paleo.LAYERS.items():
        given = [example.keys for example in EXAMPLES if example.kind == name]
        for key, declared in cls.keys.items():
            others = [keys[key] for keys in given if key in keys]
            assert any(value != declared.written_default for value in others), (name, key)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_layer_type_keeps_the_contract(example: Example) -> None:
    cls = paleo.LAYERS[example.kind]
    assert cls.type_name == example.kind
    assert (cls.__doc__ or "").strip()
    assert all(key.doc for key in cls.keys.values())
    graph = paleo.build(example.net())
    node = next(node for node in graph.nodes if node.name == "x")
    assert node.output[0] == (1 if example.kind == "Parameter" else 2)
    assert 2 <= len(node.output) <= 8
    assert isinstance(node.num_params, int)
    assert node.num_params >= 0
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
    if "groups" not in example.keys:
        assert isinstance(node.layer.shard(2), cls)
    assert node.layer.shard(1).infer_shape(node.inputs) == node.layer.infer_shape(node.inputs)
    assert node.layer.following(node.inputs, node.inputs) == node.layer


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
    # Whatever is computed from samples follows the batch.
    assert {layer.output[0] for layer in paleo.summarize(net, 3).layers} == {3}
    assert len(paleo.simulate(net, workers=[1, 2], cost_model="roofline").runs) == 2
