"""What is known of how sources measured reaches their cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation import cases

from paleo.measure.validate.cases import NetGroup
from paleo.measure.validate.names import net_of
from paleo.measure.validate.protocols import protocol_of
from paleo.net.graph import build


def test_channels_are_filled_up_where_a_source_does() -> None:
    # DeepBench's program does so for matrix units in halves: 3 channels are 8.
    row = {"N": 16, "C": 3, "K": 64}
    deepbench = protocol_of("deepbench")
    assert deepbench.read("conv2d", row, "fp16") == {"N": 16, "C": 8, "K": 64}
    assert deepbench.read("conv2d", row) == row
    assert deepbench.read("conv2d", {"C": 64}, "fp16") == {"C": 64}
    assert protocol_of("mine").read("conv2d", row, "fp16") == row


@pytest.mark.parametrize(
    ("source", "framework", "precision", "expected"),
    [
        ("u39kun", "PyTorch 0.3.0", "fp32", (True, None, "")),
        ("u39kun", "Tensorflow 1.4.0", "fp32", (False, None, "")),
        ("u39kun", "Caffe2 0.8.1", "fp32", (True, 64 * 2**20, "")),
        ("convnet_benchmarks", "Caffe(cuDNN build, Feb 2016)", "fp32", (False, 8 * 2**20, "")),
        ("convnet_benchmarks", "CuDNN[R4]-fp32 (Torch)", "fp32", (False, None, "")),
        ("nvidia_dle", "PyTorch", "mixed(fp16)", (False, None, "channels_last")),
        ("nvidia_dle", "PyTorch", "fp32", (False, None, "")),
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


def test_rows_are_of_the_net_that_their_table_names(tmp_path: Path) -> None:
    place = (
        "NVIDIA/DeepLearningExamples TensorFlow2/LanguageModeling/BERT/README.md@729963dd47e7 line "
    )
    row = {"source_id": "nvidia_dle", "framework": "TensorFlow2", "device": "V100_SXM2_16GB"}
    net = {"network": "bert-large fine-tune", "quantity": "latency_ms", "direction": "inference"}
    sizes = {"batch_per_device": 1, "seq_len": 128}
    found = cases(tmp_path, *({**row, **net, **sizes, "source": f"{place}{n}"} for n in (843, 856)))
    assert found.labels["network"].tolist() == ["bert-large fine-tune", "bert-base"]
    large, base = (
        build(net_of(part.case.net, "nvidia_dle")).num_params
        for part in found.parts
        if isinstance(part, NetGroup)
    )
    # 335 and 109 million parameters.
    assert 2.9 < large / base < 3.2
