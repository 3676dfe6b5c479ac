"""Layers of repeated blocks as one row: nothing is lost, what differs by index stays apart."""

from __future__ import annotations

import json
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.measure.profile import profile
from paleo.studies.compare.folding import folded_comparison
from paleo.studies.folding import fold, folded_footprint, folded_summary

#: Four instances of two layers: 3 x 3 weights and 3 biases, and an activation; the first and the
#: third activation are another one's.
NET: dict[str, Any] = {
    "in": {"type": "Input", "parents": [], "tensor": [2, 3]},
    "b": {
        "type": "Block",
        "parents": ["in"],
        "repeat": 4,
        "endpoint": "act",
        "layers": {
            "dense": {"type": "InnerProduct", "parents": [], "num_outputs": 3},
            "act": {"type": "Activation", "parents": ["dense"], "function": "relu"},
        },
    },
    "out": {"type": "InnerProduct", "parents": ["b"], "num_outputs": 5},
}
#: The same, but the products of 0 and 2 have no biases.
VARIED: dict[str, Any] = json.loads(json.dumps(NET))
VARIED["b"]["layers"]["dense"]["use_bias"] = {"by_index": [False, True]}


def printed(*arguments: str, columns: int = 80) -> list[str]:
    result = click.testing.CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_instances_are_one_layer_of_sums(net: Any) -> None:
    summary = paleo.summarize(net(NET), device="K40")
    found = folded_summary(summary)
    assert [(each.name, each.instances) for each in found.layers] == [
        ("in", 1), ("b/*/dense", 4), ("b/*/act", 4), ("out", 1),
    ]  # fmt: skip
    dense = found.layers[1]
    assert dense.num_params == 4 * (3 * 3 + 3)
    assert dense.forward_flops == 4 * 2 * (2 * 3 * 3)
    assert dense.weights_bytes == 4 * 4 * (3 * 3 + 3)
    assert (dense.output, dense.activations_bytes) == ((2, 3), 4 * 4 * (2 * 3))
    assert dense.forward == pytest.approx(
        sum(each.forward or 0 for each in summary.layers if each.name.endswith("dense"))
    )
    assert found.num_params == summary.num_params == 4 * 12 + 3 * 5 + 5
    assert found.forward == pytest.approx(summary.forward)
    assert found.backward_time == pytest.approx(summary.backward_time)


def test_what_differs_by_index_stays_apart(net: Any) -> None:
    found = folded_summary(paleo.summarize(net(VARIED)))
    assert [(each.name, each.instances, each.num_params) for each in found.layers] == [
        ("in", 1, 0), ("b/0/dense", 2, 2 * 9), ("b/1/dense", 2, 2 * 12), ("b/*/act", 4, 0),
        ("out", 1, 20),
    ]  # fmt: skip


def test_work_is_of_all_instances(net: Any) -> None:
    summary = paleo.summarize(net(NET), device="K40", cost_model="roofline")
    found = folded_summary(summary)
    flops = {(each.layer, each.pass_name): each.flops for each in found.reached}
    assert flops["b/*/dense", "forward"] == sum(
        each.flops
        for each in summary.reached
        if each.layer.endswith("dense") and each.pass_name == "forward"
    )
    assert sum(each.flops for each in found.reached) == sum(each.flops for each in summary.reached)


def test_blocks_in_blocks_have_the_product(net: Any) -> None:
    inner = {**NET["b"], "parents": []}
    outer = {"type": "Block", "parents": ["in"], "repeat": 3, "endpoint": "b"}
    spec = net({"in": NET["in"], "o": {**outer, "layers": {"b": inner}}})
    found = folded_summary(paleo.summarize(spec))
    assert [(each.name, each.instances) for each in found.layers] == [
        ("in", 1), ("o/*/b/*/dense", 12), ("o/*/b/*/act", 12),
    ]  # fmt: skip


def test_a_net_that_repeats_nothing_is_as_it_was() -> None:
    summary = paleo.summarize("lenet5")
    assert folded_summary(summary) is summary
    footprint = paleo.footprint("lenet5")
    assert folded_footprint(footprint) is footprint


def test_memory_adds_up(net: Any) -> None:
    footprint = paleo.footprint(net(VARIED), optimizer="adam")
    found = folded_footprint(footprint)
    assert [(each.name, each.instances, each.weights) for each in found.layers] == [
        ("in", 1, 0), ("b/0/dense", 2, 4 * 18), ("b/1/dense", 2, 4 * 24), ("b/*/act", 4, 0),
        ("out", 1, 80),
    ]  # fmt: skip
    for name in ("weights", "gradients", "optimizer_state", "activations"):
        assert getattr(found, name) == getattr(footprint, name)


def test_differences_add_up(net: Any) -> None:
    deeper = json.loads(json.dumps(NET))
    deeper["b"]["repeat"] = 6
    found = folded_comparison(paleo.compare([net(NET), net(deeper)], device="K40"))
    (difference,) = found.differences
    assert difference.repeats == {"b/*/": 6}
    rows = {each.name: each for each in difference.layers}
    assert [(name, each.instances, each.change) for name, each in rows.items()] == [
        ("in", 1, ""), ("b/0/dense", 4, ""), ("b/4/dense", 2, "added"), ("b/0/act", 4, ""),
        ("b/4/act", 2, "added"), ("out", 1, ""),
    ]  # fmt: skip
    kept, added = rows["b/0/dense"], rows["b/4/dense"]
    assert kept.other
    assert kept.reference
    assert added.other
    assert kept.other.figures.num_params == kept.reference.figures.num_params == 4 * 12
    assert (added.reference, added.other.figures.num_params) == (None, 2 * 12)


