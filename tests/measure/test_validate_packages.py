"""Measured rows of nets that an installed package makes, by stand-ins for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validation import call, cases, device_file, reasons, write

from paleo.measure.validate import predict
from paleo.measure.validate.names import _of_package
from paleo.measure.validate.spellings import (
    as_seen,
    device_of,
    is_compiled,
    memory_format_of,
)

#: One convolution of 3 x 3 from 3 to 1,000 channels: 27,000 weights, 1,000 biases.
TIMM = """
from torch import nn

def list_models():
    return ["wide"]

def is_model(name):
    return name in ("wide", "once_wide")

def create_model(name):
    net = nn.Sequential(nn.Conv2d(3, 1000, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.pretrained_cfg = {"input_size": (3, 8, 8)}
    return net
"""
ROW: dict[str, Any] = {"network": "timm:wide", "quantity": "forward_ms", "batch_per_device": 4}


@pytest.fixture
def timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a small stand-in for timm installed."""
    pytest.importorskip("torch", reason="needs PyTorch")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "timm.py").write_text(TIMM)
    for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setenv("PALEO_CACHE", "")
    _of_package.cache_clear()
    yield
    sys.modules.pop("timm", None)
    _of_package.cache_clear()


@pytest.mark.usefixtures("timm")
def test_a_package_makes_the_net_for_images_of_the_size_of_the_row(tmp_path: Path) -> None:
    sizes: tuple[dict[str, Any], ...] = (
        {},
        {"op_shape": '{"image": 8, "params_m": 0.03}'},
        {"op_shape": '{"image": 80, "params_m": 0.028}'},
        {"op_shape": '{"image": 80}', "network": "timm:once_wide"},
    )
    found = cases(tmp_path, *(ROW | each for each in sizes))
    assert reasons(found) == {}
    own, small, large, older = predict(found, "roofline").tolist()
    assert own == small
    assert large == older
    # The convolution and the pooling are of a hundred times as many pixels; its weights stay.
    assert 50 * small < large < 100 * small


@pytest.mark.usefixtures("timm")
def test_another_net_of_that_name_is_not_predicted(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        *(ROW | {"op_shape": f'{{"params_m": {count}}}'} for count in ("0.028", "0.03", "0.029")),
        ROW | {"network": "timm:wider"},
        ROW,
    )
    assert len(found) == 3
    said = sorted(reasons(found))
    assert said[0] == "timm as installed builds another net by this name, of other parameters"
    assert "timm has no net 'wider'" in said[1]
    (each,) = [each for each in found.unpredicted if each.reason == said[0]]
    assert each.ids == ("mine:4",)


def test_without_the_package_there_is_one_reason_for_all_of_its_nets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "timm" else real(name, *a)
    )
    _of_package.cache_clear()
    found = cases(tmp_path, *(ROW | {"network": f"timm:absent_{each}"} for each in "ab"))
    _of_package.cache_clear()
    ((reason, count),) = reasons(found).items()
    assert reason.startswith("nets of timm need timm")
    assert reason.endswith('pip install "paleo[timm]"')
    assert count == 2


def test_a_predefined_net_takes_images_of_its_own_size(tmp_path: Path) -> None:
    row = ROW | {"network": "lenet5"}
    found = cases(tmp_path, *(row | {"op_shape": f'{{"image": {size}}}'} for size in (28, 224)))
    assert len(found) == 1
    assert reasons(found) == {"net 'lenet5' takes no images of 224 x 224": 1}


def test_memory_format_and_compilation_are_labels_of_a_case(tmp_path: Path) -> None:
    row = ROW | {"network": "lenet5"}
    found = cases(
        tmp_path,
        row | {"memory_format": "channels_last", "framework": "PyTorch 2.4 torch.compile"},
        row | {"notes": "contiguous (NCHW); mean of 50 steps", "framework": "PyTorch 2.4"},
        row,
        {"network": "op:gemm", "op_shape": '{"M": 1, "N": 1, "K": 1}'},
    )
    assert found.labels["memory_format"].tolist() == ["channels_last", "contiguous", "", ""]
    assert found.labels["compiled"].tolist() == ["yes", "no", "no", ""]
    assert len(found.where(compiled="yes", memory_format="channels_last")) == 1
    assert np.unique([str(part.index) for part in found.parts]).size == 4


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("channels_last; mean", "channels_last"),
        ("NHWC", "channels_last"),
        ("channels last", "channels_last"),
        ("contiguous (NCHW)", "contiguous"),
        ("channels first", "contiguous"),
        ("NCHW to NHWC", ""),
        ("noncontiguous", ""),
        ("", ""),
    ],
)
def test_memory_formats_are_words(text: str, found: str) -> None:
    assert memory_format_of(text) == found
    assert memory_format_of("", text) == found
    assert memory_format_of("NCHW", text) == "contiguous"


