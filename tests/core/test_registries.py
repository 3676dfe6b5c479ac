"""Registries: names that stay, and a contract for everything registered.

Whatever is added is held to its contract on arrival.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from layer_examples import EXAMPLES, Example
from model_configurations import DIFFERENT

import paleo
from paleo.cli.main import COMMANDS
from paleo.cluster.collectives import COLLECTIVES, OF_2017, SERVERS
from paleo.cluster.frameworks import SOFTWARE
from paleo.core.operations import Operation, Pass
from paleo.core.registry import Registry
from paleo.costs.convolutions import ALGORITHMS
from paleo.costs.convolutions.libraries import LIBRARIES
from paleo.measure.executors import EXECUTORS
from paleo.net.generators import GENERATORS
from paleo.net.importers import IMPORTERS

#: Names that files and programs of users have.
NAMES = {
    "layer types": """Convolution Deconvolution InnerProduct Activation Sigmoid Dropout LRN
        BatchNorm Scale Softmax Elementwise Pooling AvgPool UpSampling2D Input Concatenate
        Reshape Flatten Parameter Embedding MatMul Einsum Attention RNN GRU LSTM PReLU
        LayerNorm RMSNorm GroupNorm InstanceNorm L2Norm GlobalPooling Resize Slice Transpose
        Expand Pad Rearrange Gather Reduce Loss Accuracy Unknown Experts TopK Dispatch Combine
        RotaryEmbedding Gated SelectiveScan StateSpaceDual GatedDelta
        LinearCrossEntropy SelectKeys""",
    "cost models": "paleo2017 roofline tiled",
    "schemes": "OneToAll TreeAllReduce ButterflyAllReduce ButterflyMixing",
    "devices": """A10 A100_PCIE_40GB A100_PCIE_80GB A100_SXM_40GB A100_SXM_80GB A30 A40 APPLE_M1
        APPLE_M1_7_CORE APPLE_M1_MAX APPLE_M1_PRO APPLE_M1_ULTRA APPLE_M2 APPLE_M2_MAX
        APPLE_M2_PRO APPLE_M2_ULTRA APPLE_M3 APPLE_M3_MAX APPLE_M3_ULTRA APPLE_M4 APPLE_M4_MAX
        APPLE_M4_PRO B200_SXM B300_SXM CPU_I7 EPYC_7742 EPYC_7763 EPYC_9654 GB200 GB300
        GEFORCE_750_M GEFORCE_780_TI GH200 GTX_1080 GTX_1080_TI H100_NVL H100_PCIE H100_SXM
        H200_SXM K20 K20X K40 K80 K80_DIE L4 L40 L40S M40 M60 MI100 MI210 MI250 MI250X MI250X_DIE
        MI250_DIE MI300X MI325X P100_PCIE P100_SXM2 P4 P40 QUADRO_RTX_6000 QUADRO_RTX_8000
        RTX_2080_TI RTX_3070 RTX_3080 RTX_3090 RTX_4000_ADA RTX_4090 RTX_6000_ADA RTX_A4000
        RTX_A5000 RTX_A6000 RTX_PRO_6000 RTX_PRO_6000_WS T4 TITAN_RTX TITAN_V TITAN_X TITAN_XP
        TITAN_X_PASCAL TPU_V2 TPU_V3 TPU_V4 TPU_V5E TPU_V5P V100S_PCIE V100_PCIE_16GB
        V100_PCIE_32GB V100_SXM2_16GB V100_SXM2_32GB XEON_8280 XEON_8380 XEON_8480_PLUS
        XEON_PHI_7250""",
    "networks": """aws efa_p3dn efa_p3dn_gpu efa_p4d efa_p4d_gpu efa_p5 efa_p5_gpu ethernet
        ethernet100 ethernet20 ethernet200 ethernet25 ethernet40 ethernet400 ethernet50
        ethernet800 ici_v3 ici_v4 ici_v5e ici_v5p infiniband infiniband_edr infiniband_fdr
        infiniband_hdr infiniband_ndr infiniband_qdr infiniband_xdr infinity_mi100 infinity_mi210
        infinity_mi250x infinity_mi300x nvlink1 nvlink2 nvlink3 nvlink3_bridge nvlink4 nvlink5
        omnipath pcie2 pcie3 pcie4 pcie5 pcie6""",
    "nets": """alex_v2 alex_v2_1gpu alex_v2_2gpu alex_v2_4gpu alex_v2_8gpu alexnet alexnet_mxnet
        alexnet_owt alexnet_tf bert_base bert_base_pretraining bert_base_pretraining_all
        bert_large bert_large_pretraining bert_large_pretraining_512 bert_large_pretraining_all
        dcgan_discriminator dcgan_generator
        densenet121 densenet161 densenet169 densenet201 densenet40 efficientnet_b0
        efficientnet_b4 googlenet googlenet_v1 gpt2 gpt2_large gpt2_medium gpt2_xl
        gpt3_2_7b gpt3_xl gpt3_xl_3072
        inception_bn inception_v3 inception_v3_2015 lenet5 lenet5_224 lstm_lm mnasnet0_5
        mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v1 mobilenet_v2 mobilenet_v3_large
        mobilenet_v3_small msft_speech nin nin_227 opt_1_3b overfeat overfeat_fast resnet101
        resnet101_v1_5 resnet101_v2 resnet152 resnet152_v1_5 resnet152_v2 resnet18
        resnet200_v2 resnet34 resnet50 resnet50_v1_5 resnet50_v2 resnext101_32x4d
        resnext101_32x8d resnext50_32x4d se_resnext101_32x4d shufflenet_v2_x0_5
        shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet squeezenet1_0
        squeezenet1_1 squeezenet_complex_bypass squeezenet_simple_bypass ssd300_resnet50
        ssd320_resnet50_fpn transformer_xl_base transformer_xl_base_eval transformer_xl_large
        transformer_xl_large_eval unet
        vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn wide_resnet101_2
        wide_resnet50_2""",
    "commands": """summary simulate compare metrics memory report serve profile fullpass
        calibrate validate convert nets generate devices prices networks clusters
        collectives""",
    "software": "Caffe MXNet TensorFlow",
    "executors": "torch tensorflow cudnn",
    "convolution algorithms": """implicit_gemm precomputed_gemm explicit_gemm gemm_1x1
        scattered_gemm phased_gemm direct winograd_2x2 winograd_4x4 winograd_5x5 fft tiled_fft""",
    "libraries": "cudnn2 cudnn3 cudnn4 cudnn5 cudnn6 cudnn7 cudnn8 cudnn9 onednn any cudnn",
    "importers": "caffe keras onnx pytorch tensorflow transformers",
    "generators": "squeezenet",
    "optimizers": "sgd momentum rmsprop adagrad adam adamw fused_adam lamb",
    "datasets": "imagenet cifar10 cifar100 mnist fashion_mnist svhn coco places365",
}


def test_no_name_that_users_have_is_gone() -> None:
    there = {
        "layer types": list(paleo.LAYERS),
        "cost models": list(paleo.COST_MODELS),
        "schemes": list(paleo.COLLECTIVES),
        "devices": paleo.device_names(),
        "networks": paleo.network_names(),
        "nets": paleo.net_names(),
        "commands": list(COMMANDS),
        "executors": list(EXECUTORS),
        "convolution algorithms": list(ALGORITHMS),
        "libraries": list(LIBRARIES),
        "importers": list(IMPORTERS),
        "generators": list(GENERATORS),
        "optimizers": list(paleo.OPTIMIZERS),
        "datasets": list(paleo.DATASETS),
        "software": list(SOFTWARE),
    }
    gone = {kind: set(names.split()) - set(there[kind]) for kind, names in NAMES.items()}
    assert set().union(*gone.values()) == set(), gone


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
        Pass.FORWARD,
        Pass.INPUT_GRADIENT,
        Pass.WEIGHT_GRADIENT,
    ):
        for operation in graph.operations(node, direction):
            assert isinstance(operation, Operation)
            assert operation.name
            for count in (operation.flops, *operation.reads, *operation.writes):
                assert isinstance(count, int)  # exact
                assert count >= 0
            assert operation.magnitude >= operation.flops
    # What has parameters has a gradient for them, and the other way round.
    assert bool(graph.operations(node, Pass.WEIGHT_GRADIENT)) == (node.num_params > 0)
    if "groups" not in example.keys:
        assert isinstance(node.layer.shard(2), cls)
    assert node.layer.shard(1).infer_shape(node.inputs) == node.layer.infer_shape(node.inputs)
    assert node.layer.following(node.inputs, node.inputs) == node.layer


#: Those that take longer for some workers than for more: their number is no power of two, which two
#: further steps make one of; or switches sum, and hand each of few workers a larger share.
QUICKER_WITH_MORE = ("halving_doubling", "recursive_doubling", "in_network")


@pytest.mark.parametrize("name", paleo.COLLECTIVES)
def test_every_collective_keeps_the_contract(name: str) -> None:
    collective = paleo.COLLECTIVES[name]
    assert collective.name == name
    assert collective.summary
    before = 0.0
    for workers in range(1, 70):
        seconds = collective.seconds(1000, workers, 1e6)
        assert seconds >= before or name in QUICKER_WITH_MORE  # else more never take less
        members = workers + (name == SERVERS and workers > 1)  # whose host is one more
        assert seconds <= max(2 * (members - 1), 1) * 1.001e-3  # nor more than one by one
        before = float(seconds)
        assert collective.seconds(2000, workers, 1e6) == pytest.approx(2 * seconds)
    assert collective.exact == (collective.transfers(64) > 1)


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("name", DIFFERENT)
def test_every_net_keeps_the_contract(name: str) -> None:
    net = paleo.load(name)
    assert net.name == name
    assert net.source
    summary = paleo.summarize(net)
    assert summary.num_params > 0
    # Whatever is computed from samples follows the batch; what is made of parameters alone, such
    # as the embeddings of positions, is the same for all.
    layers = paleo.summarize(net, 3).layers
    assert {layer.output[0] for layer in layers} - {1} == {3}
    assert layers[-1].output[0] == 3
    (run,) = paleo.simulate(net, workers=[1, 2], cost_model="roofline").runs
    assert [step.workers for step in run.rows] == [1, 2]


REGISTRIES = {
    "paleo.net.layers": "LAYERS",
    "paleo.costs": "COST_MODELS",
    "paleo.cluster.collectives": "COLLECTIVES",
    "paleo.step.parallelism": "PARALLELISMS",
}


@pytest.mark.parametrize(("package", "name"), REGISTRIES.items())
def test_a_package_offers_what_its_modules_register(package: str, name: str) -> None:
    """In a process of its own: here others may have asked for everything already."""
    program = (
        f"import importlib, pkgutil, {package} as package\n"
        f"registry = package.{name}\n"
        "for one in registry.built_in: registry[one]\n"
        "assert registry.built_in == tuple(registry), tuple(registry)\n"
        "for module in pkgutil.iter_modules(package.__path__):\n"
        "    importlib.import_module(f'{package.__name__}.{module.name}')\n"
        "assert set(registry._things) == set(registry.built_in), registry._things.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_shows_first_what_sends_most() -> None:
    sent = [COLLECTIVES[name].transfers(64) for name in COLLECTIVES.built_in]
    assert sent == sorted(sent, reverse=True)
    of_2017 = [name for name in COLLECTIVES.built_in if COLLECTIVES[name].is_of_2017]
    assert tuple(of_2017) == OF_2017


def test_what_is_offered_is_registered_once_by_its_own_module() -> None:
    registry: Registry[str] = Registry("word")
    registry.discover("json", {"tool": "tool", "decoder": "decoder"}, others="scanner encoder")
    assert list(registry) == ["tool", "decoder"]
    assert "tool" in registry
    with pytest.raises(paleo.UnknownNameError):
        registry["tool"]  # json.tool registers nothing
    registry.add("decoder", "that of json, which is imported already")
    with pytest.raises(ValueError, match="there is a word 'decoder' already"):
        registry.add("decoder", "another")
