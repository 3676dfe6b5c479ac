"""Pointwise operations in the kernels before them: bytes saved, by hand; times; commands."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click.testing
import numpy as np
import pytest

import paleo
from paleo.cli import cli
from paleo.core.kinds import Fusion
from paleo.core.operations import Convolution, Fused, Kind, MatMul, Operation, Pass, Role, Stream
from paleo.costs import COST_MODELS, Target
from paleo.net.fusion import fused_backward, fused_forward
from paleo.step.passes import BACKWARD, FORWARD, keep_shape, kernels, needed_gradients

ROOFLINE, PALEO2017, TILED = (COST_MODELS[name] for name in ("roofline", "paleo2017", "tiled"))
#: 1 TFLOP/s and 100 GB/s.
ROUND = paleo.Device.from_rates("round", clock=1e9, peak=1e12, memory_bandwidth=1e11)

DATA = {"type": "Input", "parents": [], "tensor": [2, 8, 8, 4]}
#: 2 x 8 x 8 x 4 elements of 4 bytes.
SIZE = 2 * 8 * 8 * 4 * 4
#: A batch normalization that knows its statistics.
NORMALIZED = Stream(Kind.BATCH_NORM, (SIZE,), (SIZE,), width=4, roles=(Role.INPUT,))


def conv(parent: str = "data", **keys: Any) -> dict[str, Any]:
    """Return a convolution that gives as much as it reads."""
    return {
        "type": "Convolution",
        "parents": [parent],
        "filter": [3, 3, 4, 4],
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
        "use_bias": False,
        **keys,
    }


def layer(kind: str, *parents: str, **keys: Any) -> dict[str, Any]:
    return {"type": kind, "parents": list(parents), **keys}


def relu(parent: str) -> dict[str, Any]:
    return layer("Activation", parent, function="relu")


def graph_of(net: Any, **layers: Any) -> paleo.Graph:
    return paleo.build(net({"data": DATA, **layers}))


def forward(graph: paleo.Graph, training: bool = True) -> dict[str, tuple[Operation, ...]]:
    """Return the operations of each layer, fused."""
    found = fused_forward(graph, training=training).operations[Pass.FORWARD]
    return {node.name: found[node.index] for node in graph.nodes}


def backward(graph: paleo.Graph) -> dict[str, dict[str, tuple[Operation, ...]]]:
    found = fused_backward(graph, needed_gradients(graph, ROOFLINE.conventions)).operations
    return {
        direction.value: {node.name: found[direction][node.index] for node in graph.nodes}
        for direction in BACKWARD
    }


def only(operations: tuple[Operation, ...]) -> Fused:
    """Return the one operation that there is, which is fused."""
    (operation,) = operations
    assert isinstance(operation, Fused)
    return operation


def saved(graph: paleo.Graph, training: bool = True) -> int:
    """Return the bytes of the forward pass that fusion saves."""
    before = sum(int(graph.work(node, Pass.FORWARD).num_bytes) for node in graph.nodes)
    after = sum(
        int(operation.work.num_bytes)
        for operations in forward(graph, training).values()
        for operation in operations
    )
    return before - after


# The forward pass


def test_bias_and_activation_of_a_convolution_cost_no_bytes(net: Any) -> None:
    graph = graph_of(net, c=conv(use_bias=True, activation_fn="relu"))
    fused = only(forward(graph)["c"])
    assert isinstance(fused.head, Convolution)
    assert fused.name == "convolution + bias + relu"
    # The bias and the ReLU each read and write the output.
    assert saved(graph) == 4 * SIZE
    assert fused.work == fused.head.work
    assert fused.reads == (SIZE, 4 * 9 * 4 * 4)
    assert fused.writes == (SIZE,)


def test_the_bias_of_a_product_costs_no_bytes(net: Any) -> None:
    graph = graph_of(net, fc=layer("InnerProduct", "data", num_outputs=10), act=relu("fc"))
    operations = forward(graph)
    assert only(operations["fc"]).name == "matmul + bias + relu"
    assert operations["act"] == ()
    assert saved(graph) == 4 * 2 * 10 * 4


def test_a_chain_of_pointwise_layers_is_one_kernel(net: Any) -> None:
    # scale, relu, dropout: three reads and writes become one of each; dropout's FLOPs stay.
    graph = graph_of(
        net,
        s=layer("Scale", "data"),
        r=relu("s"),
        d=layer("Dropout", "r", dropout_keep_prob=0.5),
    )
    operations = forward(graph, training=False)
    assert only(operations["s"]).name == "scale + relu"
    assert (operations["r"], operations["d"]) == ((), ())  # dropout does nothing in inference
    assert saved(graph, training=False) == 4 * SIZE
    trained = only(forward(graph)["s"])
    assert trained.name == "scale + relu + dropout"
    assert trained.flops == SIZE / 4


def test_what_two_layers_read_is_written_and_read(net: Any) -> None:
    graph = graph_of(net, c=conv(), r=relu("c"), t=layer("Activation", "c", function="tanh"))
    operations = forward(graph)
    assert [len(operations[name]) for name in ("c", "r", "t")] == [1, 1, 1]
    assert not any(isinstance(each, Fused) for own in operations.values() for each in own)
    assert saved(graph) == 0


def test_a_batch_normalization_begins_a_kernel_in_training_only(net: Any) -> None:
    graph = graph_of(net, c=conv(), n=layer("BatchNorm", "c"), r=relu("n"))
    operations = forward(graph)
    assert isinstance(operations["c"][0], Convolution)
    assert only(operations["n"]).name == "batchnorm + relu"
    assert operations["r"] == ()
    # The convolution sums up the statistics, so that the normalization reads its input once, too.
    assert saved(graph) == (2 + 1) * SIZE
    (normalized,) = operations["n"]
    assert isinstance(normalized, Fused)
    assert normalized.head.reads == (SIZE,)
    assert isinstance(normalized.head, Stream)
    assert normalized.head.width == 0  # several elements at a time
    operations = forward(graph, training=False)
    assert only(operations["c"]).name == "convolution + batchnorm + relu"
    # It reads its input twice, for statistics and result.
    assert saved(graph, training=False) == (3 + 2) * SIZE


def test_xla_has_in_the_kernel_of_a_batch_normalization_what_follows_it(net: Any) -> None:
    layers = {
        "c": conv(),
        "n": layer("BatchNorm", "c"),
        "r": relu("n"),
        "l": layer("LayerNorm", "r"),
        "d": layer("Dropout", "l", dropout_keep_prob=0.5),
    }
    graph = graph_of(net, **layers)
    for training in (True, False):
        found = fused_forward(graph, training=training, fusion=Fusion.NORMS)
        named = [[each.name for each in own] for own in found.operations[Pass.FORWARD]]
        dropout = ["dropout"] if training else []
        assert named == [[], ["convolution"], ["batchnorm + relu"], [], ["layernorm"], dropout]
    # In training it reads its input twice, and writes the rectifier's result alone, since that is
    # all that the rectifier's gradient asks for.
    fused = fused_forward(graph, fusion=Fusion.NORMS).operations[Pass.FORWARD][2]
    assert sum(sum(each.reads) for each in fused) == 2 * SIZE
    assert sum(sum(each.writes) for each in fused) == SIZE


def test_in_inference_statistics_are_known_and_dropout_does_nothing(net: Any) -> None:
    graph = graph_of(
        net,
        p=layer("Pooling", "data", ksize=[1, 1, 1, 1], strides=[1, 1, 1, 1], padding="VALID"),
        n=layer("BatchNorm", "p"),
        d=layer("Dropout", "n", dropout_keep_prob=0.5),
        c=conv("d", normalizer_fn="batch_norm"),
    )
    trained, inferred = (
        [
            [operation for _, operation in own]
            for own in kernels(graph, FORWARD, ROOFLINE, training=each).of
        ]
        for each in (True, False)
    )
    assert trained == [list(graph.operations(node, Pass.FORWARD)) for node in graph.nodes]
    assert inferred[:2] == trained[:2]
    assert inferred[2] == [NORMALIZED]
    assert inferred[3] == []
    assert inferred[4] == [trained[4][0], NORMALIZED]
    # A kernel of its own reads it once, too.
    assert forward(graph, training=False)["n"] == (NORMALIZED,)
    seconds = [
        paleo.estimate_forward(graph, ROUND, cost_model="roofline", training=each).upper
        for each in (True, False)
    ]
    # Two inputs of normalizations less, and dropout's two transfers.
    assert seconds[0] - seconds[1] == pytest.approx(4 * SIZE / 1e11)


def test_a_normalization_joined_to_a_convolution_is_the_same(net: Any) -> None:
    graph = graph_of(net, c=conv(normalizer_fn="batch_norm", activation_fn="relu"))
    first, second = forward(graph)["c"]
    assert isinstance(first, Convolution)
    assert second.name == "batch_norm + relu"
    assert saved(graph) == 2 * SIZE
    assert only(forward(graph, training=False)["c"]).name == "convolution + batch_norm + relu"
    assert saved(graph, training=False) == (3 + 2) * SIZE


def test_a_residual_sum_reads_the_other_branch_in_the_kernel_of_the_last(net: Any) -> None:
    graph = graph_of(
        net,
        a=conv(),
        b=conv("a"),
        add=layer("Elementwise", "a", "b", function="sum"),
        r=relu("add"),
    )
    operations = forward(graph)
    fused = only(operations["b"])
    assert fused.name == "convolution + elementwise + relu"
    # The sum reads a, and neither reads nor writes b; the ReLU neither reads nor writes.
    assert fused.reads == (*fused.head.reads, SIZE)
    assert fused.writes == (SIZE,)
    assert saved(graph) == (2 + 2) * SIZE
    assert isinstance(operations["a"][0], Convolution)  # two layers read it


def test_of_two_branches_that_both_could_the_one_made_last_takes_the_sum(net: Any) -> None:
    graph = graph_of(net, a=conv(), b=conv(), add=layer("Elementwise", "b", "a"))
    operations = forward(graph)
    assert only(operations["b"]).name == "convolution + elementwise"
    assert isinstance(operations["a"][0], Convolution)
    assert saved(graph) == 2 * SIZE


def test_a_tensor_added_to_itself_is_not_read_again(net: Any) -> None:
    graph = graph_of(net, a=conv(), add=layer("Elementwise", "a", "a"))
    assert only(forward(graph)["a"]).writes == (SIZE,)
    assert saved(graph) == 3 * SIZE


def test_what_the_backward_pass_needs_is_written_all_the_same(net: Any) -> None:
    # A ReLU keeps its output, and the sum behind it nothing: the output is written, not read.
    graph = graph_of(net, a=conv(), r=relu("a"), add=layer("Elementwise", "r", "data"))
    fused = only(forward(graph)["a"])
    assert fused.writes == (SIZE, SIZE)
    assert saved(graph) == (2 + 1) * SIZE
    assert saved(graph, training=False) == (2 + 2) * SIZE
    # GELU keeps its input.
    graph = graph_of(net, a=conv(), g=layer("Activation", "a", function="gelu"))
    assert only(forward(graph)["a"]).writes == (SIZE, SIZE)
    assert (saved(graph), saved(graph, training=False)) == (SIZE, 2 * SIZE)
    joined = graph_of(net, a=conv(use_bias=True, activation_fn="gelu"))
    assert only(forward(joined)["a"]).writes == (SIZE, SIZE)
    assert (saved(joined), saved(joined, training=False)) == (3 * SIZE, 4 * SIZE)


def test_without_parameters_below_nothing_is_kept(net: Any) -> None:
    graph = graph_of(net, s=relu("data"), g=layer("Activation", "s", function="gelu"))
    assert only(forward(graph)["s"]).writes == (SIZE,)


def test_a_reshape_between_is_no_hindrance(net: Any) -> None:
    graph = graph_of(net, c=conv(), f=layer("Flatten", "c"), r=relu("f"))
    assert only(forward(graph)["c"]).name == "convolution + relu"
    assert saved(graph) == 2 * SIZE
    # A slice is another tensor.
    graph = graph_of(net, c=conv(), f=layer("Slice", "c", size=2), r=relu("f"))
    assert saved(graph) == 0


def test_what_is_repeated_for_a_sum_is_not_fused(net: Any) -> None:
    one = layer("Reduce", "data", dims=[1, 2, 3])
    graph = graph_of(
        net,
        one=one,
        e=layer("Activation", "one", function="exp"),
        sum=layer("Elementwise", "e", "data"),
    )
    assert [each.name for each in forward(graph)["sum"]] == ["elementwise"]


@pytest.mark.parametrize(
    "before",
    [
        layer("Pooling", "data", ksize=[1, 1, 1, 1], strides=[1, 1, 1, 1], padding="VALID"),
        layer("Transpose", "data", perm=[0, 2, 1, 3]),
        layer("Concatenate", "data", "data"),
    ],
)
def test_poolings_and_copies_take_on_nothing(net: Any, before: dict[str, Any]) -> None:
    assert saved(graph_of(net, before=before, r=relu("before"))) == 0


def test_a_softmax_takes_on_what_is_behind_but_runs_in_no_other_kernel(net: Any) -> None:
    graph = graph_of(
        net,
        c=conv(),
        s=layer("Softmax", "c", dim=-1),
        d=layer("Dropout", "s", dropout_keep_prob=0.9),
    )
    operations = forward(graph)
    assert isinstance(operations["c"][0], Convolution)
    assert only(operations["s"]).name == "softmax + dropout"


def test_slices_on_other_devices_are_not_fused() -> None:
    graph = paleo.build(paleo.load("alex_v2_2gpu"), 4, adapt=keep_shape)
    of = fused_forward(graph)
    for node, into in of.into.items():
        assert graph.nodes[node].shard == graph.nodes[into].shard


# The backward pass


def test_the_gradient_of_an_activation_runs_in_the_kernel_of_the_layer_behind(net: Any) -> None:
    graph = graph_of(net, a=conv(), r=relu("a"), b=conv("r"))
    found = backward(graph)
    fused = only(found["input_gradient"]["b"])
    assert fused.name == "convolution + relu"
    assert found["input_gradient"]["r"] == ()
    # Of its three operands it still reads what is kept; the gradient between is gone.
    assert fused.reads == (*fused.head.reads, SIZE)
    assert fused.writes == (SIZE,)
    assert found["input_gradient"]["a"] == ()  # nobody needs that of the data


def test_a_joined_activation_s_gradient_does_so_too(net: Any) -> None:
    graph = graph_of(net, a=conv(use_bias=True, activation_fn="relu"), b=conv("a"))
    found = backward(graph)
    assert only(found["input_gradient"]["b"]).name == "convolution + relu"
    assert [each.name for each in found["weight_gradient"]["a"]] == ["convolution", "bias"]


def test_gradients_that_are_added_up_are_written(net: Any) -> None:
    graph = graph_of(net, a=conv(), r=relu("a"), b=conv("r"), c=conv("r"))
    found = backward(graph)["input_gradient"]
    assert [each.name for each in found["r"]] == ["relu"]


def test_what_the_gradient_of_parameters_reads_is_written(net: Any) -> None:
    graph = graph_of(net, a=conv(), s=layer("Scale", "a"), b=conv("s"))
    found = backward(graph)
    fused = only(found["input_gradient"]["b"])
    # A scale's own gradient reads only that of its output, which its parameters' reads again.
    assert (fused.reads, fused.writes) == (fused.head.reads, (SIZE, SIZE))
    assert [each.name for each in found["weight_gradient"]["s"]] == ["scale"]


def test_the_gradients_of_a_product_of_tensors_come_from_one_kernel(net: Any) -> None:
    graph = graph_of(
        net,
        a=conv(),
        b=conv(),
        ra=relu("a"),
        rb=relu("b"),
        p=layer("Elementwise", "ra", "rb", function="product"),
        c=conv("p"),
    )
    found = backward(graph)["input_gradient"]
    # In the kernel of c: the product reads both factors and gives two gradients, each of which
    # goes through a ReLU that reads its own output.
    fused = only(found["c"])
    assert fused.name == "convolution + elementwise + relu + relu"
    assert fused.reads == (*fused.head.reads, SIZE, SIZE, SIZE, SIZE)
    assert fused.writes == (SIZE, SIZE)


@pytest.mark.parametrize("name", ["alex_v2", "resnet18", "densenet40", "squeezenet", "lstm_lm"])
def test_fusion_computes_the_same_and_moves_less(name: str) -> None:
    graph = paleo.build(paleo.load(name), 2, adapt=keep_shape)
    for directions in (FORWARD, BACKWARD):
        plain, fused = (
            [
                operation
                for own in kernels(graph, directions, ROOFLINE, fusion=fusion).of
                for _, operation in own
            ]
            for fusion in (Fusion.NONE, Fusion.ALL)
        )
        assert len(fused) < len(plain)
        assert sum(each.flops for each in fused) == sum(each.flops for each in plain)
        assert sum(each.work.num_bytes for each in fused) < sum(
            each.work.num_bytes for each in plain
        )
        names = sorted(part for each in fused for part in each.name.split(" + "))
        assert names == sorted(each.name for each in plain)


@pytest.mark.parametrize("fusion", Fusion)
def test_nodes_that_do_the_same_share_it(fusion: Fusion) -> None:
    graph = paleo.build(paleo.load("gpt2"), 2, adapt=keep_shape)
    for directions in (FORWARD, BACKWARD):
        found = kernels(graph, directions, ROOFLINE, fusion=fusion).of
        # The net repeats a block of 27 layers twelve times.
        assert len(graph.nodes) > 300
        assert len({id(own) for own in found}) < 40


def test_arrays_of_batches_give_the_same_as_one_by_one() -> None:
    batches = [1, 2, 7]
    many = paleo.build(paleo.load("resnet18"), np.array(batches), adapt=keep_shape)
    for i, batch in enumerate(batches):
        one = paleo.build(paleo.load("resnet18"), batch, adapt=keep_shape)
        for directions in (FORWARD, BACKWARD):
            for ours, theirs in zip(
                kernels(many, directions, ROOFLINE, fusion=Fusion.ALL).of,
                kernels(one, directions, ROOFLINE, fusion=Fusion.ALL).of,
                strict=True,
            ):
                for (_, a), (_, b) in zip(ours, theirs, strict=True):
                    sizes = [np.broadcast_to(size, 3)[i] for size in (*a.reads, *a.writes)]
                    assert (a.name, sizes) == (b.name, [*b.reads, *b.writes])


# Times


def test_the_roofline_of_a_kernel_is_that_of_all_its_flops_and_bytes() -> None:
    # 2 * 100^3 FLOPs, 2 us; 3 * 40,000 bytes, 1.2 us; the tail 40,000 bytes more, 1.6 us together,
    # then 160,000 more, 3.2 us.
    product = MatMul(100, 100, 100, 4)
    for extra, total in ((40_000, 2e-6), (200_000, 3.2e-6)):
        fused = Fused(product, (Stream(Kind.ELEMENTWISE, (extra,), ()),))
        time = ROOFLINE.price(fused, Target(ROUND))
        assert time.compute == pytest.approx(2e-6)
        assert time.memory == pytest.approx((120_000 + extra) / 1e11)
        assert time.total == pytest.approx(total)
    assert ROOFLINE.price(Fused(product, (Stream(Kind.FUNCTION, (), ()),)), Target(ROUND)) == (
        ROOFLINE.price(product, Target(ROUND))
    )


def test_paleo2017_prices_of_a_tail_what_it_prices_otherwise() -> None:
    product = MatMul(100, 100, 100, 4)
    alone = PALEO2017.price(product, Target(ROUND))
    fused = Fused(
        product, (Stream(Kind.FUNCTION, (), (40_000,)), Stream(Kind.DROPOUT, (), (), 10_000))
    )
    assert PALEO2017.counts(fused)
    time = PALEO2017.price(fused, Target(ROUND))
    # Dropout: 10,000 FLOPs at 1 TFLOP/s; its transfers are gone.
    assert time.compute == pytest.approx(alone.compute + 1e-8)
    assert time.memory == alone.memory
    assert time.total == pytest.approx(alone.total + 1e-8)


def test_tiled_saves_launches_and_traffic() -> None:
    device = paleo.find_device("V100_SXM2_16GB")
    product, tail = MatMul(4096, 4096, 64, 4), Stream(Kind.FUNCTION, (4 * 4096**2,), (4 * 4096**2,))
    target = Target(device)
    first, second = TILED.price(product, target), TILED.price(tail, target)
    fused = TILED.price(Fused(product, (Stream(Kind.FUNCTION, (), ()),)), target)
    assert fused == first
    assert fused.total < first.total + second.total
    written = TILED.price(Fused(product, (Stream(Kind.FUNCTION, (), (4 * 4096**2,)),)), target)
    assert written.overhead == first.overhead
    assert first.memory < written.memory < first.memory + second.memory


@pytest.mark.parametrize("model", COST_MODELS)
@pytest.mark.parametrize("name", ["resnet18", "vgg11", "googlenet", "dcgan_generator"])
def test_a_fused_pass_is_never_slower(name: str, model: str) -> None:
    graph = paleo.build(paleo.load(name), 8, adapt=None if model == "paleo2017" else keep_shape)
    for estimate in (paleo.estimate_forward, paleo.estimate_backward):
        plain = estimate(graph, "K80", cost_model=model)
        fused = estimate(graph, "K80", cost_model=model, fuse=True)
        assert fused.upper <= plain.upper * (1 + 1e-12)
        assert fused.time.memory <= plain.time.memory * (1 + 1e-12)
    inference = paleo.estimate_forward(graph, "K80", cost_model=model, fuse=True, training=False)
    training = paleo.estimate_forward(graph, "K80", cost_model=model, fuse=True)
    assert inference.upper <= training.upper


def test_the_time_saved_by_a_joined_bias_and_activation_by_hand(net: Any) -> None:
    # 4 times the output less, at 100 GB/s; the convolution itself is bound by its bytes: it
    # takes 2 * 9 * 4 * 512 = 36,864 FLOPs, 0.037 us, and 8,768 bytes and more, 0.09 us.
    spec = net({"data": DATA, "c": conv(use_bias=True, activation_fn="relu")})
    plain, fused = (
        paleo.summarize(spec, device=ROUND, cost_model="roofline", fuse=fuse)
        for fuse in (False, True)
    )
    assert plain.forward is not None
    assert fused.forward is not None
    assert plain.forward - fused.forward == pytest.approx(4 * SIZE / 1e11)


# Commands


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize("command", ["summary", "simulate", "compare", "metrics"])
def test_every_command_fuses_and_says_so(command: str) -> None:
    nets = ("vgg11", "vgg11") if command == "compare" else ("vgg11",)
    arguments = (command, *nets, "--device=K80", "--cost_model=roofline")
    assert "fused" not in call(*arguments).stdout
    title = call(*arguments, "--fuse", "--quiet").stdout.split("\n\n")[0]
    assert "fused" in title
    for more in ((), ("--fuse",)):
        text = call(*arguments, *more, "--format=json").stdout
        assert f'"fuse": {str(bool(more)).lower()}' in text
        rows = list(csv.DictReader(io.StringIO(call(*arguments, *more, "--format=csv").stdout)))
        assert {row["fuse"] for row in rows} == {str(bool(more)).lower()}
    assert json.loads(call(*arguments, "--format=json").stdout) != json.loads(
        call(*arguments, "--fuse", "--format=json").stdout
    )


@pytest.mark.parametrize("parallel", ["data", "model", "hybrid"])
def test_every_kind_of_parallelism_fuses(parallel: str) -> None:
    plain, fused = (
        paleo.simulate(
            "alex_v2_2gpu",
            cost_model="roofline",
            parallel=parallel,
            hybrid_workers=2,
            workers=2,
            fuse=fuse,
        ).runs[0]
        for fuse in (False, True)
    )
    assert (plain.scenario.plan.fuse, fused.scenario.plan.fuse) == (False, True)
    assert plain.rows != fused.rows


def test_inference_of_metrics_fuses_batch_normalizations() -> None:
    asked: dict[str, Any] = {"device": "K80", "cost_model": "roofline", "batch_size": 8}
    plain, fused = (paleo.metrics("resnet18", fuse=fuse, **asked)[0] for fuse in (False, True))
    graph = paleo.build(paleo.load("resnet18"), 8, adapt=keep_shape)
    inference = paleo.estimate_forward(
        graph, "K80", cost_model="roofline", fuse=True, training=False
    )
    assert fused.inference == inference.upper < plain.inference
    assert fused.step.seconds < plain.step.seconds


def test_without_a_device_there_is_nothing_to_fuse() -> None:
    said = call("summary", "nin", "--fuse").stderr
    assert said == "paleo: note: --fuse is for --device, it has no effect here\n"
