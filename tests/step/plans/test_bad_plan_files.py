"""Plan files that contradict themselves, or are none: a line for each mistake."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paleo.core.errors import PaleoError, SettingError
from paleo.step.plans.merge import Planned, planned
from paleo.step.scenario import scenario

Read = Callable[..., Planned]
Saying = Callable[..., list[str]]

#: A batch of 64 is 2 x 4 x 8.
DEEPSPEED: dict[str, Any] = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
}
RECIPE = "trainer:\n  num_nodes: 4\n  devices: 8\n"


def test_contradictions_are_said_all_at_once(said: Saying) -> None:
    line = (
        "torchrun --nproc_per_node 8 --nnodes 3 pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 4 --num-layers 30 --bf16 --fp16 "
        "--num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 3 --global-batch-size 64"
    )
    assert said(line) == [
        (
            "plan: --num-layers-per-virtual-pipeline-stage: 30 layers (--num-layers) do not divide "
            "by 4 x pp 4"
        ),
        "plan: --fp16 and --bf16: a net is trained in one type",
        (
            "plan: --nproc_per_node: 24 devices do not divide by tp 4 "
            "(--tensor-model-parallel-size) x pp 4 (--pipeline-model-parallel-size)"
        ),
        "plan: --global-batch-size: 64 does not divide by --micro-batch-size 3 = 3",
    ]


def test_batches_that_do_not_multiply_up(said: Saying) -> None:
    assert said(DEEPSPEED, workers=16) == [
        (
            "plan: train_batch_size: 64 is not train_micro_batch_size_per_gpu 2 x "
            "gradient_accumulation_steps 4 x dp 16 = 128"
        )
    ]
    assert said({**DEEPSPEED, "train_batch_size": 60}) == [
        (
            "plan: train_batch_size: 60 is not train_micro_batch_size_per_gpu 2 x "
            "gradient_accumulation_steps 4 = 8"
        )
    ]


def test_a_key_that_is_said_twice(said: Saying) -> None:
    text = "[training]\nbatch_size = 2\nlocal_batch_size = 4\nseq_len = 128\n"
    assert said(text) == ["plan: training.batch_size says 2, but training.local_batch_size 4"]


EXPECTED = (
    "expected arguments of Megatron-LM (a shell line or script, or YAML), a configuration of "
    "DeepSpeed (JSON) or torchtitan (TOML), or a recipe of NeMo (YAML)"
)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", ["plan: the plan file is empty"]),
        (" \n\t", ["plan: the plan file is empty"]),
        (b"\x89PNG\xff\xfe", ["plan: not a plan file: not text in UTF-8"]),
        (b"a\0b", ["plan: not a plan file: it has bytes that no text has"]),
        ("a" * (1 << 20) + "b", ["plan: more than 1 MiB: too large to be read"]),
        ("some words", [f"plan: not a plan file: {EXPECTED}"]),
        ({"name": "a net", "layers": {}}, [f"plan: not a plan file: {EXPECTED}"]),
        ("[tool.ruff]\nline-length = 100\n", [f"plan: not a plan file: {EXPECTED}"]),
        ('{"zero_optimization":' * 20_000, ["plan: not JSON: nested too deeply"]),
        ("[training]\nseq_len = \n", ["plan: not TOML: Invalid value (at line 2, column 11)"]),
        (
            "--micro-batch-size 1 'open",
            ["plan: not a shell script: a quotation mark is not closed"],
        ),
        (
            {"train_batch_size": True, "zero_optimization": {"stage": 5}, "bf16": {"enabled": 3}},
            [
                "plan: train_batch_size: expected a whole number from 1, got true",
                "plan: zero_optimization.stage: expected 0 to 3, got 5",
                "plan: bf16.enabled: expected true or false, got 3",
            ],
        ),
        (
            "[parallelism]\ntensor_parallel_degree = 'eight'\npipeline_parallel_degree = 0\n",
            [
                f"plan: parallelism.{key}: expected a whole number from 1, got {value}"
                for key, value in (
                    ("tensor_parallel_degree", '"eight"'),
                    ("pipeline_parallel_degree", "0"),
                )
            ],
        ),
    ],
)
def test_bad_files_are_a_line_for_each_mistake(
    said: Saying, content: Any, lines: list[str]
) -> None:
    assert said(content) == lines


#: Each list has ten times the one before: ten million values in all.
_BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 8))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- 1\n- trainer: 2\n", "plan: not a plan file: expected keys with values, got no mapping"),
        ("name: a\n", f"plan: not a plan file: {EXPECTED}"),
        (f"a0: &a0 1\n{_BOMB}micro_batch_size: *a7\n", "plan: more than 10,000 values"),
        ("trainer: &a\n  x: *a\n", "plan: not YAML: nested too deeply"),
        ("micro_batch_size: 1\nx: !!python/name:os.system\n", "plan: not YAML: could not"),
        ("micro_batch_size: [1\n", "plan: not YAML: "),
    ],
)  # fmt: skip
def test_bad_yaml_is_one_line(said: Saying, text: str, line: str) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    (found,) = said(text)
    assert found.startswith(line)


def test_yaml_without_a_library(said: Saying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert said(RECIPE) == [
        'plan: reading YAML needs PyYAML; install it with: pip install "paleo[yaml]"'
    ]


@pytest.mark.parametrize("path", ["", 3, ["a"]])
def test_a_path_is_a_text(path: Any) -> None:
    with pytest.raises(SettingError, match="plan: expected the path of a file, got"):
        planned(path, {})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="a directory, not a plan file"):
        planned(tmp_path, {})
    with pytest.raises(SettingError, match="No such file"):
        planned(tmp_path / "none", {})


def test_mistakes_of_a_file_and_of_settings_come_together(read: Read) -> None:
    with pytest.raises(SettingError):
        read({"zero_optimization": {"stage": 5}})
    with pytest.raises(PaleoError) as caught:
        scenario("gpt2", plan="plan", dtype="fp17")
    assert [str(each) for each in caught.value.mistakes] == [
        "plan: zero_optimization.stage: expected 0 to 3, got 5",
        (
            "unknown dtype 'fp17' (did you mean 'fp16'?); there are: fp64, fp32, tf32, fp16, bf16, "
            "fp8, int8, mixed_fp16, mixed_bf16, mixed_fp8_delayed, mixed_fp8_tensorwise, "
            "mixed_fp8_blockwise, mixed_mxfp8"
        ),
    ]
