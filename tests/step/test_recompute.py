"""Activations that are computed again: which, how long that takes, and what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.net.graph import build
from paleo.step.memory import footprint, largest_batch
from paleo.step.recompute import FUSED_NOTE, Recompute, find_recompute

#: The width of a chain of blocks, each of two InnerProducts with a ReLU between, and samples.
WIDTH, BATCH = 100, 1000
#: Bytes of an activation, and of the weights of an InnerProduct.
X, W = 4 * BATCH * WIDTH, 4 * WIDTH * WIDTH


def chain(blocks: int = 3) -> paleo.NetSpec:
    layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [BATCH, WIDTH]}}
    product = {"type": "InnerProduct", "num_outputs": WIDTH, "use_bias": False}
    parent = "data"
    for i in range(blocks):
        layers[f"h{i}"] = {
            "type": "Block",
            "parents": [parent],
            "endpoint": "two",
            "layers": {
                "one": {"parents": [], **product},
                "relu": {"type": "Activation", "function": "relu", "parents": ["one"]},
                "two": {"parents": ["relu"], **product},
            },
        }
        parent = f"h{i}"
    return paleo.loads(json.dumps({"name": "chain", "layers": layers}))


def attention() -> paleo.NetSpec:
    """Return a net with attention in steps over 8 x 8 scores of 2 heads, 4 features each."""
    heads: dict[str, Any] = {
        "scores": {"type": "MatMul", "parents": ["q", "k"]},
        "scale": {"type": "Activation", "parents": ["scores"], "function": "affine"},
        "softmax": {"type": "Softmax", "parents": ["scale"], "dim": -1},
        "dropout": {"type": "Dropout", "parents": ["softmax"], "dropout_keep_prob": 0.9},
        "values": {"type": "MatMul", "parents": ["dropout", "v"]},
    }
    product = {"type": "InnerProduct", "parents": ["data"], "num_outputs": 8, "axis": -1}
    layers: dict[str, Any] = {
        "data": {"type": "Input", "parents": [], "tensor": [4, 8, 8]},
        **dict.fromkeys(("query", "key", "value"), product),
        "q": {"type": "Reshape", "parents": ["query"], "output_shape": [-1, 2, 8, 4]},
        "k": {"type": "Reshape", "parents": ["key"], "output_shape": [-1, 2, 4, 8]},
        "v": {"type": "Reshape", "parents": ["value"], "output_shape": [-1, 2, 8, 4]},
        **heads,
        "joined": {"type": "Reshape", "parents": ["values"], "output_shape": [-1, 8, 8]},
        "out": {**product, "parents": ["joined"]},
    }
    return paleo.loads(json.dumps({"name": "attention", "layers": layers}))


def names(net: paleo.NetSpec, mode: str) -> list[list[str]]:
    graph = build(net)
    return [[graph.nodes[i].name for i in region] for region in find_recompute(mode).regions(graph)]


def test_blocks_are_those_that_differ_in_a_number() -> None:
    parts = ["one", "relu", "two"]
    assert names(chain(), "full") == [[f"h{i}/{part}" for part in parts] for i in range(3)]
    assert names(chain(), "full:h1") == [[f"h1/{part}" for part in parts]]
    assert names(chain(1), "full") == []
    assert names(chain(), "none") == names(chain(), "selective") == []


def test_blocks_are_equal_whichever_of_their_branches_comes_first() -> None:
    product = {"type": "InnerProduct", "parents": [], "num_outputs": WIDTH}
    layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [BATCH, WIDTH]}}
    for i, names in enumerate((("left", "right"), ("right", "left"))):
        branches = dict.fromkeys(names, product)
        both = {"type": "Elementwise", "parents": ["left", "right"]}
        parents = [f"h{i - 1}" if i else "data"]
        layers[f"h{i}"] = {
            "type": "Block", "parents": parents, "endpoint": "sum",
            "layers": {**branches, "sum": both},
        }  # fmt: skip
    graph = build(paleo.loads(json.dumps({"name": "branches", "layers": layers})))
    # Layers are data and three of each block.
    assert find_recompute("full").regions(graph) == ((1, 2, 3), (4, 5, 6))


def test_blocks_within_a_block_are_meant_by_its_name() -> None:
    net = paleo.load("bert_base")
    assert names(net, "full:encoder") == names(net, "full")
    assert len(names(net, "full")) == 12
    (alone,) = names(net, "full:encoder/3/attention")
    assert all(name.startswith("encoder/3/attention/") for name in alone)


def test_the_core_of_attention_is_from_scores_to_values() -> None:
    core = ["scores", "scale", "softmax", "dropout", "values"]
    assert names(attention(), "selective") == [core]
    assert len(names(paleo.load("gpt2"), "selective")) == 12
    assert names(paleo.load("gpt2"), "selective:h/1") == names(paleo.load("gpt2"), "selective")[1:2]


def test_full_recomputation_keeps_what_comes_into_blocks() -> None:
    kept = {mode: footprint(chain(), recompute=mode).activations for mode in ("none", "full")}
    # The data, of each block the ReLU's output, and its result, which the next reads.
    assert kept["none"] == X * (1 + 2 * 3)
    assert kept["full"] == X * (1 + 3) + X  # at the end the last layer still reads its input


def test_the_peak_is_in_the_backward_pass_of_a_block() -> None:
    found = footprint(chain(), recompute="full")
    # The first one whose input's gradient is needed is the second, in its first product. There are
    # all weights; the data, what comes into it and the result of all; its ReLU's output, made again
    # (that of the product is gone), and its result, for as long as nobody has made another; the
    # gradient that comes and the one that is made; gradients of weights of the third block, too.
    inputs, results = 2, 1
    assert found.peak_pass == "backward"
    assert found.peak < footprint(chain()).peak
    assert found.peak >= 6 * W + (inputs + results + 2) * X


def test_more_blocks_take_but_their_inputs() -> None:
    peaks = [footprint(chain(blocks), recompute="full").peak for blocks in (4, 5, 6)]
    # Of a further block: its input, two weights, and at the end their two gradients or less.
    assert peaks[1] - peaks[0] == peaks[2] - peaks[1]
    assert X + 2 * W <= peaks[1] - peaks[0] <= X + 4 * W


def test_selective_recomputation_keeps_no_scores() -> None:
    batch, scores = 4, 4 * 4 * 2 * 8 * 8  # bytes of all scores in fp32
    kept = {
        mode: footprint(attention(), batch, recompute=mode).activations
        for mode in ("none", "selective")
    }
    # Softmax keeps its output, dropout a mask, the values' product what dropout made.
    assert kept["none"] - kept["selective"] == 3 * scores


def test_selective_recomputation_of_gpt2_is_that_of_its_paper() -> None:
    # Korthikanti et al.: 5 a s^2 b bytes a layer with masks of a byte; here a mask is a number.
    batch, heads, tokens, layers = 2, 12, 1024, 12
    kept = [
        footprint("gpt2", batch, dtype="fp16", recompute=mode).activations
        for mode in ("none", "selective")
    ]
    assert kept[0] - kept[1] == layers * 6 * heads * tokens**2 * batch


def test_the_largest_batch_is_that_at_whose_peak_the_memory_ends() -> None:
    for mode in ("full", "selective", "full:h/3"):
        largest = largest_batch("gpt2", 16 * 2**30, recompute=mode)
        assert footprint("gpt2", largest, recompute=mode).peak <= 16 * 2**30
        assert footprint("gpt2", largest + 1, recompute=mode).peak > 16 * 2**30


def row(net: Any, mode: str, **settings: Any) -> Any:
    given: Any = {"workers": 1, "scaling": "weak", "batch_size": BATCH, "recompute": mode}
    (run,) = paleo.simulate(net, **given | settings).runs
    return run.rows[0]


@pytest.mark.parametrize("cost_model", ["tiled", "roofline", "paleo2017"])
def test_full_recomputation_takes_a_forward_pass(cost_model: str) -> None:
    step, plain = (row(chain(), mode, cost_model=cost_model) for mode in ("full", "none"))
    assert plain.seconds_of("recomputation") == 0
    assert step["recomputation"] == pytest.approx(step["forward"])  # all layers are in blocks
    for name in ("forward", "backward", "update"):
        assert step[name] == plain[name]
    assert step.compute == pytest.approx(plain.compute + plain["forward"])
    one = row(chain(), "full:h1", cost_model=cost_model)
    assert one["recomputation"] == pytest.approx(step["recomputation"] / 3)


def test_hfu_has_what_is_computed_again_and_mfu_has_not() -> None:
    step, plain = (row(chain(), mode).to_dict() for mode in ("full", "none"))
    (scheme,) = step["mfu"]
    # Products: forward 6, backward 6 for weights and 5 for inputs; 6 again.
    assert step["hfu"][scheme] == pytest.approx(step["mfu"][scheme] * (17 + 6) / 17)
    slower = step["step_s"][scheme] / plain["step_s"][scheme]
    assert step["mfu"][scheme] == pytest.approx(plain["mfu"][scheme] / slower)


def test_gradients_wait_for_what_is_computed_again() -> None:
    net, more = "gpt2", {"workers": 8, "batch_size": 8, "device": "H100_SXM"}
    step, plain = (row(net, mode, **more) for mode in ("full", "none"))
    longer = step.total(step.best_scheme) - plain.total(plain.best_scheme)
    assert longer <= step["recomputation"] * (1 + 1e-9)
    assert step.exposed_exchanges["auto"] <= plain.exposed_exchanges["auto"] * (1 + 1e-9)


def test_turns_compute_again_in_each() -> None:
    one, three = (row(chain(), "full", accumulate=turns) for turns in (1, 3))
    assert three["recomputation"] == pytest.approx(3 * one["recomputation"])


@pytest.mark.parametrize("parallel", ["data", "single_process"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_timeline_has_what_is_computed_again(parallel: str, workers: int) -> None:
    how: Any = {"workers": workers, "recompute": "full", "parallel": parallel, "batch_size": BATCH}
    how |= {"scaling": "weak"} if parallel == "data" else {}
    (run,) = paleo.simulate(chain(), **how).runs
    drawn = paleo.timeline(chain(), **how)
    again = [event for event in drawn.events if event.category == "recomputation"]
    assert {event.name for event in again} == {
        f"h{i}/{part} again" for i in range(3) for part in ("one", "relu", "two")
    }
    spent = sum(event.seconds for event in again if event.worker == 0)
    assert spent == pytest.approx(run.rows[0].piece("recomputation").seconds, rel=0.2)


def fused() -> paleo.NetSpec:
    layers: dict[str, Any] = {
        "data": {"type": "Input", "parents": [], "tensor": [2, 4, 16, 8]},
        "attention": {"type": "Attention", "parents": ["data"] * 3},
    }
    return paleo.loads(json.dumps({"name": "fused", "layers": layers}))


def test_a_kernel_of_attention_leaves_nothing_to_compute_again() -> None:
    found = footprint(fused(), recompute="selective")
    assert found.notes == (FUSED_NOTE,)
    assert found.activations == footprint(fused()).activations
    (run,) = paleo.simulate(fused(), workers=1, scaling="weak", recompute="selective").runs
    assert FUSED_NOTE in run.notes
    assert run.rows[0].seconds_of("recomputation") == 0


def test_nets_without_blocks_are_noted() -> None:
    assert footprint("lenet5", recompute="full").notes == (
        "lenet5 has no blocks that repeat: nothing is computed again",
    )
    assert footprint("lenet5", recompute="selective").notes == (
        "lenet5 has no attention: nothing is computed again",
    )


def test_inference_computes_nothing_again() -> None:
    assert footprint("gpt2", 2, training=False, recompute="full") == footprint(
        "gpt2", 2, training=False
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ful", 'recompute: expected none, selective or full, or such as full:BLOCK, got "ful"'),
        ("full:", 'recompute: expected none, selective or full, or such as full:BLOCK, got "full:'),
        ("none:h/0", "recompute: expected none, selective or full"),
        (3, "recompute: expected none, selective or full"),
        ("full:h/99", "recompute: gpt2 has no block \"h/99\" (did you mean 'h/9'?)"),
        ("full:zzz", 'recompute: gpt2 has no block "zzz"; there are wpe, h, h/0, ...'),
    ],
)
@pytest.mark.parametrize("ask", [paleo.simulate, paleo.metrics, paleo.memory])
def test_bad_recomputation_is_one_line(ask: Any, given: Any, message: str) -> None:
    with pytest.raises(paleo.PaleoError) as error:
        ask("gpt2", recompute=given)
    (line,) = str(error.value).splitlines()
    assert line.startswith(message)


def test_split_layers_are_not_computed_again() -> None:
    for parallel in ("model", "hybrid"):
        with pytest.raises(paleo.PaleoError, match=f"recompute: is not for --parallel={parallel}"):
            paleo.simulate("alex_v2_4gpu", parallel=parallel, recompute="full")


def test_a_text_says_what_is_computed_again() -> None:
    assert find_recompute("full:h/0, h/1") == Recompute("full", ("h/0", "h/1"))
    assert str(find_recompute("full:h/0,h/1")) == "full:h/0,h/1"
    assert find_recompute(Recompute("selective")) == Recompute("selective")
