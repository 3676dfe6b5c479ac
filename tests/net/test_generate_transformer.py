"""The generator of language models: parameters and FLOPs by formula, dimensions, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.net.generators import transformer
from paleo.net.writer import dumps

SMALL: Any = {"layers": 3, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 10}


def test_llama_3_8b_has_the_parameters_that_were_published() -> None:
    net = transformer(kv_heads=8, ffn=14336, vocab=128256)
    assert paleo.summarize(net).num_params == 8_030_261_248


def test_llama_3_405b_has_the_parameters_that_were_published() -> None:
    net = transformer(126, 16384, 128, kv_heads=8, ffn=53248, vocab=128256)
    assert len(net.layers) == 126 * 24 + 4
    assert paleo.summarize(net).num_params == 405_853_388_800


@pytest.mark.parametrize(
    ("more", "heads", "head", "ffn"),
    [
        ({}, (4, 4), 16, 256),
        ({"kv_heads": 1}, (4, 1), 16, 256),
        ({"kv_heads": 2, "head": 32, "ffn": 96}, (4, 2), 32, 96),
        ({"tied": True}, (4, 4), 16, 256),
        ({"window": 4}, (4, 4), 16, 256),
    ],
)
def test_parameters_and_flops(
    more: dict[str, Any], heads: tuple[int, int], head: int, ffn: int
) -> None:
    net = transformer(**{**SMALL, **more}, batch_size=2)
    queries, keys = heads
    matrices = 3 * (64 * head * (2 * queries + 2 * keys) + 3 * 64 * ffn)
    tables = 100 * 64 * (1 if more.get("tied") else 2)
    norms = (2 * 3 + 1) * 64
    summary = paleo.summarize(net)
    assert summary.num_params == matrices + tables + norms
    seen = more.get("window", 10)
    attention = 3 * 2 * 2 * queries * seen * head
    products = sum(
        layer.forward_flops
        for layer in summary.layers
        if layer.type_name in ("InnerProduct", "Attention")
    )
    assert products == 2 * 10 * (2 * matrices + 2 * 100 * 64 + attention)


def test_its_dimensions_are_those_of_other_sizes() -> None:
    net = transformer(**SMALL).with_dims(seq=7, layers=2, hidden=32, heads=2)
    other = transformer(**{**SMALL, "seq_len": 7, "layers": 2, "hidden": 32, "heads": 2})
    assert net.layers == other.layers


def test_it_is_written_with_dimensions_and_one_repeated_block() -> None:
    net = transformer(**SMALL, name="mine")
    body = json.loads(dumps(net))
    assert body["name"] == "mine"
    assert body["dims"] == {
        "seq": 10, "vocabulary": 100, "layers": 3, "hidden": 64, "heads": 4,
        "kv_heads": "heads", "head": "hidden / heads", "ffn": "4 * hidden",
    }  # fmt: skip
    assert body["layers"]["layers"]["repeat"] == "layers"
    assert paleo.loads(dumps(net)) == net


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layers": 0}, "layers: expected 1 or more, got 0"),
        ({"kv_heads": 0}, "kv_heads: expected 1 or more, got 0"),
        ({"kv_heads": 3}, "kv_heads: 3 do not divide 4 heads"),
        ({"hidden": 66}, "heads: 4 do not divide a hidden size of 66; head gives their own"),
        ({"head": 5}, "head: 5 elements of a head cannot be turned in pairs"),
        ({"hidden": 20}, "head: 5 elements of a head cannot be turned in pairs"),
        ({"tied": 1}, "tied: expected true or false, got 1"),
        ({"name": ""}, 'name: expected a name that is not empty, got ""'),
        ({"layers": 10**5}, 'too large together: layer "layers": key "repeat": 100000 x 24 layers'),
    ],
)
def test_a_setting_out_of_range_is_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(paleo.SettingError) as caught:
        transformer(**{**SMALL, **settings})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_the_command_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    words = [f"--{key}={value}" for key, value in SMALL.items()]
    call = click.testing.CliRunner().invoke(
        cli, ["generate", "transformer", *words, "--kv_heads=2", "--tied", "-o", str(path)]
    )
    assert call.exit_code == 0, call.output
    assert paleo.load(path).layers == transformer(**SMALL, kv_heads=2, tied=True).layers