def test_compilation_is_a_word_of_the_framework() -> None:
    assert is_compiled("PyTorch 2.4 torch.compile")
    assert is_compiled("PyTorch 2.1 (inductor)")
    assert not is_compiled("PyTorch 2.4")
    assert is_compiled("TensorFlow 1.15 + XLA")
    assert is_compiled("TensorFlow", "inference; +XLA")
    assert is_compiled("TensorFlow", "batch size=64 & with xla; xla")
    assert is_compiled("TensorFlow", "synthetic data & withxla; xla")
    assert not is_compiled("TensorFlow", "batch size=64 & without xla")
    assert is_compiled("MindSpore", "batch size=32 & with Graph Kernel Fusion")
    assert not is_compiled("MindSpore", "batch size=32 & without Graph Kernel Fusion")
    assert not is_compiled("TensorFlow", "FP32 & W/O XLA, compiled from source")


def test_groups_may_be_by_memory_format(tmp_path: Path) -> None:
    device = device_file(tmp_path)
    rows = [
        {"quantity": "forward_ms", "value": 1, "network": "lenet5", "device": device,
         "batch_per_device": 1, "memory_format": each}
        for each in ("contiguous", "channels_last")
    ]  # fmt: skip
    result = call(write(tmp_path, rows), "--by=memory_format,compiled", "--format=csv")
    assert "channels_last,no" in result.stdout
    assert "contiguous,no" in result.stdout


@pytest.mark.parametrize(
    ("text", "framework", "name"),
    [
        ("NVIDIA V100-SXM2-16GB (300W)", "", "V100_SXM2_16GB"),
        ("Core i7-12700H", "", "CORE_I7_12700H"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "", "RTX_PRO_6000_MAX_Q"),
        ("MI250", "PyTorch 2.1", "MI250_DIE"),
        ("MI250X", "PyTorch 2.1", "MI250X_DIE"),
        ("MI250", "", "MI250"),
    ],
)
def test_devices_go_by_what_sources_and_frameworks_call_them(
    text: str, framework: str, name: str
) -> None:
    assert as_seen(device_of(text), framework).name == name


def test_rows_of_mlperf_are_of_a_tuned_stack_in_mixed_precision(tmp_path: Path) -> None:
    row = ROW | {"network": "lenet5", "device": "A100_SXM_80GB"}
    tuned = row | {"source_id": "mlperf_training_v3.1"}
    found = cases(tmp_path, row, tuned, tuned | {"precision": "bf16"})
    assert found.labels["dtype"].tolist() == ["fp32", "mixed_fp16", "mixed_bf16"]
    assert found.labels["stack"].tolist() == ["", "tuned", "tuned"]


def test_prefill_and_decode_are_attention_in_its_letters(tmp_path: Path) -> None:
    heads = {"batch": 2, "heads": 4, "head_dim": 64}
    shapes = (
        ("attention_prefill", heads | {"queries": 128}),
        ("attention", heads | {"queries": 128, "causal": 1}),
        ("attention_decode", heads | {"keys": 128}),
        ("attention", heads | {"queries": 1, "keys": 128, "causal": 0}),
    )
    found = cases(
        tmp_path,
        *({"network": f"op:{name}", "op_shape": json.dumps(shape)} for name, shape in shapes),
    )
    assert reasons(found) == {}
    prefill, causal, decode, one = predict(found, "roofline").tolist()
    assert prefill == causal
    assert decode == one
    assert decode < prefill


def test_rows_of_an_unknown_quantity_leave_the_others(tmp_path: Path) -> None:
    found = cases(tmp_path, ROW | {"network": "lenet5"}, ROW | {"quantity": "foward_ms"})
    assert len(found) == 1
    ((reason, count),) = reasons(found).items()
    assert reason.startswith("unknown quantity 'foward_ms' (did you mean")
    assert count == 1
