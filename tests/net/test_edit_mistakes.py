"""What Paleo says of edits that cannot be: one line each, naming layer and key."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click.testing
import pytest

import paleo
import paleo.net.generators
from paleo.cli import cli
from tests.net.test_edit import DATA, conv, layer, refused

Net = Callable[..., paleo.NetSpec]


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (
            ["--set=conv99.filter[3]=1"],
            "layer \"conv99\": there is no such layer (did you mean 'conv9'?)",
        ),
        (
            ["--set=conv9.filter[7]=1"],
            'layer "conv9": key "filter": expected [7] to be an entry of [1, 1, 384, 384]',
        ),
        (
            ["--set=conv9.filter[4:]=1"],
            'layer "conv9": key "filter": expected [4:] to be an entry of [1, 1, 384, 384]',
        ),
        (
            ["--set=conv9.filter[0:2]=[1,2,3]"],
            'layer "conv9": key "filter": expected [0:2] to be 3 values of [1, 1, 384, 384]',
        ),
        (
            ["--set=conv9.groups[0]=1"],
            'layer "conv9": key "groups": 1 is no list with entries',
        ),
        (
            ["--set=conv9.filter[3]=many"],
            'layer "conv9": key "filter": expected a whole number, got "many"',
        ),
        (
            ["--set=conv9.filter[3]=0"],
            'layer "conv9": key "filter": expected 1 or more, got 0',
        ),
        (
            ["--set=conv9.filter[2]=5"],
            (
                'layer "conv9": key "filter": no longer fits: the filter takes 5 channels, '
                "the input has 384"
            ),
        ),
        (
            ["--set=conv1.filter[0:2]=500"],
            (
                'layer "conv1": key "filter": no longer fits: a window of 500 is larger than '
                "its padded input of 227"
            ),
        ),
        (
            ["--set=conv8"],
            'an edit: expected "LAYER.KEY=VALUE" or "LAYER.KEY[INDEX]=VALUE", got "conv8"',
        ),
        (
            ["--set=conv8.filter[x]=1"],
            (
                'an edit: expected "LAYER.KEY=VALUE" or "LAYER.KEY[INDEX]=VALUE", got '
                '"conv8.filter[x]=1"'
            ),
        ),
        (
            ["--set=conv8.filter[]=1"],
            'an edit: expected an index or FROM:TO in brackets, got "conv8.filter[]=1"',
        ),
        (
            ["--set=squeezenet.sr=0.5"],
            "squeezenet.sr=0.5: only what `paleo generate squeezenet` makes has these",
        ),
        (["--remove=poll3"], "layer \"poll3\": there is no such layer (did you mean 'pool3'?)"),
        (
            ["--remove=data"],
            'layer "data": cannot be removed: "conv1" would have to read nothing',
        ),
        (
            ["--remove=pool3", "--set=pool3.rounding=floor"],
            'layer "pool3": it is removed, and so cannot be changed',
        ),
        (["--remove=*"], 'key "layers": no Input is left'),
        (["--scale_input=0"], "scale_input: expected a number above 0, up to 2147483647, got 0.0"),
        (
            ["--scale_input=nan"],
            "scale_input: expected a number above 0, up to 2147483647, got NaN",
        ),
        (
            ["--vary=scale_input=1,x"],
            'scale_input: expected a number above 0, up to 2147483647, got "x"',
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(edits: list[str], said: str) -> None:
    for command in ("summary", "simulate", "convert"):
        assert refused(command, "nin_227", *edits) == [f"nin_227: {said}"]


def test_all_wrong_edits_are_said_together() -> None:
    lines = refused("summary", "nin_227", "--set=a.b=1", "--remove=c", "--set=conv1.filter[9]=1")
    assert [line.split(": ")[1] for line in lines] == ['layer "a"', 'layer "c"']
    lines = refused("summary", "nin_227", "--set=x", "--remove=y", "--scale_input=-1")
    assert [line.split(": ")[1] for line in lines] == ["an edit", "scale_input", 'layer "y"']
    lines = refused("summary", "nin_227", "--set=conv1.filter[9]=1", "--set=conv4.filter[2]=1")
    assert [line.split(": ")[1] for line in lines] == ['layer "conv1"']  # conv4 reads it


@pytest.mark.parametrize(
    "vary", ["x", "=1", "conv8.filter[3]=", "conv8.filter[3]=1,,2", "scale_input"]
)
def test_variations_without_values_are_refused(vary: str) -> None:
    (line,) = refused("summary", "nin_227", f"--vary={vary}")
    assert line == (
        'vary: expected "LAYER.KEY[INDEX]=VALUE,VALUE,..." or "scale_input=FACTOR,...", '
        f'got "{vary}"'
    )


def test_the_batch_is_no_edit() -> None:
    for edit in ("--set=data.tensor[0]=7", "--set=data.tensor=[7,227,227,3]"):
        (line,) = refused("summary", "nin_227", edit)
        assert line == (
            'nin_227: layer "data": key "tensor": the batch is no edit: batch_size sets it'
        )
    (line,) = refused("summary", "squeezenet", "--set=squeezenet.batch_size=7")
    assert "no such metaparameter" in line


def test_only_what_a_generator_makes_has_metaparameters() -> None:
    said = "squeezenet.sr=0.5: only what `paleo generate squeezenet` makes has these"
    renamed = replace(paleo.load("lenet5"), name="squeezenet", file=None)
    for net in (renamed, paleo.edit("squeezenet", remove=["drop9"]), "squeezenet_simple_bypass"):
        with pytest.raises(paleo.NetSpecError) as caught:
            paleo.edit(net, set=["squeezenet.sr=0.5"])
        assert str(caught.value).endswith(said)
    made = paleo.net.generators.squeezenet(batch_size=7, name="mine")
    assert layer(paleo.edit(made, set="squeezenet.sr=0.5"), "data").tensor[0] == 7


def test_texts_are_taken_one_or_several() -> None:
    one = paleo.edit("nin_227", set="conv12.filter[3]=10", remove="pool12")
    assert (
        one.layers == paleo.edit("nin_227", set=["conv12.filter[3]=10"], remove=("pool12",)).layers
    )
    wrong: Any
    for wrong in (None, 1, [1], {"a": "b"}):
        with pytest.raises(paleo.SettingError, match="set: expected a text, or several, got"):
            paleo.edit("nin_227", set=wrong)
    with pytest.raises(paleo.NetSpecError, match="expected a name or a file, got 3"):
        paleo.edit(3, remove="pool3")  # type: ignore[arg-type]


def test_a_number_may_begin_with_its_point() -> None:
    assert (
        layer(paleo.edit("nin", set="drop.dropout_keep_prob=.25"), "drop").dropout_keep_prob == 0.25
    )


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (["--set=fire2.filter[3]=3"], 'layer "fire2": it is a block: name one of its layers'),
        (["--set=*pool*.nope=1"], 'layer "*pool*": none of these layers has a key "nope"'),
    ],
)
def test_names_that_mean_something_else_are_explained(edits: list[str], said: str) -> None:
    assert refused("summary", "squeezenet", *edits) == [f"squeezenet: {said}"]


def test_a_factor_is_given_or_varied() -> None:
    assert refused("summary", "nin", "--scale_input=2", "--vary=scale_input=1,2") == [
        "scale_input: give it or vary it, not both"
    ]


def test_a_series_has_a_limit() -> None:
    values = ",".join(map(str, range(1, 41)))
    arguments = [f"--vary=conv{i}.filter[3]={values}" for i in (7, 8)]
    assert refused("summary", "nin_227", *arguments) == ["vary: 1600 nets are more than 1000"]


def test_metaparameters_are_checked() -> None:
    assert refused("summary", "squeezenet", "--set=squeezenet.src=1") == [
        "squeezenet: squeezenet.src=1: no such metaparameter (did you mean 'sr'?)"
    ]
    assert refused("summary", "squeezenet", "--vary=squeezenet.sr=0.5,2") == [
        "sr: expected a number above 0, up to 1, got 2"
    ]


def test_a_sum_of_unequal_parts_says_which(net: Net) -> None:
    spec = net(
        {
            "data": DATA,
            "a": conv("data", 3, 3, 4),
            "b": conv("a", 3, 4, 4),
            "sum": {"type": "Elementwise", "parents": ["a", "b"]},
            "c": conv("sum", 3, 4, 4),
        }
    )
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.edit(spec, set=["b.filter[3]=8"])
    assert str(caught.value) == (
        'net: layer "sum": no longer fits: its parents differ in shape: 2x8x8x4, 2x8x8x8'
    )
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.edit(spec, remove=["sum"])
    assert str(caught.value) == (
        'net: layer "sum": cannot be removed: "c" would have to read "a" or "b"'
    )


def test_an_owner_of_shared_parameters_stays(net: Net) -> None:
    spec = net(
        {
            "data": DATA,
            "a": conv("data", 3, 3, 3),
            "b": conv("a", 3, 3, 3, shares="a"),
        }
    )
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.edit(spec, remove=["a"])
    assert str(caught.value) == 'net: layer "a": cannot be removed: "b" shares its parameters'


def test_what_shares_parameters_is_edited_with_their_owner(net: Net) -> None:
    spec = net({"data": DATA, "a": conv("data", 3, 3, 3), "b": conv("a", 3, 3, 3, shares="a")})
    for name in ("a", "b"):
        with pytest.raises(paleo.NetSpecError) as caught:
            paleo.edit(spec, set=[f"{name}.filter[0:2]=5"])
        assert str(caught.value) == (
            'net: layer "b": no longer fits: it shares the parameters of "a"; edit both'
        )
    both = paleo.edit(spec, set=["[ab].filter[0:2]=5"])
    assert paleo.summarize(both).num_params == 5 * 5 * 3 * 3 + 3


def test_an_edited_net_says_that_its_source_is_another() -> None:
    assert paleo.edit("nin", remove=["drop"]).source.startswith("edited: M. Lin")


@pytest.mark.parametrize(
    "edit", ["--set=parallel_fc67/fc6.filter[3]=9", "--remove=parallel_fc67/fc7"]
)
def test_split_layers_are_left_to_their_file(edit: str) -> None:
    (line,) = refused("summary", "alex_v2_4gpu", edit)
    assert line.endswith("split over devices: only its file can change it")


def test_layers_around_split_ones_can_be_edited() -> None:
    net = paleo.edit("alex_v2_4gpu", set=["conv5.filter[3]=512"])
    slices = [spec for spec in net.layers if spec.name.startswith("parallel_fc67/fc6@")]
    assert len(slices) == 4
    assert {spec.layer.filter[2] for spec in slices} == {512}  # type: ignore[attr-defined]


def test_one_file_holds_one_net() -> None:
    assert refused("convert", "nin", "--vary=scale_input=1,2") == [
        "vary: a file holds one net, and these are 2"
    ]


def test_edits_reach_every_net_and_every_command() -> None:
    result = click.testing.CliRunner().invoke(
        cli, ["summary", "vgg11", "vgg13", "--set=data.tensor[3]=4", "--format=json"]
    )
    names = [net["name"] for net in json.loads(result.stdout)["nets"]]
    assert names == ["vgg11 data.tensor[3]=4", "vgg13 data.tensor[3]=4"]
    result = click.testing.CliRunner().invoke(
        cli, ["simulate", "nin", "--vary=scale_input=1,2", "--num_workers=1", "--format=json"]
    )
    runs = json.loads(result.stdout)["runs"]
    assert [run["net"] for run in runs if run["scaling"] == "weak"] == [
        "nin input x1",
        "nin input x2",
    ]
