"""What is known of how sources measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation import cases

import paleo
from paleo.costs import ConvolutionChoice
from paleo.measure.validate import predict, read_measurements
from paleo.measure.validate.cases import NetGroup
from paleo.measure.validate.nets import net_case
from paleo.measure.validate.protocols import protocol_of


def test_letters_are_read_as_a_source_means_them() -> None:
    # NeuSight times torch.bmm of B x M x N by B x N x K: what it calls N is summed over.
    row = {"B": 3, "M": 10, "N": 20, "K": 30}
    neusight = protocol_of("neusight_ops")
    assert neusight.read("bmm", row) == {"B": 3, "M": 10, "K": 20, "N": 30}
    assert neusight.read("linear", row) == {"B": 3, "M": 10, "K": 20, "N": 30}
    assert neusight.read("softmax", {"rows": 4, "cols": 5}) == {"rows": 4, "cols": 5}
    assert protocol_of("deepbench").read("gemm", row) == row


def test_times_of_a_source_have_the_hosts_launch_in_them(tmp_path: Path) -> None:
    # NeuSight times each call by itself: 15 us go by before its kernel starts; LLMCompass times
    # from the host, 20 us. 1,000 elements of 4 bytes come and go in 80 ns.
    row = {"network": "op:gelu", "op_shape": '{"rows": 10, "cols": 100}'}
    sources = ("neusight_ops", "llmcompass", "another")
    found = cases(tmp_path, *({**row, "source_id": source} for source in sources))
    assert predict(found, "roofline") == pytest.approx([15e-6 + 80e-9, 20e-6 + 80e-9, 80e-9])


def test_microseconds_that_are_cut_off_are_half_of_one_more(tmp_path: Path) -> None:
    # Vidur's times are whole microseconds: what it calls 2 is 2.5 on average.
    row = {"network": "op:add", "op_shape": '{"rows": 1, "cols": 4096}', "value": 0.002}
    found = cases(tmp_path, *({**row, "source_id": source} for source in ("vidur_ops", "another")))
    assert found.measured == pytest.approx([2.5e-6, 2e-6])


def test_of_phi_2_vidur_timed_other_operators_under_the_same_names(tmp_path: Path) -> None:
    # 512 x 2,560 elements of 2 bytes are 2.62 MB. Phi-2's block has no gates: its gelu reads and
    # writes one tensor, where SwiGLU reads two; and it adds three tensors in two kernels, each of
    # which reads two and writes one.
    shape = '{"rows": 512, "cols": 2560}'
    names = ("op:silu_mul_act", "op:add", "op:rmsnorm")
    places = ("meta-llama/Llama-2-7b-hf", "microsoft/phi-2")
    found = cases(
        tmp_path,
        *(
            {
                "network": name, "op_shape": shape, "source_id": "vidur_ops", "precision": "fp16",
                "source": f"microsoft/vidur data/profiling/compute/a100/{place}/mlp.csv@1",
                "device": "A100_SXM_80GB",
            }
            for place in places
            for name in names
        ),
    )  # fmt: skip
    assert found.labels["operator"].tolist() == [
        "silu_mul_act", "add", "rmsnorm", "gelu", "add3", "layernorm",
    ]  # fmt: skip
    tensor = 2 * 512 * 2560 / 2.039e12
    expected = [3 * tensor, 3 * tensor, 2 * tensor, 2 * tensor, 6 * tensor, 2 * tensor]
    assert predict(found, "roofline") == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("place", "network", "precision", "direction", "net", "framework", "memory_format"),
    [
        (
            "PyTorch/Classification/ConvNets/resnet50v1.5/README.md@1 line 604", "resnet50-v1.5",
            "mixed(fp16)", "train", "resnet50-v1.5", "pytorch", "channels_last",
        ),
        (
            "PyTorch/Classification/ConvNets/resnet50v1.5/README.md@1 line 604", "resnet50-v1.5",
            "fp32", "train", "resnet50-v1.5", "pytorch", "",
        ),
        (
            "MxNet/Classification/RN50v1.5/README.md@1 line 665", "resnet50-v1.5", "mixed(fp16)",
            "train", "resnet50-v1.5", "tuned", "channels_last",
        ),
        (
            "MxNet/Classification/RN50v1.5/README.md@1 line 724", "resnet50-v1.5", "mixed(fp16)",
            "inference", "resnet50-v1.5", "mxnet", "channels_last",
        ),
        (
            "PyTorch/LanguageModeling/Transformer-XL/README.md@729963dd47e7 line 1735",
            "transformer-xl:base", "mixed(fp16)", "inference", "transformer-xl:base", "pytorch", "",
        ),
        (
            "PyTorch/LanguageModeling/Transformer-XL/README.md@729963dd47e7 line 1746",
            "transformer-xl:base", "mixed(fp16)", "inference", "transformer-xl:base", "torchscript",
            "",
        ),
        (
            "TensorFlow2/LanguageModeling/BERT/README.md@729963dd47e7 line 843",
            "bert-large fine-tune", "fp32", "inference", "bert-large fine-tune",
            "tensorflow_compiled", "",
        ),
        (
            "TensorFlow2/LanguageModeling/BERT/README.md@729963dd47e7 line 856",
            "bert-large fine-tune", "mixed(fp16)", "inference", "bert-base",
            "tensorflow_compiled", "channels_last",
        ),
    ],
)  # fmt: skip
def test_what_scripts_of_a_repository_ask_for(
    place: str, network: str, precision: str, direction: str, net: str, framework: str,
    memory_format: str, tmp_path: Path,
) -> None:  # fmt: skip
    file = tmp_path / "rows.csv"
    named = {"P": "PyTorch", "M": "MxNet", "T": "TensorFlow"}[place[0]]
    file.write_text(
        "source_id,source,quantity,value,network,device,batch_per_device,precision,framework,"
        "library_version,direction\n"
        f"nvidia_dle,NVIDIA/DeepLearningExamples {place},images_per_s,1,{network},"
        f"V100-SXM-16GB,8,{precision},{named},,{direction}\n"
    )
    (row,) = read_measurements(file)
    row, protocol = protocol_of(row.source_id).of(row)
    case, _ = net_case(row, protocol, paleo.find_device("V100_SXM2_16GB"))
    in_memory = case.software.images(4 if precision == "fp32" else 2) or case.memory_format
    assert (case.net, case.software.name, in_memory) == (net, framework, memory_format)


def test_channels_are_filled_up_where_a_source_does() -> None:
    # DeepBench's program does so for matrix units in halves: 3 channels are 8.
    row = {"N": 16, "C": 3, "K": 64}
    deepbench = protocol_of("deepbench")
    assert deepbench.read("conv2d", row, "fp16") == {"N": 16, "C": 8, "K": 64}
    assert deepbench.read("conv2d", row) == row
    assert deepbench.read("conv2d", {"C": 64}, "fp16") == {"C": 64}
    # Its convolutions of halves are summed up in halves, where lanes can.
    assert deepbench.convolutions == ConvolutionChoice(in_halves=True)
    assert protocol_of("lambda").convolutions == ConvolutionChoice()
    assert protocol_of("mine").read("conv2d", row, "fp16") == row


@pytest.mark.parametrize(
    ("source", "framework", "precision", "expected"),
    [
        ("u39kun", "PyTorch 0.3.0", "fp32", (True, None, "")),
        ("u39kun", "Tensorflow 1.4.0", "fp32", (False, None, "")),
        ("u39kun", "Caffe2 0.8.1", "fp32", (True, 64 * 2**20, "")),
        ("convnet_benchmarks", "Caffe(cuDNN build, Feb 2016)", "fp32", (False, 8 * 2**20, "")),
        ("convnet_benchmarks", "CuDNN[R4]-fp32 (Torch)", "fp32", (False, None, "")),
        ("mine", "PyTorch", "mixed(fp16)", (False, None, "")),
    ],
)
def test_what_a_source_leaves_out_is_of_its_programs(
    source: str, framework: str, precision: str, expected: tuple[bool, int | None, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    row = {"source_id": source, "framework": framework, "precision": precision}
    net = {"network": "resnet50-v1.5", "quantity": "step_ms", "batch_per_device": 16}
    found = cases(tmp_path, {**row, **net, "device": "V100_SXM2_16GB"})
    (part,) = found.parts
    assert isinstance(part, NetGroup)
    case = part.case
    assert (case.image_gradient, case.convolutions.workspace, case.memory_format) == expected


def test_a_mean_that_has_compilation_in_it_is_not_predicted(tmp_path: Path) -> None:
    # NVIDIA's README of BERT in TensorFlow 1: BERT-Base, a batch of 2 in halves: 8.68 ms beside
    # 376.75 sequences/s, which are 2 / 376.75 = 5.31 ms.
    row = {
        "source_id": "nvidia_dle", "network": "bert-large:base fine-tune", "seq_len": 128,
        "source": "NVIDIA/DeepLearningExamples TensorFlow/LanguageModeling/BERT/README.md@1",
        "device": "V100-SXM-16GB", "batch_per_device": 2, "precision": "mixed(fp16)",
        "framework": "TensorFlow", "direction": "inference",
    }  # fmt: skip
    mean = cases(tmp_path, {**row, "quantity": "latency_ms", "value": 8.68})
    assert len(mean) == 0
    assert "XLA's compilation" in mean.unpredicted[0].reason
    rate = cases(tmp_path, {**row, "quantity": "sequences_per_s", "value": 376.75})
    assert rate.measured == pytest.approx([2 / 376.75])
    second = {**row, "source": "TensorFlow2/LanguageModeling/BERT/README.md@1"}
    assert len(cases(tmp_path, {**second, "quantity": "latency_ms", "value": 8.68})) == 1


def test_images_are_copied_where_the_script_begins_with_that(tmp_path: Path) -> None:
    row = {
        "source_id": "nvidia_dle", "network": "resnet50-v1.5", "quantity": "images_per_s",
        "value": 1, "device": "V100-SXM-16GB", "batch_per_device": 8, "precision": "mixed(fp16)",
        "framework": "TensorFlow", "library_version": "NGC tensorflow-20.06",
    }  # fmt: skip
    place = "NVIDIA/DeepLearningExamples TensorFlow/Classification/ConvNets/{}/README.md@1 line 7"
    found = cases(
        tmp_path,
        {**row, "direction": "inference", "source": place.format("resnet50v1.5")},
        {**row, "direction": "inference", "source": "elsewhere"},
        {**row, "direction": "train", "source": place.format("resnet50v1.5")},
        {**row, "direction": "train", "source": "elsewhere"},
    )
    copied, plain, *steps = predict(found, "tiled")
    # 8 images of 224 x 224 x 3 elements, of 4 bytes though the net computes in halves, over
    # 126.0 Gbit/s: 16 lanes of 8 GT/s of which 128 bits in 130 are data.
    assert copied - plain == pytest.approx(8 * 224 * 224 * 3 * 4 / (126e9 / 8))
    # In training they have been staged before.
    assert steps[0] == steps[1]


def test_memories_are_fed_and_fetched_where_the_script_does_so(tmp_path: Path) -> None:
    row = {
        "source_id": "nvidia_dle", "network": "transformer-xl:base", "quantity": "latency_ms",
        "value": 1, "device": "V100-SXM-16GB", "batch_per_device": 8, "precision": "fp32",
        "framework": "TensorFlow", "seq_len": 64, "direction": "inference",
    }  # fmt: skip
    place = "NVIDIA/DeepLearningExamples TensorFlow/LanguageModeling/Transformer-XL/README.md@1"
    found = cases(tmp_path, {**row, "source": place}, {**row, "source": "elsewhere"})
    fed, plain = predict(found, "tiled")
    # 8 samples of 16 layers x 640 places x 512 numbers, there and back, and their 64 tokens.
    num_bytes = 8 * (2 * 16 * 640 * 512 + 64) * 4
    assert fed - plain == pytest.approx(num_bytes / (126e9 / 8))


def test_gpt_of_neusight_composes_its_gelu_of_eight_kernels(tmp_path: Path) -> None:
    # GPT-2 Large has 36 blocks with 4 x 1,280 features in between, at 8 x 1,024 tokens 168 MB. One
    # kernel reads and writes that; eight do so eight times, and two of them read one tensor more:
    # 16 tensors more in a block. The P4 moves 192 GB/s.
    row = {"network": "gpt2_large", "quantity": "forward_ms", "batch_per_device": 8}
    row |= {"seq_len": 1024, "precision": "fp32", "device": "P4", "direction": "inference"}
    sources = ("neusight_e2e", "another")
    ours, plain = predict(
        cases(tmp_path, *({**row, "source_id": source} for source in sources)), "roofline"
    )
    more = 36 * 16 * (4 * 8 * 1024 * 4 * 1280)
    assert ours - plain == pytest.approx(more / 192e9, rel=0.01)
