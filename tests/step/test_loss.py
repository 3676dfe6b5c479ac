"""The loss that training adds to a language model: who has one, what it moves, what it keeps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.core.operations import LAYER_PASSES, Kind, Pass, total_work
from paleo.net.layers.losses import LinearCrossEntropy, Loss
from paleo.step.loss import LOSSES, with_loss

#: Samples, positions, words and features.
N, T, V, D = 4, 16, 1000, 64
SCORES = N * T * V


def model(**last: Any) -> paleo.NetSpec:
    layers: dict[str, Any] = {
        "words": {"type": "Input", "parents": [], "tensor": [N, T]},
        "table": {
            "type": "Embedding", "parents": ["words"], "num_embeddings": V, "num_outputs": D,
        },
        "head": {
            "type": "InnerProduct", "parents": ["table"], "num_outputs": V, "axis": -1,
            "use_bias": False,
        },
        **last,
    }  # fmt: skip
    return paleo.loads(json.dumps({"name": "model", "layers": layers}))


def test_a_loss_reads_the_scores_and_labels_of_each_position() -> None:
    graph = paleo.build(with_loss(model(), "cross_entropy"))
    *_, labels, loss = graph.nodes
    assert (labels.name, labels.output) == ("labels", (N, T))
    assert (loss.name, loss.layer, loss.inputs) == ("loss", Loss(), ((N, T, V), (N, T)))
    joined = paleo.build(with_loss(model(), "fused_linear")).nodes[-1]
    assert (joined.name, joined.layer) == ("head", LinearCrossEntropy(num_outputs=V))
    assert joined.num_params == V * D
    assert with_loss(model(), "none") is not None


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("net", ["gpt2", "llama3_8b", "t5_base"])
def test_language_models_have_as_many_parameters_with_their_loss(net: str, loss: str) -> None:
    spec = paleo.load(net)
    assert paleo.build(with_loss(spec, loss)).num_params == paleo.build(spec).num_params


@pytest.mark.parametrize("net", ["alexnet", "bert_base", "lenet5", "vit_b_16", "resnet50"])
def test_other_nets_have_none(net: str) -> None:
    spec = paleo.load(net)
    assert with_loss(spec, "cross_entropy") is spec


def test_a_net_that_has_a_loss_keeps_it() -> None:
    own = model(
        next={"type": "Input", "parents": [], "tensor": [N, T]},
        end={"type": "Loss", "parents": ["head", "next"], "fused": True},
    )
    assert with_loss(own, "cross_entropy") is own


def test_names_that_a_net_has_are_left_to_it() -> None:
    layer = {"type": "Softmax", "parents": ["head"], "dim": -1}
    graph = paleo.build(with_loss(model(loss=layer), "fused"))
    assert [node.name for node in graph.nodes[-3:]] == ["loss", "labels", "loss_"]


def test_a_step_reads_and_writes_scores_as_often_as_pytorch() -> None:
    def moved(loss: str) -> int:
        graph = paleo.build(with_loss(model(), loss))
        node = graph.nodes[-1]
        work = [total_work(graph.operations(node, direction)) for direction in LAYER_PASSES]
        return sum(int(each.bytes_read + each.bytes_written) for each in work)

    # Forward: read, and logarithms written. Backward: their gradient written, read with them, and
    # that of scores written. Besides, of 64 rows: labels twice, what is picked, a loss a sample.
    rows = N * T
    assert moved("cross_entropy") == 4 * (6 * SCORES + 3 * rows + N)
    # Forward: read. Backward: read, written. Labels twice, a sum a row twice, a loss a sample.
    assert moved("fused") == 4 * (3 * SCORES + 4 * rows + N)
    # Forward: read for the largest and for the sum, each a number a row; read and written where
    # they were less the largest, as exponentials and as probabilities. Backward: the same once.
    assert moved("in_steps") == 4 * (10 * SCORES + 3 * rows)


def test_a_loss_in_steps_casts_scores_to_fp32_and_keeps_probabilities() -> None:
    """Of halves 2 and 4 bytes a score both ways; fp32 from then on, whatever scores are."""
    graph = paleo.build(with_loss(model(), "in_steps"), dtype="bf16")
    node = graph.nodes[-1]
    ahead = graph.operations(node, Pass.FORWARD)
    back = graph.operations(node, Pass.INPUT_GRADIENT)
    assert sum(each.kind is Kind.COPY for each in (*ahead, *back)) == 2
    work = total_work((*ahead, *back))
    moved = int(work.bytes_read + work.bytes_written)
    rows = N * T
    assert moved == (2 + 4) * 2 * SCORES + 4 * 10 * SCORES + 4 * 2 * rows + 2 * rows
    kept = node.layer.keeps(node.inputs, 2, (True, False))
    assert (kept.saved, kept.inputs) == (4 * SCORES, (1,))


def test_memory_has_logarithms_and_two_gradients() -> None:
    found = paleo.footprint(model(), loss="cross_entropy")
    # Table and head; words, labels and looked-up rows; scores, logarithms and the gradients of
    # both; a loss a sample and its gradient.
    assert found.peak == 4 * (2 * V * D + 2 * N * T + N * T * D + 4 * SCORES + 2 * N)
    assert (found.peak_layer, found.peak_pass) == ("loss", "backward")
    inference: Any = {"training": False}
    assert paleo.footprint(model(), loss="fused", **inference) == paleo.footprint(
        model(), **inference
    )


def test_training_counts_it_and_inference_does_not() -> None:
    how: Any = {"device": "A100", "batch_size": 8, "dtype": "bf16"}
    with_it, without = (
        paleo.metrics("gpt2", loss=loss, **how)[0] for loss in ("cross_entropy", "none")
    )
    assert with_it.inference == without.inference
    assert with_it.inference_memory == without.inference_memory
    bandwidth = float(paleo.find_device("A100").memory_bandwidth)
    # 50,257 words at 8 x 1,024 positions, moved six times at most as quickly as memory can; rows
    # are too long to be kept on the chip: two more reads forward, two backward.
    moved = 2 * 8 * 1024 * 50257 / bandwidth
    added = with_it.step.seconds - without.step.seconds
    assert 10 * moved < added < 1.25 * 10 * moved
    assert with_it.training_flops_per_sample == without.training_flops_per_sample
    (plain,) = paleo.simulate("gpt2", workers=1, **how).runs
    assert plain.to_dict()["loss"] == "cross_entropy"
    assert plain.rows[0].compute == pytest.approx(with_it.compute)
    assert plain.footprint(plain.rows[0]) == with_it.training_memory


def test_summaries_show_the_net_alone() -> None:
    assert paleo.summarize("gpt2", device="A100").layers[-1].name == "lm_head"


@pytest.mark.parametrize("ask", [paleo.simulate, paleo.memory, paleo.metrics])
def test_what_is_no_loss_is_an_error(ask: Any) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        ask("gpt2", loss="hinge")
    expected = " or ".join(LOSSES)
    assert str(caught.value) == f"loss: expected {expected}, got 'hinge'"
    softmax = {"type": "Softmax", "parents": ["head"], "dim": -1}
    with pytest.raises(paleo.PaleoError) as caught:
        ask(model(shares=softmax), loss="fused_linear")
    assert str(caught.value) == (
        "loss: model ends in shares, which is no product: fused_linear has none to join; fused "
        "does without"
    )


def test_pytorch_takes_as_much_memory() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("torch.distributed._tools.mem_tracker", reason="needs its tools")
    from torch_nets import peak

    nn = torch.nn
    words, features, shape = 5000, 64, (8, 32)
    made = nn.Sequential(nn.Embedding(words, features), nn.Linear(features, words, bias=False))
    x, labels = (torch.randint(0, words, shape) for _ in range(2))

    def loss_of(scores: Any) -> Any:
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    net = paleo.load(made, paleo.ImportOptions(input=((None, shape),)))
    found: Any = peak.training(made, x, loss_of=loss_of)
    predicted = paleo.footprint(net, shape[0], loss="cross_entropy").peak
    assert predicted == pytest.approx(found.tensors, rel=0.04)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_arrays_of_lengths_have_the_loss_of_each(loss: str) -> None:
    lengths = [256, 512, 1024]
    plan = paleo.scenario("gpt2", device="H100_SXM", dtype="bf16", loss=loss).plan

    def step(length: Any) -> Any:
        return paleo.data_parallel(paleo.load("gpt2", dims={"seq": length}), plan, 4, 1)

    together, alone = step(np.array(lengths)), [step(length) for length in lengths]
    for part in ("forward", "backward", "update"):
        wanted = [each[part] for each in alone]
        assert np.broadcast_to(together[part], 3).tolist() == pytest.approx(wanted)
