"""Arrays of sizes of dimensions: the same as one by one, element by element."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.errors import NetSpecError, SettingError
from paleo.net.writer import dumps

LENGTHS, BATCHES = np.array([64, 200, 512, 512, 192]), np.array([2, 3, 8, 1, 16])
#: Grouped heads and gates; positions and biases; windows by index; experts; both sides; latents.
NETS = ["llama3_8b", "gpt2", "gemma3_1b", "mixtral_8x7b", "t5_small", "deepseek_v2_lite"]


def plan_of(model: str, dtype: str = "bf16") -> paleo.Plan:
    device, network = paleo.find_device("H100_SXM"), paleo.find_network("nvlink4")
    return paleo.Plan(device, network, paleo.find_cost_model(model), dtype=dtype)


@pytest.mark.parametrize("model", ["roofline", "tiled"])
@pytest.mark.parametrize("name", NETS)
def test_pairs_are_as_one_by_one(name: str, model: str) -> None:
    net, plan = paleo.load(name), plan_of(model)
    step = paleo.data_parallel(net.with_dims(seq=LENGTHS), plan, BATCHES, 1)
    for place, (length, batch) in enumerate(zip(LENGTHS.tolist(), BATCHES.tolist(), strict=True)):
        alone = paleo.data_parallel(net.with_dims(seq=length), plan, batch, 1)
        assert step.compute[place] == alone.compute
        whole, whole_alone = (one.whole_step("auto") for one in (step, alone))
        assert np.broadcast_to(whole.seconds, LENGTHS.shape)[place] == whole_alone.seconds
        for use in ("tokens_per_s", "mfu"):
            of_all, of_one = getattr(whole, use), getattr(whole_alone, use)
            assert of_all[place] == pytest.approx(of_one, rel=1e-12)


def test_products_grow_with_both_by_hand() -> None:
    # B x S rows of 8 features to 16: 2 B S 8 16 FLOPs, at 4 bytes 8 x 16 + 16 parameters.
    layers = {
        "in": {"type": "Input", "parents": [], "tensor": [1, "seq", 8]},
        "out": {"type": "InnerProduct", "parents": ["in"], "num_outputs": 16, "axis": -1},
    }
    spec = paleo.loads(json.dumps({"name": "rows", "dims": {"seq": 4}, "layers": layers}))
    lengths, batches = np.array([3, 5]), np.array([[2], [7], [1]])
    found = paleo.summarize(spec.with_dims(seq=lengths), batches)
    out = found.layers[1]
    assert out.num_params == 8 * 16 + 16
    assert np.array_equal(out.forward_flops, 2 * batches * lengths * 8 * 16)
    assert np.array_equal(out.activations_bytes, 4 * batches * lengths * 16)


def test_many_workers_exchange_beside_them() -> None:
    net, plan = paleo.load("gpt2"), plan_of("roofline")
    step: Any = paleo.data_parallel(net.with_dims(seq=LENGTHS), plan, BATCHES, 8)
    for place, (length, batch) in enumerate(zip(LENGTHS.tolist(), BATCHES.tolist(), strict=True)):
        alone: Any = paleo.data_parallel(net.with_dims(seq=length), plan, batch, 8)
        assert step.total("auto")[place] == alone.total("auto")


def test_the_net_says_its_sizes_and_keeps_apart_from_others() -> None:
    net = paleo.load("llama3_8b")
    first, second = (net.with_dims(seq=np.array(sizes)) for sizes in ([64, 512], [128, 512]))
    assert first.name == "llama3_8b seq=64..512"
    assert first != second
    plan = plan_of("roofline")
    one, other = (paleo.data_parallel(each, plan, 2, 1).compute for each in (first, second))
    assert one[0] < other[0]  # type: ignore[index]
    assert one[1] == other[1]  # type: ignore[index]
    loaded = paleo.load("llama3_8b", dims={"seq": np.array([64, 512], np.int32)})
    assert paleo.data_parallel(loaded, plan, 2, 1).compute.tolist() == one.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ({"seq": np.array([0, 4])}, 'key "dims.seq": expected whole numbers from 1 to 2147483647'),
        ({"seq": np.array([0.5])}, 'key "dims.seq": expected whole numbers from 1 to 2147483647'),
        ({"sek": np.array([4])}, "key \"dims.sek\": there is no such dim (did you mean 'seq'?)"),
        ({"layers": np.array([1, 2])}, "it is one number, not an array of them"),
        ({"seq": np.array([64, 2048])}, "it picks 2048 different rows"),
        ({"seq": np.array([4, 5]), "heads": np.array([1, 2, 3])}, "arrays of dims differ in shape"),
    ],
)
def test_what_is_no_array_of_sizes_is_one_line(sizes: dict[str, Any], line: str) -> None:
    with pytest.raises(NetSpecError) as error:
        paleo.load("gpt2").with_dims(**sizes)
    (said,) = [str(each) for each in error.value.mistakes if line in str(each)][:1] or [""]
    assert line in said


def test_memory_is_as_one_by_one() -> None:
    net = paleo.load("gpt2")
    found = paleo.footprint(net.with_dims(seq=LENGTHS), BATCHES, dtype="bf16", optimizer="adam")
    for place, (length, batch) in enumerate(zip(LENGTHS.tolist(), BATCHES.tolist(), strict=True)):
        alone = paleo.footprint(net.with_dims(seq=length), batch, dtype="bf16", optimizer="adam")
        peak, layer = found.peak[place], found.peak_layer[place]  # type: ignore[index]
        assert (peak, layer) == (alone.peak, alone.peak_layer)


def test_what_takes_no_arrays_says_so() -> None:
    swept = paleo.load("gpt2").with_dims(seq=LENGTHS)
    for call in (
        lambda: paleo.largest_batch(swept, 2**34),
        lambda: paleo.edit(swept, remove="dropout"),
        lambda: dumps(swept),
    ):
        with pytest.raises(NetSpecError, match=r"arrays of sizes \(seq\): one is asked for"):
            call()
    with pytest.raises(SettingError, match=r"seq: arrays of sizes are for paleo\.data_parallel"):
        paleo.simulate(swept, device="H100_SXM")
    with pytest.raises(SettingError, match=r"an array of shape \(2,\) does not go with dims"):
        paleo.build(swept, np.array([1, 2]))
    with pytest.raises(SettingError, match="a layer takes no array of hidden"):
        paleo.build(paleo.load("gpt2").with_dims(hidden=np.array([768, 1536])), 2)
    with pytest.raises(SettingError, match="a layer takes no array of seq"):
        paleo.build(paleo.load("mamba_130m").with_dims(seq=LENGTHS), 2)
