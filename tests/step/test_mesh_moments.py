"""The memory of devices that share a net, from moment to moment, of a chain of products by hand.

Three blocks, each a product of rows of D by D x D without bias: P = D D parameters, and tensors of
T = 4 N D bytes. Parameters and gradients have 4 bytes each.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from paleo.net.division import divided
from paleo.net.generators import transformer
from paleo.net.graph import build
from paleo.net.layers.dense import InnerProduct
from paleo.net.layers.exchanges import AllGather
from paleo.net.layers.pointwise import Elementwise
from paleo.net.layers.reshape import Input, Parameter
from paleo.net.spec import LayerSpec, NetSpec
from paleo.step.memory.footprint import _schedule, step_for
from paleo.step.memory.moments import Gathering, Moment, gathered_moments, moments
from paleo.step.memory.stage import PARTS, Sharing, StageMemory, stage_memory, taken
from paleo.step.memory.usage import Step
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.pipelines import PIPELINES
from paleo.step.recompute import NOTHING
from paleo.step.scenario import scenario
from paleo.step.stages import cut
from paleo.studies.mesh_memory import mesh_memory

BLOCKS, D, N = 3, 32, 4
P, T = D * D, 4 * N * D


def chain(blocks: int = BLOCKS) -> NetSpec:
    layers = [LayerSpec("data", Input(tensor=(N, D)), ())]
    for i in range(blocks):
        product = InnerProduct(num_outputs=D, use_bias=False)
        layers.append(LayerSpec(f"h/{i}/fc", product, (layers[-1].name,)))
    return NetSpec("chain", tuple(layers))


def step(optimizer: str = "sgd") -> Step:
    settings = {"optimizer": optimizer, "optimizer_kernels": None, "dtype": "fp32"}
    return step_for(chain(), N, loss="none", recompute=NOTHING, **settings)


def sums(found: list[Moment]) -> list[tuple[Any, ...]]:
    """Return what moments have, without the points that they are at."""
    return [each[:3] for each in found]


#: The data is node 0.
UNITS = [[1], [2], [3]]


def test_gathered_parameters_have_a_buffer_besides() -> None:
    found = gathered_moments(step(), Gathering(UNITS, False, 4, 4))
    # Forward: the unit, and the buffer that it came in or the next one comes in.
    ahead = [moment for moment in found if not moment.gradients and moment.buffers == 8 * P]
    assert len(ahead) >= BLOCKS
    # The second block's backward pass: its parameters, the first one's on their way, the third
    # one's gradients that are summed, its own; x, what came into it, the result, two gradients.
    assert (5 * T, 16 * P, P) in sums(found)
    assert max(moment.buffers for moment in found) == 16 * P
    assert found[-1].gradients == BLOCKS * P


def test_parameters_that_stay_gathered_go_block_by_block() -> None:
    found = gathered_moments(step(), Gathering(UNITS, True, 4, 4))
    # At the end of the forward pass all three, and the last one's buffer.
    assert max(moment.buffers for moment in found if not moment.gradients) == (12 + 4) * P
    # The second block's backward pass: two of them, its gradients, the third one's in a buffer.
    assert (5 * T, (8 + 4 + 4) * P, P) in sums(found)


def test_gradients_that_are_there_are_added_to() -> None:
    new, there = (moments(step(), there=each) for each in (False, True))
    # The third block's backward pass: what came into each, the result, its gradient, another.
    assert (6 * T, 0, P) in sums(new)
    assert (6 * T + 4 * P, 0, BLOCKS * P) in sums(there)


def shared(**settings: Any) -> StageMemory:
    usual: dict[str, Any] = {"zero": 0, "own": lambda size: size // 2, "is_shared": True}
    usual |= {"batches": 1, "in_flight": 1}
    optimizer = settings.pop("optimizer", "sgd")
    sharing = Sharing(**usual | settings)
    return stage_memory(0, taken(step(optimizer), UNITS, sharing), sharing)


def test_buckets_stay_and_gradients_are_views_of_them_or_copied() -> None:
    # All gradients, in buckets; the third block's new one beside, at the peak.
    assert shared().total == (12 + 12 + 4) * P + 6 * T
    # Buckets and gradients, which are all there at the end: then x, the result, two gradients,
    # of which the data has none.
    assert shared(buckets_apart=True).total == (12 + 12 + 12) * P + 3 * T


def test_shares_of_a_gathered_step_add_up() -> None:
    # Adam, 2 devices: a half of 4 + 8 bytes of 3 P, a half of the third block's gradients.
    found = shared(zero=3, optimizer="adam")
    assert found.total == (12 * 3 // 2 + 2) * P + 16 * P + 5 * T
    assert (found.weights, found.optimizer_state, found.gradients) == (6 * P, 12 * P, 2 * P)
    assert found.buffers == 16 * P


def test_micro_batches_in_flight_keep_what_came_into_products() -> None:
    # All four are in flight, and of the second to come back gradients are there:
    # two others, each with what came into three products.
    found = shared(is_shared=False, batches=4, in_flight=4)
    first = (12 + 12) * P + 3 * 3 * T + 3 * T  # at the first one's end all gradients are there
    later = (12 + 12 + 4) * P + 2 * 3 * T + 6 * T
    assert found.total == max(first, later)
    # At that peak one is half way back: of the four, what came into nine products is there.
    assert (found.activations, found.passing) == (3 * 3 * T, 4 * P + 3 * T)
    assert found.kept == 4 * 3 * T


def test_buffers_for_all_micro_batches_are_there_at_once() -> None:
    usual = {"is_shared": False, "batches": 4, "in_flight": 2}
    plain = shared(**usual)
    # Two more come in, three more gradients come back, and one other has given its result.
    more = shared(**usual, received=T, sent=T, receives_all=True)
    assert more.total - plain.total == 2 * T + 3 * T + T
    assert more.buffers - plain.buffers == 6 * T


def test_where_weights_gradients_wait_what_they_need_does_too() -> None:
    usual = {"is_shared": False, "batches": 4, "in_flight": 2}
    late = shared(**usual, waiting=1)
    assert late.total - shared(**usual).total == 3 * T
    stays = shared(**usual, receives_all=True)
    # PyTorch keeps the gradients of the three products' results as well.
    assert shared(**usual, receives_all=True, waiting=1).total - stays.total == 6 * T


def test_every_stage_of_zero_bubble_has_as_many_micro_batches_as_there_are_stages() -> None:
    pipeline = PIPELINES["zero_bubble"]
    for stage in range(4):
        kept = pipeline.in_flight(stage, 4, 8) + pipeline.waiting(stage, 4, 8)
        assert kept == 4
    assert PIPELINES["1f1b"].waiting(3, 4, 8) == 0


def test_a_stage_in_the_middle_has_a_gradient_for_the_one_before() -> None:
    settings: Any = {"dtype": "fp32", "loss": "none", "micro_batch": N, "schedule": "1f1b"}
    found = scenario(chain(), cluster="dgx_a100", pp=3, **settings)
    memory = Meshed(found.net, found.plan, Mesh.of(3, pp=3)).memory(N, 4)
    # Parameters, gradients and a new one; x, the result and both their gradients; of another x.
    assert [int(stage.allocated) for stage in memory[1:]] == [
        12 * P + (4 + 1) * T,
        12 * P + 4 * T,
    ]
    # The first stage's data has no gradient, and two others are in flight.
    assert int(memory[0].allocated) == 12 * P + (3 + 2) * T


def test_what_is_of_parameters_alone_is_where_it_is_read() -> None:
    """Importers put tensors of parameters where they like: before all blocks, here."""
    layers = [LayerSpec("data", Input(tensor=(N, D)), ())]
    layers += [LayerSpec(f"h/{i}/scale", Parameter(shape=(D,)), ()) for i in range(4)]
    for i in range(4):
        before = f"h/{i - 1}/mul" if i else "data"
        scaled = Elementwise(function="product")
        layers.append(LayerSpec(f"h/{i}/mul", scaled, (before, f"h/{i}/scale")))
    graph = build(NetSpec("scales", tuple(layers)), N)
    found = cut(graph, 2, 1, "even", [1.0] * len(graph.nodes))
    names = [[graph.nodes[i].name for i in found.nodes(stage)] for stage in range(2)]
    assert names[1] == ["h/2/scale", "h/3/scale", "h/2/mul", "h/3/mul"]
    assert found.sums([node.num_params for node in graph.nodes]) == [2 * D, 2 * D]
    assert [graph.nodes[i].name for i in found.passed(graph)[1]] == ["h/1/mul"]


def test_gathered_tensors_are_kept_or_gathered_again() -> None:
    net = transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=512, seq_len=16)
    for again in (True, False):
        part = divided(net, 2, sequence=True, again=again)
        gathers = [each.layer for each in part.layers if isinstance(each.layer, AllGather)]
        assert gathers
        before_products = [each for each in gathers if each.again]
        assert bool(before_products) == again


@pytest.mark.parametrize("framework", [None, "pytorch"])
def test_weights_gradients_are_priced_apart_with_any_framework(framework: str | None) -> None:
    found = scenario(
        chain(4), cluster="dgx_a100", pp=2, schedule="zero_bubble", framework=framework,
        micro_batch=N, dtype="fp32",
    )  # fmt: skip
    meshed = Meshed(found.net, found.plan, Mesh.of(2, pp=2))
    seconds = meshed.part.of(N).seconds
    assert 0 < sum(seconds.weights) < sum(seconds.backward)


NETS: dict[str, Any] = {
    "language": transformer(layers=4, hidden=64, heads=4, ffn=128, vocab=512, seq_len=16),
    "images": "nin",
}
#: What plans differ in whose memory is drawn.
DRAWN: dict[str, list[Any]] = {
    "zero": [0, 1, 2, 3],
    "recompute": ["none", "selective", "full"],
    "dtype": ["fp32", "bf16", "mixed_bf16"],
    "optimizer": ["sgd", "adamw"],
    "framework": [None, "pytorch", "megatron"],
    "micro_batch": [1, 2],
    "shape": [
        {"workers": 2, "tp": 2},
        {"workers": 4, "pp": 2},
        {"workers": 4, "pp": 2, "interleave": 2},
        {"workers": 4, "pp": 2, "schedule": "zero_bubble"},
        {"workers": 4, "pp": 2, "schedule": "gpipe"},
        {"workers": 4, "pp": 2, "schedule": "dualpipe"},
        {"workers": 8, "tp": 2, "pp": 2, "sequence_parallel": True},
    ],
    "offload": [(), "optimizer", "activations", "optimizer,gradients"],
}


@pytest.mark.slow
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(st.sampled_from(("language", "images")), st.data())
def test_parts_add_up_to_the_total_that_is_shown(which: str, data: st.DataObject) -> None:
    """In whole bytes, of every stage; no part is less than nothing or more than there may be."""
    drawn = {name: data.draw(st.sampled_from(values), name) for name, values in DRAWN.items()}
    settings: Any = {"global_batch": 16, "cluster": "dgx_h100", **drawn, **drawn["shape"]}
    del settings["shape"]
    if which == "images":
        settings |= {"recompute": "none", "sequence_parallel": False}
    (found,) = mesh_memory(NETS[which], **settings)
    for stage, one in zip(found.to_dict()["stages"], found.stages, strict=True):
        parts = [stage[f"{name}_bytes"] for name in (*PARTS, "slack")]
        assert all(isinstance(part, int) and part >= 0 for part in parts), stage
        assert sum(parts) == stage["total_bytes"]
        assert stage["activations_bytes"] <= one.kept
    assert found.to_dict()["memory_bytes"] == max(int(one.total) for one in found.stages)


def test_a_mesh_of_one_stage_follows_its_net_once_for_all_micro_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def memory(micro_batch: int) -> list[Any]:
        (found,) = mesh_memory(
            "squeezenet", workers=4, zero=1, micro_batch=micro_batch, global_batch=32
        )
        return [stage.total for stage in found.stages]

    _schedule.cache_clear()
    apart = []
    for micro_batch in (1, 2, 8):
        apart.append(memory(micro_batch))
        _schedule.cache_clear()
    memory(4)
    monkeypatch.setattr("paleo.step.memory.liveness._Scheduling", None)
    assert [memory(2), memory(8)] == apart[1:]
