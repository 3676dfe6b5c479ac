"""Tokens a second and the utilization of devices, by the stated convention."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.step.parallelism.computations import Computations
from paleo.step.scenario import scenario
from paleo.step.utilization import tokens_of


def row(net: Any, **settings: Any) -> dict[str, Any]:
    (found,) = paleo.simulate(net, workers=1, scaling="weak", **settings).to_dict()["runs"][0][
        "rows"
    ]
    return dict(found)


#: L layers of GPT-2, each with 12 D x D of products; T tokens, V words.
LAYERS, D, T, V = 12, 768, 1024, 50257


def test_flops_of_gpt2_are_those_of_palm() -> None:
    found = Computations(scenario("gpt2").net, scenario("gpt2").plan).sample
    multiplied = LAYERS * 12 * D**2 + D * V  # the embedding of words is looked up
    # A token: 6 for each parameter that it is multiplied by, and 12 L H Q T, H Q = D.
    assert found.flops == T * (6 * multiplied + 12 * LAYERS * D * T)
    assert found.hardware_flops == found.flops
    assert found.tokens == T


def attention(**keys: Any) -> paleo.NetSpec:
    """Return a net of an embedding of 100 words of 32 numbers and an Attention of 4 heads."""
    layers: dict[str, Any] = {
        "words": {"type": "Input", "parents": [], "tensor": [2, 16]},
        "embedding": {
            "type": "Embedding",
            "parents": ["words"],
            "num_embeddings": 100,
            "num_outputs": 32,
        },
        "heads": {"type": "Reshape", "parents": ["embedding"], "output_shape": [-1, 4, 16, 8]},
        "attention": {"type": "Attention", "parents": ["heads"] * 3, **keys},
    }
    return paleo.loads(json.dumps({"name": "small", "layers": layers}))


@pytest.mark.parametrize("causal", [False, True])
def test_causal_attention_is_counted_in_full(causal: bool) -> None:
    net = attention(causal=causal)
    found = Computations(net, scenario(net).plan).sample
    assert found.tokens == 16
    # Forward 2 products of 2 H T T Q, backward 4.
    assert found.flops == 6 * 2 * 4 * 16 * 16 * 8


def test_a_row_has_tokens_and_shares_of_peak() -> None:
    found = row("gpt2", device="H100_SXM", dtype="bf16", batch_size=4)
    (scheme,) = found["step_s"]
    step = found["step_s"][scheme]
    assert found["tokens_per_s"][scheme] == pytest.approx(4 * T / step)
    multiplied = LAYERS * 12 * D**2 + D * V
    flops = 4 * T * (6 * multiplied + 12 * LAYERS * D * T)
    peak = paleo.find_device("H100_SXM").peak("bf16")
    assert found["mfu"][scheme] == pytest.approx(flops / step / peak)
    assert found["hfu"] == found["mfu"]


def test_utilization_is_of_all_devices() -> None:
    def of(workers: int) -> Any:
        (run,) = paleo.simulate("gpt2", workers=workers, scaling="weak", batch_size=4).runs
        return run.rows[0].whole_step(run.best_scheme)

    one, four = of(1), of(4)
    assert four.tokens_per_s == pytest.approx(4 * one.tokens_per_s * four.efficiency)
    assert four.mfu == pytest.approx(one.mfu * four.efficiency)


def test_many_worker_counts_at_once_give_the_same() -> None:
    counts = [1, 2, 3, 4, 5, 6, 7, 8, 16]
    (together,) = paleo.simulate("bert_base", workers=counts, scaling="weak").runs
    (alone,) = paleo.simulate("bert_base", workers=5, scaling="weak").runs
    rows = together.to_dict()["rows"]
    for key in ("tokens_per_s", "mfu", "hfu"):
        assert rows[4][key] == alone.rows[0].to_dict()[key]


def test_images_are_no_tokens() -> None:
    found = row("resnet50", device="H100_SXM", batch_size=4)
    assert found["tokens_per_s"] is None
    (scheme,) = found["mfu"]
    assert 0 < found["mfu"][scheme] < 1


@pytest.mark.parametrize(
    ("net", "tokens"), [("bert_base", 128), ("transformer_xl_base", 192), ("msft_speech", None)]
)
def test_tokens_are_those_that_an_embedding_reads(net: str, tokens: int | None) -> None:
    assert tokens_of(paleo.load(net)) == tokens


def test_a_utilization_has_both_ends_of_its_band() -> None:
    found = row("gpt2", device="H100_SXM", dtype="bf16", batch_size=4)
    (scheme,) = found["mfu"]
    for key in ("tokens_per_s", "mfu", "hfu"):
        low, high = (found[f"{key}_{end}"][scheme] for end in ("low", "high"))
        factors = found["step_s_high"][scheme], found["step_s_low"][scheme]
        assert low == pytest.approx(found[key][scheme] * found["step_s"][scheme] / factors[0])
        assert high == pytest.approx(found[key][scheme] * found["step_s"][scheme] / factors[1])


def test_several_kinds_of_devices_have_the_sum_of_their_peaks() -> None:
    (run,) = paleo.simulate(
        "gpt2",
        device="A100_SXM_40GB",
        other_devices={"H100_SXM": 3},
        parallel="heterogeneous",
        workers=1,
        scaling="weak",
        batch_size=8,
    ).runs
    assert run.step
    peaks = [paleo.find_device(name).peak("fp32") for name in ("A100_SXM_40GB", "H100_SXM")]
    multiplied = LAYERS * 12 * D**2 + D * V
    flops = run.step.throughput * T * (6 * multiplied + 12 * LAYERS * D * T)
    assert run.step.mfu == pytest.approx(flops / (peaks[0] + 3 * peaks[1]))
