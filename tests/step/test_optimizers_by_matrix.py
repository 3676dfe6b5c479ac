"""Optimizers that go by the matrices that parameters are, and variants of PyTorch's: by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.operations import MatMul, Update, total_work
from paleo.net.graph import build
from paleo.step.matrices import Matrix, all_matrices, matrices
from paleo.step.memory import footprint
from paleo.step.optimizers import OPTIMIZERS, Rule, find_optimizer
from paleo.step.passes import update_operations, update_time

#: Words, width, hidden width, and classes of a net with an MLP.
V, D, F, C = 1000, 64, 256, 10


def mlp() -> paleo.NetSpec:
    def product(parent: str, outputs: int) -> dict[str, Any]:
        return {"type": "InnerProduct", "parents": [parent], "num_outputs": outputs, "axis": -1}

    layers: dict[str, Any] = {
        "words": {"type": "Input", "parents": [], "tensor": [4, 16]},
        "embedding": {
            "type": "Embedding", "parents": ["words"], "num_embeddings": V, "num_outputs": D,
        },
        "norm": {"type": "LayerNorm", "parents": ["embedding"]},
        "up": product("norm", F),
        "down": product("up", D),
        "classes": product("down", C),
    }  # fmt: skip
    return paleo.loads(json.dumps({"name": "mlp", "layers": layers}))


#: Parameters: the table, scale and shift, products with biases.
PARAMS = V * D + 2 * D + (D * F + F) + (F * D + D) + (D * C + C)
#: Those of no matrix.
VECTORS = 2 * D + F + D + C


def test_matrices_are_those_of_products_and_of_what_is_looked_up() -> None:
    graph = build(mlp())
    found = {graph.nodes[i].name: those for i, those in enumerate(matrices(graph)) if those}
    assert found == {
        "embedding": (Matrix(V, D, is_hidden=False),),
        "up": (Matrix(D, F),),
        "down": (Matrix(F, D),),
        "classes": (Matrix(D, C, is_hidden=False),),  # it makes the result
    }


def test_a_tied_head_makes_the_result_and_leaves_the_last_block_hidden() -> None:
    graph = build(paleo.load("gpt2"))
    found = {graph.nodes[i].name: those for i, those in enumerate(matrices(graph)) if those}
    assert "lm_head" not in found
    assert found["h/11/c_proj"] == (Matrix(3072, 768),)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("lion", 4 * PARAMS),
        ("adamw", 8 * PARAMS),
        # A number for each row and each column.
        ("adafactor", 4 * ((V + D) + 2 * (D + F) + (D + C) + VECTORS)),
        # Two bytes and, for each block of 256, two scales of 4; the last product's 640 are few.
        (
            "adam_8bit",
            2 * (V * D + 2 * D * F) + 8 * (V * D // 256 + 2 * (D * F // 256))
            + 8 * (D * C + VECTORS),
        ),
        ("muon", 4 * (2 * D * F) + 8 * (V * D + D * C + VECTORS)),
    ],
)  # fmt: skip
def test_the_state_is_that_of_each_matrix(name: str, state: int) -> None:
    found = footprint(mlp(), optimizer=name)
    assert found.optimizer_state == state
    assert found.gradients == 4 * PARAMS


def filters() -> paleo.NetSpec:
    """A convolution of 3 x 3, 4 to 512 channels, one of 1 x 1, and a transposed one in 2 groups."""
    layers: dict[str, Any] = {
        "images": {"type": "Input", "tensor": [2, 8, 8, 4]},
        "wide": {"type": "Convolution", "parents": ["images"], "filter": [3, 3, 4, 512],
                 "strides": [1, 1, 1, 1], "padding": "SAME", "use_bias": True},
        "mix": {"type": "Convolution", "parents": ["wide"], "filter": [1, 1, 512, 6],
                "strides": [1, 1, 1, 1], "padding": "SAME", "use_bias": False},
        "up": {"type": "Deconvolution", "parents": ["mix"], "filter": [2, 2, 4, 6], "groups": 2,
               "strides": [1, 2, 2, 1], "padding": "SAME", "output_shape": [2, 16, 16, 8],
               "use_bias": False},
    }  # fmt: skip
    return paleo.loads(json.dumps({"name": "filters", "layers": layers}))


#: Weights of these: K C R S, and the biases.
WIDE, MIX, UP, BIASES = 512 * 4 * 9, 6 * 512, 6 * 4 * 4, 512


def test_filters_are_matrices_of_their_last_two_dimensions() -> None:
    graph = build(filters())
    assert graph.num_params == WIDE + MIX + UP + BIASES
    found = [those for those in matrices(graph) if those]
    assert found == [
        (Matrix(3, 3, 512 * 4, is_hidden=False),),
        (Matrix(1, 1, 6 * 512, is_hidden=False),),
        (Matrix(2, 2, 6 * 4, is_hidden=False),),
    ]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        # R + S of each filter and channel: of 1 x 1 twice as much as there is.
        ("adafactor", 4 * (512 * 4 * 6 + 6 * 512 * 2 + 6 * 4 * 4 + BIASES)),
        # One tensor of 4,096 or more, in blocks of 256; of the others two numbers.
        ("adam_8bit", 2 * (WIDE + 4 * (WIDE // 256)) + 8 * (MIX + UP + BIASES)),
        ("muon", 8 * (WIDE + MIX + UP + BIASES)),
    ],
)
def test_the_state_of_filters(name: str, numbers: int) -> None:
    assert footprint(filters(), optimizer=name).optimizer_state == numbers


def test_a_sequence_s_filters_are_matrices_of_channels_and_window() -> None:
    layers: dict[str, Any] = {
        "words": {"type": "Input", "tensor": [2, 8, 4]},
        "slide": {"type": "Convolution", "parents": ["words"], "filter": [3, 4, 6],
                  "strides": [1, 1, 1], "padding": "SAME", "use_bias": False},
    }  # fmt: skip
    graph = build(paleo.loads(json.dumps({"name": "slide", "layers": layers})))
    assert matrices(graph)[1] == (Matrix(4, 3, 6, is_hidden=False),)


def test_a_block_of_fewer_numbers_has_a_scale_too() -> None:
    optimizer = OPTIMIZERS["adam_8bit"]
    assert optimizer.state_bytes(5000, 4, (Matrix(50, 100),)) == 2 * (5000 + 4 * 20)  # 19.5 blocks


def test_a_mixed_step_keeps_states_in_fp32() -> None:
    assert footprint(mlp(), dtype="mixed_bf16", optimizer="lion").optimizer_state == 4 * PARAMS
    assert footprint(mlp(), dtype="bf16", optimizer="lion").optimizer_state == 2 * PARAMS


@pytest.mark.parametrize(
    ("name", "kernels", "states", "of_all", "of_one"),
    [
        ("adam", "foreach", 2, 1, 0),  # a root of all
        ("adam", "forloop", 2, 0, 2),  # two tensors as large as the table
        ("adam", None, 2, 0, 2),
        ("adagrad", "foreach", 1, 2, 0),  # and the scaled gradients
        ("adagrad", "forloop", 1, 0, 1),
        ("rmsprop", "foreach", 1, 1, 0),
    ],
)
def test_many_tensors_at_once_need_a_root_of_all(
    name: str, kernels: str | None, states: int, of_all: int, of_one: int
) -> None:
    # At so small a batch the update is the peak: the batch and its result; weights, gradients and
    # states, and what is made on the way.
    found = footprint(mlp(), 1, optimizer=name, optimizer_kernels=kernels)
    assert found.peak_pass == "update"
    held = 4 * 16 + 4 * 16 * C
    assert found.peak == 4 * ((2 + states + of_all) * PARAMS + of_one * V * D) + held
    assert found.optimizer_state == 4 * states * PARAMS


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "adagrad"])
def test_one_kernel_of_all_takes_no_memory_of_its_own(name: str) -> None:
    found = footprint(mlp(), 1, optimizer=name, optimizer_kernels="fused")
    assert found.peak_pass == "backward"
    assert found.purpose == f"training with {name} (fused)"
    assert found.to_dict()["optimizer_kernels"] == "fused"


@pytest.mark.parametrize(
    ("name", "kernels", "reads", "writes"),
    [
        # d w (1, 1); b m, c g (2, 2); their sum (2, 1); sign (1, 1); w (2, 1); b m + c g (3, 2).
        ("lion", None, 11, 8),
        ("adam", "foreach", 11, 7),
        ("adamw", "forloop", 12, 8),
        ("adamw", "fused", 4, 3),
        ("momentum", "fused", 3, 2),
        ("momentum", "foreach", 5, 3),
        ("sgd", "foreach", 2, 1),
        # |w|, rows and columns of g (3, 0); their product (0, 1); scaled, clamped, root (3, 3);
        # times g (2, 1); its norm (1, 0); w (2, 1).
        ("adafactor", None, 11, 6),
        ("adafactor", "forloop", 11, 6),
        ("adafactor", "foreach", 12, 7),  # the update is scaled before it is added
    ],
)
def test_an_update_moves_what_pytorch_moves(
    name: str, kernels: str | None, reads: int, writes: int
) -> None:
    for framework in ("pytorch", "tensorflow") if kernels else ("pytorch",):
        rule = Rule(find_optimizer(name, kernels), FRAMEWORKS[framework])
        found = rule.operations(1000, 4, 10)
        assert sum(len(each.reads) for each in found) == reads
        assert sum(len(each.writes) for each in found) == writes


def test_means_in_bytes_move_a_byte_each() -> None:
    (found,) = Rule(OPTIMIZERS["adam_8bit"]).operations(1000, 4, 10)
    assert isinstance(found, Update)
    # Weights and gradients in 4 bytes, two means in 1; weights and means are written.
    assert sum(found.reads) == 1000 * (4 + 4 + 1 + 1)
    assert sum(found.writes) == 1000 * (4 + 1 + 1)
    assert found.kernels == 10


def test_for_loops_have_a_kernel_for_each_tensor_and_foreach_few() -> None:
    def kernels(name: str, own: str | None = None, framework: str = "pytorch") -> set[Any]:
        rule = Rule(find_optimizer(name, own), FRAMEWORKS[framework])
        return {each.kernels for each in rule.operations(1000, 4, 97) if isinstance(each, Update)}

    assert kernels("adam", "forloop") == kernels("adafactor") == kernels("muon") == {97}
    assert kernels("sgd", "forloop") == {97}
    # 48 tensors each, in any framework; norms are those of a tensor.
    for framework in ("pytorch", "pytorch1"):
        assert kernels("adam", "foreach", framework) == kernels("adamw", "fused", framework) == {3}
        assert kernels("sgd", "foreach", framework) == {3}
        assert kernels("adafactor", "foreach", framework) == {3, 97}


def test_pytorch_takes_many_tensors_at_once_by_itself() -> None:
    def update(**settings: Any) -> float:
        (run,) = paleo.simulate(
            "gpt2", device="A100", workers=1, optimizer="adamw", **settings
        ).runs
        return float(run.rows[0]["update"])

    usual = update(framework="pytorch")
    assert update(framework="pytorch", optimizer_kernels="foreach") == usual
    # 4 + 3 elements of each parameter in the place of 12 + 8.
    fused = update(framework="pytorch", optimizer_kernels="fused")
    assert fused == pytest.approx(usual * 7 / 20, rel=0.02)
    assert update() == pytest.approx(fused, rel=0.02)  # one kernel where no framework is named


def test_gradients_of_all_are_clipped_whatever_updates_them() -> None:
    graph = build(mlp())
    rule = Rule(OPTIMIZERS["muon"], clipped=True)
    found = rule.operations(PARAMS, 4, 8, all_matrices(graph))
    norm, clipped, *_ = found
    assert isinstance(norm, Update)
    assert isinstance(clipped, Update)
    assert norm.num_params == clipped.num_params == PARAMS


@pytest.mark.parametrize(
    ("name", "kernels", "said"),
    [
        ("rmsprop", "fused", "rmsprop has foreach or forloop, got 'fused'"),
        ("lion", "foreach", "lion has no choice of them, got 'foreach'"),
        ("fused_adam", "foreach", "fused_adam has fused, got 'foreach'"),
        ("adam", "one", "expected fused or foreach or forloop, got 'one'"),
    ],
)
def test_kernels_that_an_optimizer_lacks_are_an_error(name: str, kernels: str, said: str) -> None:
    settings: Any = {"optimizer": name, "optimizer_kernels": kernels}
    for ask in (paleo.simulate, paleo.memory, paleo.metrics):
        with pytest.raises(paleo.PaleoError) as caught:
            ask("lenet5", **settings)
        assert str(caught.value) == f"optimizer_kernels: {said}"


def test_muon_iterates_five_times_over_each_hidden_matrix() -> None:
    graph = build(mlp())
    those = tuple(each for found in matrices(graph) for each in found)
    found = update_operations(PARAMS, "fp32", Rule(OPTIMIZERS["muon"]), 8, those)
    products = [each for each in found if isinstance(each, MatMul)]
    assert len(products) == 2 * 5 * 3
    # 2 matrices of 64 x 256, r = 64 and c = 256.
    assert total_work(tuple(products)).flops == 2 * 5 * (4 * D * D * F + 2 * D**3)
    assert {each.dtype for each in products} == {"bf16"}
    updates = [each for each in found if isinstance(each, Update)]
    assert {each.num_params for each in updates} == {2 * D * F, PARAMS - 2 * D * F}


@pytest.mark.parametrize("device", ["H100_SXM", "V100_SXM2_16GB", "EPYC_7763"])
def test_products_of_an_update_take_time_on_any_device(device: str) -> None:
    those = (Matrix(4096, 4096, 10),)
    target, model = paleo.scenario(mlp(), device=device).plan.target, paleo.find_cost_model("tiled")
    rule = Rule(OPTIMIZERS["muon"])
    with_products = update_time(10 * 4096**2, target, model, "fp32", rule, 10, those)
    peak = max(
        float(paleo.find_device(device).peak(dtype))
        for dtype in paleo.find_device(device).peaks
        if dtype in ("fp32", "bf16")
    )
    assert with_products.total > 10 * 5 * 6 * 4096**3 / peak


@pytest.mark.parametrize("name", ["adafactor", "adam_8bit", "muon"])
@pytest.mark.parametrize("net", ["gpt2", "resnet50", "lstm_lm"])
def test_every_net_has_a_step_and_a_footprint(name: str, net: str) -> None:
    (run,) = paleo.simulate(net, optimizer=name, workers=[1, 2], scaling="weak", batch_size=4).runs
    assert run.rows[0]["update"] > 0
    found = footprint(net, 4, optimizer=name)
    assert 0 < found.optimizer_state <= 2 * found.gradients
    largest = paleo.largest_batch(net, float(found.peak), optimizer=name)
    assert largest == 4