def test_predicted_passes_add_up(net: Any) -> None:
    (run,) = profile(net(VARIED), direction="all").runs
    found = run.folded()
    assert found.predicted == pytest.approx(run.predicted)
    instances = {(each.layer, each.direction): each.instances for each in found.rows}
    assert instances["b/0/dense", "weight_gradient"] == 2
    assert instances["b/*/act", "input_gradient"] == 4
    assert len(instances) == len(found.rows)


def test_rows_keep_the_order_of_the_net() -> None:
    rows = [("b/0/x", 1), ("b/0/y", 1), ("b/1/x", 2), ("b/1/y", 1), ("c", 1)]
    found = fold(rows, {"b/*/": 2}, lambda row: row[1], lambda row: row[0])
    assert [(name, len(alike)) for name, alike in found] == [
        ("b/0/x", 1), ("b/1/x", 1), ("b/*/y", 2), ("c", 1),
    ]  # fmt: skip


def test_a_block_is_in_one_piece() -> None:
    rows = ["a", "b/0/x", "c", "b/0/i/0/y", "d", "b/0/z", "b/0/i/0/w", "b/1/x"]
    found = fold(rows, {"b/*/": 2, "b/*/i/*/": 1}, lambda row: row[-1], lambda row: row)
    assert [name for name, _ in found] == [
        "a", "b/*/x", "b/*/i/*/y", "b/*/i/*/w", "b/*/z", "c", "d",
    ]  # fmt: skip
    lines = printed("summary", "gpt2")
    assert lines.count("h x 12") == 1


def test_126_blocks_are_one_screen() -> None:
    lines = printed("summary", "llama3_405b")
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert "model/layers x 126" in lines
    # 23 layers of a block, and input_ids, model/embed_tokens, model/norm and lm_head.
    start, end = (i for i, line in enumerate(lines) if line.startswith("---"))
    assert end - start - 1 == 1 + 23 + 4
    row = next(line.split() for line in lines if line.startswith("  self_attn/q_proj"))
    assert row[2] == f"{126 * 16384 * 16384:,}"
    params = [
        int(line.split()[2].replace(",", ""))
        for line in lines[start + 1 : end]
        if line != "model/layers x 126"
    ]
    total = next(line.split() for line in lines if line.startswith("total"))
    assert f"{sum(params):,}" == total[1] == "405,853,388,800"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("memory", ("--optimizer=adam",)),
        ("summary", ("--device=H100_SXM",)),
        ("profile", ("--device=H100_SXM",)),
    ],
)
def test_other_tables_of_126_blocks_are_one_screen(command: str, options: tuple[str, ...]) -> None:
    lines = printed(command, "llama3_405b", *options)
    assert "model/layers x 126" in lines
    assert len(lines) <= 52


def test_every_layer_is_shown_where_it_is_asked_for() -> None:
    lines = printed("summary", "gpt2", "--every_layer", "--columns=params")
    assert sum(line.startswith("h/") for line in lines) == sum(
        layer.name.startswith("h/") for layer in paleo.summarize("gpt2").layers
    )
    assert "h/11/ln_1" in {line.split()[0] for line in lines if line}
    assert not any("sums over its instances" in line for line in lines)


def test_programs_get_every_layer() -> None:
    names = [layer.name for layer in paleo.summarize("gpt2").layers]
    values = json.loads("\n".join(printed("summary", "gpt2", "--format=json")))["nets"][0]
    assert [layer["name"] for layer in values["layers"]] == names
    assert "instances" not in values["layers"][1]
    # Training has a loss, behind the net, and labels come in for it.
    for command, wanted in (("summary", names), ("memory", [*names, "labels", "loss"])):
        header, *rows = printed(command, "gpt2", "--format=csv")
        place = header.split(",").index("name")
        assert sorted(row.split(",")[place] for row in rows) == sorted(wanted)


def test_kinds_and_instances_are_said_in_rows_put_in_order(tmp_path: Any) -> None:
    file = tmp_path / "varied.json"
    file.write_text(json.dumps({"name": "varied", "layers": VARIED}))
    lines = printed("summary", str(file), "--sort=params")
    start = next(i for i, line in enumerate(lines) if line.startswith("---"))
    assert [line.split("  ")[0] for line in lines[start + 1 : start + 6]] == [
        "b/1/dense x 2", "out", "b/0/dense x 2", "in", "b/*/act x 4",
    ]  # fmt: skip
    lines = printed("summary", str(file))
    start = lines.index("b x 4") if "b x 4" in lines else -1
    assert [line.split("  ")[1] for line in lines[start + 1 : start + 4]] == [
        "0/dense x 2", "1/dense x 2", "act",
    ]  # fmt: skip


def test_columns_that_are_left_out_are_named(tmp_path: Any) -> None:
    lines = printed("summary", "llama3_405b")
    assert "left out for want of room: type, parents, weights, activations (--wide)" in lines
    wide = printed("summary", "llama3_405b", "--wide", columns=300)
    assert not any("left out" in line for line in wide)


def test_one_explanation_stands_for_instances_that_are_alike() -> None:
    lines = printed("summary", "gpt2", "--device=T4", "--explain=h/*/ln_1", columns=300)
    assert sum("(LayerNorm) of gpt2" in line for line in lines) == 1
    assert any(line.startswith("h/*/ln_1 x 12 (LayerNorm)") for line in lines)
    every = printed("summary", "gpt2", "--device=T4", "--explain=h/*/ln_1", "--every_layer")
    assert sum("(LayerNorm) of gpt2" in line for line in every) == 12
