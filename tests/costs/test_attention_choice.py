"""Whose kernels compute attention, asked for by name: what it changes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest

import paleo
from paleo.cli import cli
from paleo.core.errors import SettingError
from paleo.core.operations import Attention, Pass
from paleo.core.quantity import is_array
from paleo.costs import COST_MODELS, Target
from paleo.costs.attention import ATTENTION_FAMILIES
from paleo.costs.tiled.attention_kernels import ATTENTION_KERNELS


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments)
    assert result.exit_code == status, result.output
    return result


TILED = COST_MODELS["tiled"]
B200 = paleo.find_device("B200_SXM")
ON: dict[str, Any] = {"device": "B200_SXM", "dtype": "bf16"}


@pytest.fixture
def net(tmp_path: Path) -> str:
    """Return a file of a net that is attention alone: 2 samples, 8 heads, 8,192 x 128."""
    data = {"type": "Input", "parents": [], "tensor": [2, 8, 8192, 128]}
    attention = {"type": "Attention", "parents": ["q", "k", "v"], "causal": True}
    path = tmp_path / "one.json"
    layers = {"q": data, "k": data, "v": data, "attention": attention}
    path.write_text(json.dumps({"name": "one", "layers": layers}))
    return str(path)


def attended(queries: Any = 1024, direction: Pass = Pass.FORWARD, **more: Any) -> Attention:
    keys = 8192 if is_array(queries) or queries < 8192 else queries
    return Attention(direction, 16, 1, queries, keys, 128, 128, 2, True, **more)


def seconds(operation: Attention, family: str | None = None) -> Any:
    return TILED.price(operation, Target(B200, "bf16", attention=family)).total


def test_every_family_has_kernels_whose_speed_is_known() -> None:
    for family in ATTENTION_FAMILIES.values():
        assert family.kernels
        for architecture, kernels in family.kernels.items():
            known = [ATTENTION_KERNELS[name] for name in kernels if name]
            assert known or family.slower != (1.0, 1.0)
            assert all(each.runs_on(architecture) for each in known)


def test_prompts_and_queries_take_the_familys_kernel() -> None:
    assert seconds(attended(), "triton") == seconds(attended(kernel="triton_extend_sm90"))
    assert seconds(attended(1), "triton") == seconds(attended(1, kernel="triton_decode"))
    assert seconds(attended(), "trtllm") == seconds(attended(kernel="trtllm_gen_context"))
    # FlashAttention-4's kernel for single queries was not measured.
    assert seconds(attended(), "fa4") == seconds(attended(kernel="fa4_prefill"))
    assert seconds(attended(1), "fa4") == seconds(attended(1))
    # A kernel that the operation names itself stands.
    named = attended(kernel="flashinfer_prefill")
    assert seconds(named, "triton") == seconds(named)
    # Priced together as one by one, prompts and single queries.
    target = Target(B200, "bf16", attention="triton")
    several = [attended(), attended(1), attended(512), attended(1)]
    together = TILED.price_all(several, target)
    expected = [TILED.price(each, target).total for each in several]
    assert [float(together.at([place]).time.total) for place in range(4)] == expected
    lengths = attended(np.array([512, 1024]))
    assert seconds(lengths, "triton").tolist() == [
        seconds(attended(512), "triton"), seconds(attended(), "triton"),
    ]  # fmt: skip


def test_what_no_kernel_of_a_library_computes_is_as_before() -> None:
    for operation in (
        attended(mask=2 * 1024 * 1024),
        attended(direction=Pass.INPUT_GRADIENT),
        Attention(Pass.FORWARD, 16, 1, 1024, 1024, 128, 128, 4, True),
    ):
        assert seconds(operation, "triton") == seconds(operation)


def test_every_command_and_function_takes_the_choice(net: str) -> None:
    summary = paleo.summarize(net, attention="triton", **ON)
    assert summary.forward == pytest.approx(seconds(attended(8192), "triton"))
    # Triton's tiles on Blackwell take four times as long as TensorRT-LLM's, and more.
    quick = paleo.summarize(net, attention="trtllm", **ON)
    assert summary.forward > 4 * quick.forward  # type: ignore[operator]
    assert summary.backward == quick.backward
    graph = paleo.build(paleo.load(net), 2, "bf16")
    forward = paleo.estimate_forward(graph, "B200_SXM", attention="triton")
    assert forward.upper == summary.forward
    (run,) = paleo.simulate(net, workers=1, batch_size=2, attention="triton", **ON).runs
    assert run.rows[0]["forward"] == summary.forward
    (metrics,) = paleo.metrics(net, batch_size=2, attention="triton", **ON)
    assert metrics.inference == summary.forward
    options = ("--device=B200_SXM", "--dtype=bf16", "--attention=triton")
    for command in (("simulate", "--num_workers=1"), ("metrics",), ("summary",)):
        said = call(command[0], net, *command[1:], *options, "--format=json").stdout
        (found,) = json.loads(said).values()
        assert found[0]["attention"] == "triton"


def test_the_title_and_the_explanation_name_it(net: str) -> None:
    options = ("--device=B200_SXM", "--dtype=bf16", "--attention=triton", "--explain=attention")
    text = " ".join(call("summary", net, *options, "--wide").stdout.split())
    assert "cost model tiled, ppp_comp 1, attention by triton" in text
    assert "fused attention, SGLang's Triton kernel, prompts, on Hopper and Blackwell" in text
    assert "share of a product's speed 0.119" in text


def test_a_net_without_fused_attention_is_told_so(net: str) -> None:
    note = "no attention is one kernel: triton has no effect"
    options = ("--device=B200_SXM", "--dtype=bf16", "--attention=triton", "--wide")
    assert note in call("summary", "nin", *options).stdout
    assert note not in call("summary", net, *options).stdout
    # PyTorch before 2.0 has products and a softmax.
    assert note in call("summary", net, *options, "--framework=pytorch1").stdout


KIND = "family of attention kernels"
FAMILIES = "fa1, fa1_triton, fa2, fa3, fa4, flashinfer, triton, triton_unified, trtllm"
L40S = ("--device=L40S", "--dtype=bf16")
NOT_FA3 = "attention: fa3 is for devices of Ampere, Hopper, not for"
ON_ADA = "fa2, flashinfer, triton, triton_unified, trtllm"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fa5", L40S, f"unknown {KIND} 'fa5' (did you mean 'fa4'?); there are: {FAMILIES}"),
        ("cudnn", L40S, f"unknown {KIND} 'cudnn' (there are: {FAMILIES})"),
        (
            "fa3", L40S,
            f"{NOT_FA3} L40S (Ada), which has {ON_ADA}",
        ),
        (
            "fa3", ("--device=TITAN_X",),
            f"{NOT_FA3} TITAN_X (Maxwell), of which no kernel is known",
        ),
        (
            "fa2", ("--device=L40S",),
            "attention: fa2 computes in fp16 and bf16, not in fp32",
        ),
        (
            "fa2", (*L40S, "--cost_model=roofline"),
            "attention: cost model roofline knows no kernels; tiled does",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(name: str, options: tuple[str, ...], message: str) -> None:
    result = call("simulate", "nin", f"--attention={name}", *options, status=1)
    assert (result.stdout, result.stderr) == ("", f"paleo: {message}\n")


@pytest.mark.parametrize(("family", "forward", "backward"), [("fa1", 2, 2), ("fa1_triton", 1.4, 2)])
def test_flash_attention_before_2_takes_as_much_longer_as_its_paper_says(
    family: str, forward: float, backward: float
) -> None:
    """Where products take all of the time: arXiv:2307.08691, section 4.1."""
    a100 = paleo.find_device("A100_SXM_80GB")
    for direction, times in ((Pass.FORWARD, forward), (Pass.INPUT_GRADIENT, backward)):
        operation = attended(16384, direction)
        first, second = (
            TILED.price(operation, Target(a100, "bf16", attention=name)).total
            for name in (None, family)
        )
        assert second / first == pytest.approx(times, rel=0.02)


def test_flash_attention_before_2_is_for_ampere_alone() -> None:
    with pytest.raises(SettingError, match="attention: fa1 is for devices of Ampere, not for B200"):
        paleo.scenario("llama3_8b", attention="fa1", **ON)
