"""`paleo.infer`: what a served model answers, beside what can be found by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.errors import PaleoError
from paleo.core.units import GIB
from paleo.step.serving.deployment import Drafts
from paleo.studies.serving.answers import Serving

#: A small model, so that tests are quick.
SMALL: dict[str, Any] = {"device": "H100_SXM", "prompt": 512, "output": 32, "length_cv": 0}


def one(net: str = "llama3_2_1b", **settings: Any) -> Serving:
    (found,) = paleo.infer(net, **{**SMALL, "concurrency": 4, **settings})
    return found


def messages(net: str = "llama3_2_1b", **settings: Any) -> list[str]:
    with pytest.raises(PaleoError) as caught:
        paleo.infer(net, **{**SMALL, "concurrency": 4, **settings})
    return str(caught.value).splitlines()


# Memory.


def test_weights_are_those_of_the_file_in_two_bytes() -> None:
    memory = one("llama3_8b").memory
    # Llama 3 8B: 8,030,261,248 parameters.
    assert memory.weights == 2 * 8_030_261_248


def test_fewer_bits_are_of_products_alone() -> None:
    memory = one("llama3_8b", dtype="fp8").memory
    # Embeddings and scores, 128256 x 4096 each, and 65 norms of 4096 stay in 2 bytes.
    wide = 2 * 128256 * 4096 + 65 * 4096
    assert memory.weights == 2 * wide + (8_030_261_248 - wide)


def test_a_cache_is_of_keys_and_values_in_blocks() -> None:
    memory = one("llama3_8b").memory
    # Of 8 heads of 128 in 32 layers, 2 bytes each; vLLM's blocks have 16 tokens.
    token = 2 * 8 * 128 * 32 * 2
    assert memory.of_request(17) == 32 * token
    assert one("llama3_8b", kv_dtype="fp8").memory.of_request(16) == 16 * token / 2


def test_what_fits_follows_from_what_is_left() -> None:
    found = one("llama3_8b")
    memory = found.memory
    # Nine tenths of 80 GiB, less weights and a step; a request of 544 tokens takes 34 blocks.
    assert memory.room == pytest.approx(0.9 * 80 * GIB - memory.weights - memory.activations)
    assert found.max_concurrency == int(memory.room / (34 * 16 * 131072))
    longest = memory.longest()
    assert memory.of_request(longest) <= memory.room < memory.of_request(longest + 16)


def test_devices_that_share_layers_share_weights_and_heads() -> None:
    alone, shared = (
        one("llama3_8b", cluster="dgx_h100", device=None, workers=n, tp=n) for n in (1, 4)
    )
    assert shared.memory.of_request(16) == alone.memory.of_request(16) / 4
    assert shared.memory.weights == pytest.approx(alone.memory.weights / 4, rel=0.001)


def test_windows_keep_no_more_than_they_see() -> None:
    memory = one("gpt_oss_20b").memory
    # 24 layers, every other sees 128 positions; 8 heads of 64, keys and values, 2 bytes.
    token = 2 * 8 * 64 * 2
    assert memory.of_request(1024) == token * 12 * (128 + 1024)


def test_a_model_that_does_not_fit_is_an_answer() -> None:
    found = one("llama3_70b", concurrency=1)
    assert (found.fits, found.max_concurrency, found.served) == (False, 0, None)
    # 70.6 billion parameters need 131 GiB; in fp8 66; on two devices 66 each.
    assert {each.setting: each.value for each in found.missing} == {"dtype": "fp8", "tp": "2"}
    values = found.to_dict()
    assert (values["fits"], values["ttft_s"], values["would_fit"]["tp"]) == (False, None, "2")


def test_the_fewest_devices_that_hold_a_model_share_it() -> None:
    found = one("llama3_70b", device=None, cluster="dgx_h100", workers=8, concurrency=1)
    assert found.asked.deployment.prices.degrees.tp == 2
    assert found.asked.copies == 4
    assert "fewest devices" in found.asked.notes[0]


# Seconds.


def test_a_token_takes_no_less_than_weights_through_memory() -> None:
    found = one("llama3_8b", concurrency=1)
    # All but the embedding's table is read; 3.35 TB/s.
    least = (found.memory.weights - 2 * 128256 * 4096) / 3.35e12
    assert found.tpot is not None
    assert least < found.tpot.mean < 1.6 * least


def test_alone_the_first_token_is_the_prompts_own() -> None:
    found = one(concurrency=1)
    assert found.ttft is not None
    assert found.served is not None
    alone = found.asked.deployment.seconds([(512, 0)], 0, 0) + found.asked.server.first_host
    assert found.ttft.mean == pytest.approx(alone, rel=1e-6)
    # An answer of 32 tokens: the first with the prompt, 31 more.
    assert found.tpot is not None
    assert found.latency is not None
    assert found.latency.mean == pytest.approx(found.ttft.mean + 31 * found.tpot.mean)


def test_more_requests_at_a_time_are_more_tokens_and_later_ones() -> None:
    found = paleo.infer("llama3_2_1b", **SMALL, concurrency=[1, 4, 16])
    rates = [each.tokens_per_s or 0.0 for each in found]
    times = [each.tpot.mean for each in found if each.tpot]
    assert rates == sorted(rates)
    assert times == sorted(times)


def test_parts_add_up_to_a_step() -> None:
    found = one("mixtral_8x7b", device=None, cluster="dgx_h100", workers=2, tp=2, concurrency=1)
    assert found.decode is not None
    whole = found.asked.deployment.seconds([], 1, 528)
    assert sum(found.decode.parts.values()) == pytest.approx(whole, rel=0.02)
    assert set(found.decode.parts) >= {"products", "attention", "experts", "exchange", "scores"}


def test_a_load_beyond_what_is_served_says_so() -> None:
    (slow, quick) = paleo.infer("llama3_2_1b", **SMALL, rate=[5.0, 5000.0], requests=300)
    assert slow.is_stable
    assert not quick.is_stable
    assert quick.most_rate is not None
    assert 5 < quick.most_rate < 5000
    assert quick.to_dict()["stable"] is False


def test_a_prefix_that_is_cached_is_not_computed() -> None:
    whole, cached = (one(concurrency=1, hit_rate=rate) for rate in (0.0, 0.75))
    assert whole.ttft is not None
    assert cached.ttft is not None
    assert cached.ttft.mean < whole.ttft.mean


def test_drafts_give_several_tokens_a_step() -> None:
    # Leviathan et al.: (1 - 0.5^4) / (1 - 0.5) tokens of three drafts.
    assert Drafts(3, 0.5).tokens == pytest.approx(1.875)
    assert Drafts(3, 1.0).tokens == 4
    plain, drafted = (
        one("llama3_8b", drafts=n, **more) for n, more in ((0, {}), (3, {"acceptance": 0.8}))
    )
    assert plain.tpot is not None
    assert drafted.tpot is not None
    tokens = (1 - 0.8**4) / 0.2
    assert plain.tpot.mean / tokens < drafted.tpot.mean < plain.tpot.mean


def test_a_net_may_draft() -> None:
    found = one("llama3_8b", drafts=3, acceptance=0.8, draft="llama3_2_1b", concurrency=1)
    alone = one("llama3_8b", drafts=3, acceptance=0.8, concurrency=1)
    assert found.tpot is not None
    assert alone.tpot is not None
    assert found.tpot.mean > alone.tpot.mean  # a whole net takes longer than a layer


def test_prompts_may_be_computed_elsewhere() -> None:
    together = one("llama3_8b", device=None, cluster="dgx_h100", workers=2, tp=1, concurrency=32)
    apart = one("llama3_8b", device=None, cluster="dgx_h100", prefill=1, decode=1, tp=1, workers=2,
                concurrency=32)  # fmt: skip
    assert (apart.asked.prefill_copies, apart.asked.copies, apart.asked.devices) == (1, 1, 2)
    assert apart.served is not None
    assert together.tpot is not None
    assert apart.tpot is not None
    # No prompt is in a step that decodes.
    alone = apart.asked.deployment.seconds([], 32, 32 * 540)
    assert apart.tpot.mean <= alone * 1.05


def test_a_static_batch_waits_for_its_last() -> None:
    static, continuous = (
        one(batching=how, length_cv=0.5, concurrency=8, requests=64, seed=1)
        for how in ("static", "continuous")
    )
    assert static.tokens_per_s is not None
    assert continuous.tokens_per_s is not None
    assert static.tokens_per_s < continuous.tokens_per_s


def test_eager_steps_wait_for_the_host() -> None:
    graph, eager = (one(concurrency=1, eager=flag) for flag in (False, True))
    assert graph.tpot is not None
    assert eager.tpot is not None
    assert eager.tpot.mean > graph.tpot.mean


def test_the_same_seed_gives_the_same_requests() -> None:
    first, again, other = (
        one(rate=20.0, concurrency=None, requests=100, length_cv=0.3, seed=seed).to_dict()
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first["ttft_s"] != other["ttft_s"]


# Money, and JSON.


def test_money_is_of_all_devices_and_seconds() -> None:
    found = one(price=3.6)
    served = found.served
    assert served is not None
    assert found.cost_per_million is not None
    prompts, answers = found.cost_per_million
    whole = prompts * 40 * 512 / 1e6 + answers * 40 * 32 / 1e6
    assert whole == pytest.approx(3.6 * served.seconds / 3600)


def test_json_has_the_keys_of_the_format() -> None:
    values = one(ttft="1 s", tpot="50 ms").to_dict()
    assert values.keys() >= {
        *("concurrency", "ttft_s", "tpot_s", "tokens_per_s", "tokens_per_s_per_gpu"),
        *("requests_per_s", "memory_bytes", "fits", "max_concurrency", "goodput_share"),
    }
    assert json.loads(json.dumps(values)) == values
    assert values["tokens_per_s_per_gpu"] == values["tokens_per_s"]
    assert values["goodput_share"] == 1.0


# A file of requests.


def test_a_trace_says_when_requests_come(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival,prompt,output\n0,512,16\n0.5,256,8\n1.0,512,16\n", "utf-8")
    (found,) = paleo.infer("llama3_2_1b", device="H100_SXM", prompts=file)
    assert found.served is not None
    assert found.served.load.prompt.tolist() == [512, 256, 512]
    assert found.rate == pytest.approx(2.0)


def test_a_trace_that_is_wrong_names_the_row(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival,prompt,output\n0,512,16\n-1,256,8\n", "utf-8")
    with pytest.raises(PaleoError) as caught:
        paleo.infer("llama3_2_1b", device="H100_SXM", prompts=file)
    (line,) = str(caught.value).splitlines()
    assert "trace.csv" in line
    assert "3" in line


# What is wrong.


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prompt": 200_000}, "more than the 131,072 positions of llama3_2_1b"),
        ({"tp": 3, "workers": 3, "cluster": "dgx_h100", "device": None}, "3"),
        ({"tp": 2, "workers": 3, "cluster": "dgx_h100", "device": None}, "do not divide by tp 2"),
        ({"ep": 2, "workers": 2, "cluster": "dgx_h100", "device": None}, "has no experts"),
        ({"dtype": "q4_k_m"}, "server: vLLM has no weights in q4_k_m"),
        ({"kv_dtype": "nvfp4"}, "server: vLLM has no cache in nvfp4"),
        ({"rate": 2.0}, "not both"),
        ({"acceptance": 0.5}, "nothing is drafted"),
        ({"decode": 1}, "give prefill, too"),
        ({"batch_size": 4}, "is not for language models"),
        ({"concurrency": 0}, "concurrency"),
        ({"hit_rate": 1.5}, "from 0 to 1"),
        ({"ttft": "soon"}, "ttft"),
        ({"server": "vlm"}, "did you mean 'vllm'"),
        ({"prmpt": 5}, "unknown setting"),
    ],
)
def test_what_is_wrong_is_one_line(settings: dict[str, Any], said: str) -> None:
    (line,) = messages(**settings)
    assert said in line


def test_other_nets_are_no_language_models() -> None:
    (line,) = messages("resnet50")
    assert "no language model" in line


def test_all_mistakes_are_said_at_once() -> None:
    assert len(messages(hit_rate=2, acceptance=7, tp=0)) == 3


def test_a_device_without_fp8_says_so() -> None:
    (line,) = messages(device="A100_SXM_80GB", dtype="fp8")
    assert "fp8" in line
    assert "A100" in line


# Encoders.


def test_a_prompts_encoder_is_in_its_first_token() -> None:
    short, long = (one("t5_base", concurrency=1, prompt=n).prefill for n in (64, 512))
    assert short is not None
    assert long is not None
    assert 0 < short.parts["encoder"] < long.parts["encoder"]
    # Decoding begins with one token, whatever the prompt.
    assert short.parts["products"] == long.parts["products"]


def test_an_image_is_in_the_cache_and_in_the_first_token() -> None:
    found = one("gemma3_4b", concurrency=1, prompt=128)
    assert found.served is not None
    assert found.length == 256 + 128 + 32
    assert found.prefill is not None
    assert found.decode is not None
    assert found.prefill.parts["encoder"] > 0
    assert not found.decode.parts.get("encoder")


def test_devices_may_share_the_positions_of_a_request() -> None:
    where = {"device": None, "cluster": "dgx_h100", "concurrency": 1, "prompt": 7936}
    alone, shared = (one("llama3_8b", workers=n, cp=n, tp=1, **where) for n in (1, 4))
    assert shared.memory.of_request(1600) == alone.memory.of_request(1600) / 4
    assert alone.prefill is not None
    assert shared.prefill is not None
    # Products and attention of a quarter of the prompt each.
    parts = [found.parts for found in (alone.prefill, shared.prefill)]
    assert parts[1]["attention"] == pytest.approx(parts[0]["attention"] / 4)
    assert parts[1]["products"] < parts[0]["products"] / 3
    assert shared.asked.copies == 1
