"""Edits of nets: what is changed, what follows, what no longer fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import paleo
import paleo.net.generators
from paleo.cli import cli
from paleo.net.edit import variations

Net = Callable[..., paleo.NetSpec]


def layer(net: paleo.NetSpec, name: str) -> Any:
    (found,) = [spec.layer for spec in net.layers if spec.name == name]
    return found


def parents(net: paleo.NetSpec, name: str) -> tuple[str, ...]:
    (found,) = [spec.parents for spec in net.layers if spec.name == name]
    return found


def output(net: paleo.NetSpec, name: str) -> tuple[Any, ...]:
    (found,) = [node.output for node in paleo.build(net).nodes if node.name == name]
    return found


def refused(*arguments: str, status: int = 1) -> list[str]:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    return [line.removeprefix("paleo: ") for line in result.stderr.splitlines()]


def conv(parent: str, window: int, channels: int, filters: int, **keys: Any) -> dict[str, Any]:
    return {
        "type": "Convolution",
        "parents": [parent],
        "filter": [window, window, channels, filters],
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    } | keys


DATA = {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}


# What follows


def test_the_next_filter_takes_as_many_channels_as_there_are_now() -> None:
    wide = paleo.edit("nin_227", set=["conv8.filter[3]=1536"])
    assert layer(wide, "conv8").filter == (1, 1, 384, 1536)
    assert layer(wide, "conv9").filter == (1, 1, 1536, 384)
    before, after = paleo.summarize("nin_227"), paleo.summarize(wide)
    # 1152 filters of 384 weights and a bias in conv8, 1152 channels for 384 filters in conv9.
    assert after.num_params - before.num_params == 1152 * (384 + 1) + 1152 * 384
    # 1024 images of 13 x 13, 2 FLOPs a multiply-add.
    positions = 1024 * 13 * 13
    assert after.forward_flops - before.forward_flops == 2 * positions * 1152 * 384 * 2


def test_layers_in_between_hand_the_change_on(net: Net) -> None:
    spec = net(
        {
            "data": DATA,
            "a": conv("data", 3, 3, 4),
            "bn": {"type": "BatchNorm", "parents": ["a"]},
            "b": conv("data", 3, 3, 5),
            "both": {"type": "Concatenate", "parents": ["bn", "b"], "dim": 3},
            "c": conv("both", 1, 9, 7),
            "derived": conv("both", 1, -1, 7),
        }
    )
    wide = paleo.edit(spec, set=["a.filter[3]=10"])
    assert layer(wide, "c").filter == (1, 1, 15, 7)
    assert layer(wide, "derived").filter == (1, 1, -1, 7)
    assert output(wide, "both") == (2, 8, 8, 15)


def test_groups_stay_but_depthwise_convolutions_have_one_for_each_channel(net: Net) -> None:
    spec = net(
        {
            "data": DATA,
            "a": conv("data", 3, 3, 8),
            "grouped": conv("a", 3, 4, 6, groups=2),
            "depthwise": conv("a", 3, 1, 16, groups=8),
        }
    )
    wide = paleo.edit(spec, set=["a.filter[3]=12"])
    assert (layer(wide, "grouped").filter, layer(wide, "grouped").groups) == ((3, 3, 6, 6), 2)
    assert (layer(wide, "depthwise").filter, layer(wide, "depthwise").groups) == ((3, 3, 1, 24), 12)


def test_the_channels_of_a_filter_follow_its_groups() -> None:
    grouped = paleo.edit("nin_227", set=["conv8.groups=2", "conv9.groups=384"])
    assert layer(grouped, "conv8").filter == (1, 1, 192, 384)
    assert layer(grouped, "conv9").filter == (1, 1, 1, 384)
    alone = paleo.edit("alexnet", set=["conv[245].groups=1"])
    assert layer(alone, "conv2").filter == (5, 5, 96, 256)
    # AlexNet's convolutions in two groups, and how many weights they spare.
    spared = 5 * 5 * 48 * 256 + 3 * 3 * 192 * 384 + 3 * 3 * 192 * 256
    assert paleo.summarize(alone).num_params - paleo.summarize("alexnet").num_params == spared


def test_what_is_set_and_what_follows_from_it_stand_beside_each_other() -> None:
    both = paleo.edit("alexnet", set=["conv2.groups=1", "conv2.filter[3]=512"])
    assert (layer(both, "conv2").filter, layer(both, "conv2").groups) == ((5, 5, 96, 512), 1)


def test_a_pooling_over_the_whole_image_stays_one(net: Net) -> None:
    pool = {"type": "AvgPool", "padding": "VALID"}
    spec = net(
        {
            "data": DATA,
            "whole": {**pool, "parents": ["data"], "ksize": [1, 8, 8, 1], "strides": [1, 8, 8, 1]},
            "step": {**pool, "parents": ["data"], "ksize": [1, 8, 8, 1], "strides": [1, 1, 1, 1]},
            "part": {**pool, "parents": ["data"], "ksize": [1, 4, 4, 1], "strides": [1, 4, 4, 1]},
        }
    )
    large = paleo.edit(spec, scale_input=2)
    assert (layer(large, "whole").ksize, layer(large, "whole").strides) == ((16, 16), (8, 8))
    assert output(large, "whole") == (2, 1, 1, 3)
    assert (layer(large, "step").ksize, layer(large, "step").strides) == ((16, 16), (1, 1))
    assert layer(large, "part").ksize == (4, 4)
    assert output(large, "part") == (2, 4, 4, 3)


def test_the_classes_of_a_softmax_follow() -> None:
    more = paleo.edit("nin", set=["cccp8.filter[3]=4000"])
    assert layer(more, "softmax").num_classes == 4000


def test_deconvolutions_slices_reshapes_and_resizes_follow(net: Net) -> None:
    spec = net(
        {
            "data": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 6]},
            "up": {
                "type": "Deconvolution",
                "parents": ["data"],
                "filter": [4, 4, 5, 6],
                "strides": [1, 2, 2, 1],
                "padding": [1, 1],
                "output_shape": [-1, 16, 16, 5],
            },
            "second": {"type": "Slice", "parents": ["data"], "dim": 3, "begin": 3, "size": 3},
            "first": {"type": "Slice", "parents": ["data"], "dim": 3, "begin": 0, "size": 1},
            "flat": {"type": "Reshape", "parents": ["data"], "output_shape": [-1, 64, 6]},
            "flatter": {"type": "Reshape", "parents": ["flat"], "output_shape": [-1, 384]},
            "resized": {"type": "Resize", "parents": ["data"], "size": [4, 24]},
        }
    )
    large = paleo.edit(spec, set=["data.tensor[1:3]=10", "data.tensor[3]=8"])
    # A stride of 2: 2 more in are 4 more out.
    assert layer(large, "up").output_shape == (-1, 20, 20, 5)
    assert layer(large, "up").filter == (4, 4, 5, 8)
    assert (layer(large, "second").begin, layer(large, "second").size) == (4, 4)
    assert (layer(large, "first").begin, layer(large, "first").size) == (0, 1)
    assert layer(large, "flat").output_shape == (-1, 100, 8)
    assert layer(large, "flatter").output_shape == (-1, 800)
    assert layer(large, "resized").size == (5, 30)


def test_a_reshape_that_cuts_a_dimension_in_several_does_not_guess(net: Net) -> None:
    spec = net(
        {
            "data": {"type": "Input", "parents": [], "tensor": [2, 8, 12]},
            "heads": {"type": "Reshape", "parents": ["data"], "output_shape": [-1, 8, 3, 4]},
        }
    )
    with pytest.raises(paleo.NetSpecError, match="it cuts a dimension that has changed"):
        paleo.edit(spec, set=["data.tensor[2]=24"])


# What is changed


def test_entries_slices_and_whole_keys_can_be_set() -> None:
    edited = paleo.edit(
        "nin_227",
        set=[
            "data.tensor[1:3]=[200, 300]",
            "conv7.filter[0:2]=6",
            "conv7.padding=[2,2]",
            "conv2.padding=VALID",
            'conv3.activation_fn="tanh"',
            "conv12.filter[-1]=10",
        ],
    )
    assert layer(edited, "data").tensor == (1024, 200, 300, 3)
    assert layer(edited, "conv7").filter == (6, 6, 256, 384)
    assert layer(edited, "conv7").padding == ((2, 2), (2, 2))
    assert layer(edited, "conv2").padding == "VALID"
    assert layer(edited, "conv3").activation_fn == "tanh"
    assert layer(edited, "conv12").filter == (1, 1, 1024, 10)


def test_a_pattern_means_all_layers_that_have_the_key() -> None:
    squeezed = paleo.edit("squeezenet", set=["fire*/squeeze1x1.filter[3]=20"])
    names = [spec.name for spec in squeezed.layers if spec.name.endswith("squeeze1x1")]
    assert len(names) == 8
    assert {layer(squeezed, name).filter[3] for name in names} == {20}
    assert layer(squeezed, "fire9/expand3x3").filter == (3, 3, 20, 256)


def test_the_name_says_what_was_edited() -> None:
    edits = paleo.Edits(("conv8.filter[3]=9",), ("pool3",), 2.0)
    assert edits.apply(paleo.load("nin_227")).name == (
        "nin_227 conv8.filter[3]=9, without pool3, input x2"
    )
    net = paleo.load("nin_227")
    assert paleo.Edits().apply(net) is net


def test_scaled_inputs_are_rounded_to_whole_numbers() -> None:
    # 227 x 1.5 = 340.5
    assert layer(paleo.edit("nin_227", scale_input=1.5), "data").tensor == (1024, 341, 341, 3)
    assert layer(paleo.edit("nin_227", scale_input=0.5), "data").tensor == (1024, 114, 114, 3)


# What is removed


def test_what_read_a_removed_layer_reads_what_it_read() -> None:
    without = paleo.edit("nin_227", remove=["pool3"])
    assert parents(without, "conv4") == ("conv3",)
    # 55 x 55 in the place of 27 x 27, and a mean over the whole 13 x 13 at the end.
    assert output(without, "conv4") == (1024, 55, 55, 256)
    assert output(without, "pool12") == (1024, 1, 1, 1000)


def test_a_block_can_be_removed() -> None:
    net = paleo.edit("squeezenet", remove=["fire9"])
    assert not [spec for spec in net.layers if spec.name.startswith("fire9/")]
    assert parents(net, "drop9") == ("maxpool8",)
    residual = paleo.edit("resnet18", remove=["res2b"])
    assert len(paleo.load("resnet18").layers) - len(residual.layers) == 7
    assert paleo.summarize(residual).num_params == (
        # Two convolutions of 3 x 3 x 64 x 64 without bias, two normalizations.
        paleo.summarize("resnet18").num_params - 2 * (9 * 64 * 64 + 2 * 64)
    )


def test_a_layer_at_the_end_can_be_removed() -> None:
    assert paleo.edit("nin", remove=["softmax"]).layers[-1].name == "pool4"


# Series


def test_a_series_has_every_combination() -> None:
    nets = paleo.series("nin_227", ["conv8.filter[3]=10,20", "scale_input=1,2"])
    assert [net.name.removeprefix("nin_227 ") for net in nets] == [
        "conv8.filter[3]=10, input x1",
        "conv8.filter[3]=10, input x2",
        "conv8.filter[3]=20, input x1",
        "conv8.filter[3]=20, input x2",
    ]
    assert [layer(net, "conv8").filter[3] for net in nets] == [10, 10, 20, 20]


def test_lists_may_be_varied_too() -> None:
    nets = paleo.series("nin_227", ["conv7.padding=[1,1],[2,2],SAME"])
    assert [layer(net, "conv7").padding for net in nets] == [
        ((1, 1), (1, 1)),
        ((2, 2), (2, 2)),
        "SAME",
    ]


def test_metaparameters_of_a_generator_can_be_varied() -> None:
    nets = paleo.series("squeezenet", ["squeezenet.sr=0.125,0.5,0.75"])
    # Figure 5.3 of the dissertation prints 4.8, 13 and 19 MB, which are MiB.
    sizes = [paleo.summarize(net).weights_bytes / 2**20 for net in nets]
    assert [round(float(size), 2) for size in sizes] == [4.76, 12.99, 18.47]
    both = paleo.edit("squeezenet", set=["squeezenet.sr=0.5", "conv10.filter[3]=10"])
    assert layer(both, "fire2/squeeze1x1").filter[3] == 64
    assert layer(both, "conv10").filter[3] == 10


def test_no_variations_are_the_edits_themselves() -> None:
    base = paleo.Edits(("a.b=1",))
    assert variations([], base) == [base]


# Properties

CHAINS = ("nin", "nin_227", "alex_v2", "vgg11", "lenet5_224", "squeezenet", "googlenet")


@pytest.mark.slow
@settings(deadline=None)  # how long a first build takes is not what is tested
@given(st.sampled_from(CHAINS), st.integers(1, 4096), st.data())
def test_an_edit_taken_back_gives_the_net_again(name: str, filters: int, data: Any) -> None:
    net = paleo.load(name)
    names = [spec.name for spec in net.layers if spec.layer.type_name == "Convolution"]
    chosen = data.draw(st.sampled_from(names))
    before = layer(net, chosen).filter[3]
    try:
        there = paleo.edit(net, set=[f"{chosen}.filter[3]={filters}"])
    except paleo.NetSpecError:
        assume(False)
    back = paleo.edit(there, set=[f"{chosen}.filter[3]={before}"])
    assert back.layers == net.layers


@pytest.mark.slow
@given(st.sampled_from(CHAINS), st.sampled_from([1.25, 1.5, 2, 3]))
def test_larger_images_change_no_filter(name: str, factor: float) -> None:
    net = paleo.load(name)
    large = paleo.edit(net, scale_input=factor)
    filters = [
        [getattr(spec.layer, "filter", None) for spec in each.layers] for each in (net, large)
    ]
    assert filters[0] == filters[1]
    assert paleo.summarize(large).forward_flops > paleo.summarize(net).forward_flops


@pytest.mark.parametrize("name", CHAINS)
def test_an_edited_net_can_be_written_and_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.json"
    arguments = ["convert", name, "--scale_input=2", "-o", str(path)]
    result = click.testing.CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    read, made = paleo.load(path), paleo.edit(name, scale_input=2)
    assert read.layers == made.layers
    assert read.name == made.name
