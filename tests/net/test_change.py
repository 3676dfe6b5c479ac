"""How a net differs from another, and how far a change reaches."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from nets_of_tests import make_net

import paleo
from paleo.studies.compare.change import change_of

DATA = {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}


def conv(parent: str, **keys: Any) -> dict[str, Any]:
    """Describe a convolution of each pixel: 3 channels from 3."""
    shape = {"filter": [1, 1, 3, 3], "strides": [1, 1, 1, 1], "padding": "SAME"}
    return {"type": "Convolution", "parents": [parent], **shape, **keys}


AFTER_POOL3 = "conv4 conv5 conv6 pool6 conv7 conv8 conv9 pool9 conv10 conv11 conv12"

#: Edits of a net, how far they reach, which layers they edit, and whose dimensions they change
#: ("" is not asked). The first six are the dissertation's, tables 4.3 to 4.8.
REACHES: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("nin_227", {"set": ["data.tensor[3]=12"]}, "local", "data", "data"),
    ("nin_227", {"set": ["conv8.filter[3]=1536"]}, "local", "conv8", "conv8"),
    # 13 + 4 - 6 + 1 = 12; pool9 halves either, rounded up, to 6.
    (
        "nin_227",
        {"set": ["conv7.filter[0:2]=6", "conv7.padding=[2, 2]"]},
        "local",
        "conv7",
        "conv7 conv8 conv9",
    ),
    (
        "nin_227",
        {"set": ["conv12.filter[3]=4000"]},
        "local",
        "conv12",
        "conv12 pool12 softmax",
    ),
    (
        "nin_227",
        {"remove": ["pool3"]},
        "global",
        "",
        AFTER_POOL3,
    ),
    (
        "nin_227",
        {"set": ["data.tensor[1:3]=454"]},
        "global",
        "data",
        f"data conv1 conv2 conv3 pool3 {AFTER_POOL3}",
    ),
    # The classifier reads a vector, but the last convolution sees more of the image.
    (
        "alexnet",
        {"set": ["data.tensor[1:3]=454"]},
        "global",
        "data",
        "data conv1 norm1 pool1 conv2 norm2 pool2 conv3 conv4 conv5 pool5 flatten",
    ),
    ("alexnet", {"remove": ["pool5"]}, "local", "", "flatten"),
    # What a convolution within a residual block gives more, the next one of the block takes.
    (
        "resnet50",
        {"set": ["res4a_branch2b.filter[3]=512"]},
        "local",
        "res4a_branch2b",
        "res4a_branch2b bn4a_branch2b scale4a_branch2b res4a_branch2b_relu",
    ),
    ("lenet5", {"set": ["conv1.padding=[2, 2]"]}, "global", "conv1", ""),
    # It gives 4 x 4 instead of 6 x 6, but sees what it saw; after it, there is only a pooling.
    ("nin_227", {"set": ["conv12.filter[0:2]=3"]}, "local", "conv12", ""),
    ("lstm_lm", {"set": ["words.tensor[1]=70"]}, "global", "words", ""),
    ("nin_227", {"set": ["conv8.activation_fn=null"]}, "local", "conv8", ""),
    ("nin_227", {}, "none", "", ""),
]


@pytest.mark.parametrize(
    ("name", "edits", "reach", "edited", "changed"),
    REACHES,
    ids=[f"{name} {edits}" for name, edits, *_ in REACHES],
)
def test_a_change_is_local_unless_all_that_follows_sees_another_height_and_width(
    name: str, edits: dict[str, Any], reach: str, edited: str, changed: str
) -> None:
    net = paleo.load(name)
    change = change_of(net, paleo.edit(net, **edits))
    assert change.reach == reach
    assert " ".join(change.edited) == edited
    assert changed in ("", " ".join(change.changed))
    assert list(change.removed) == list(edits.get("remove", []))


@pytest.mark.parametrize("name", ["resnet50", "densenet121", "googlenet", "vgg16", "squeezenet"])
def test_larger_images_and_a_removed_pooling_reach_through_any_net(name: str) -> None:
    net = paleo.load(name)
    assert change_of(net, paleo.edit(net, scale_input=2)).reach == "global"
    first = next(spec.name for spec in net.layers if spec.layer.type_name == "Pooling")
    assert change_of(net, paleo.edit(net, remove=[first])).reach == "global"


def test_more_channels_are_local_however_many_layers_they_are_concatenated_to() -> None:
    net = paleo.load("densenet121")
    change = change_of(net, paleo.edit(net, set=["block3/layer11/conv2.filter[3]=64"]))
    assert change.reach == "local"
    assert change.edited == ("block3/layer11/conv2",)
    assert len(change.changed) > 40


def test_a_layer_that_only_reads_elsewhere_is_edited() -> None:
    def net(parent: str) -> paleo.NetSpec:
        return make_net({"data": DATA, "a": conv("data"), "b": conv("a"), "c": conv(parent)})

    change = change_of(net("b"), net("a"))
    assert (change.edited, change.changed, change.follows) == (("c",), (), ())
    assert change.reach == "local"


def test_what_reads_a_layer_of_one_net_alone_is_not_edited() -> None:
    short = make_net({"data": DATA, "a": conv("data"), "c": conv("a")})
    long = make_net({"data": DATA, "a": conv("data"), "b": conv("a"), "c": conv("b")})
    added, removed = change_of(short, long), change_of(long, short)
    assert (added.added, added.edited, added.follows, added.reach) == (("b",), (), (), "local")
    assert (removed.removed, removed.edited, removed.reach) == (("b",), (), "local")


def test_layers_put_into_a_net_by_a_program_are_compared_too() -> None:
    net = paleo.load("nin_227")
    filters = {"conv8": (1, 1, 384, 1536), "conv9": (1, 1, 1536, 384)}
    layers = (
        replace(spec, layer=spec.layer.replace(filter=filters[spec.name]))
        if spec.name in filters
        else spec
        for spec in net.layers
    )
    change = change_of(net, replace(net, layers=tuple(layers)))
    assert (change.reach, change.edited, change.follows) == ("local", ("conv8",), ("conv9",))


def test_a_layer_of_another_type_or_with_parameters_of_its_own_is_edited() -> None:
    def net(**keys: Any) -> paleo.NetSpec:
        return make_net({"data": DATA, "a": conv("data"), "b": conv("a", **keys)})

    shared = change_of(net(), net(shares="a"))
    assert (shared.edited, shared.changed, shared.reach) == (("b",), (), "local")
    relu = {"type": "Activation", "parents": ["a"], "function": "relu"}
    other = change_of(net(), make_net({"data": DATA, "a": conv("data"), "b": relu}))
    assert (other.edited, other.changed) == (("b",), ())


def test_the_batch_is_no_change() -> None:
    net = paleo.load("lstm_lm")
    assert change_of(net, net.with_batch(7)).reach == "none"
    assert change_of(net, net.with_batch(7), 3).reach == "none"


def test_a_reshape_between_nets_of_other_ranks_is_edited_not_an_error() -> None:
    def net(shape: list[int], *sizes: int) -> paleo.NetSpec:
        data = {"type": "Input", "parents": [], "tensor": [2, *shape]}
        flat = {"type": "Reshape", "parents": ["data"], "output_shape": [-1, *sizes]}
        fc = {"type": "InnerProduct", "parents": ["flat"], "num_outputs": 4}
        return make_net({"data": data, "flat": flat, "fc": fc})

    change = change_of(net([4, 4, 3], 48), net([16, 3], 16, 3))
    assert change.edited == ("data", "flat")
    assert change.follows == ("fc",)


def test_nets_that_have_little_in_common_are_no_change_of_one() -> None:
    change = change_of(paleo.load("alexnet"), paleo.load("resnet18"))
    assert change.reach is None
    assert change.common == 1  # conv1 alone has parameters in both


# The rules, one by one


def behind(size: int, **after: Any) -> paleo.NetSpec:
    """Make a net of one layer on an image of this height and width."""
    data = {"type": "Input", "parents": [], "tensor": [2, size, size, 3]}
    return make_net({"data": data, "x": {"parents": ["data"], **after}})


@pytest.mark.parametrize(
    ("after", "reach"),
    [
        # It keeps no height and width; the same over each pixel's channels does.
        ({"type": "InnerProduct", "num_outputs": 4}, "local"),
        ({"type": "InnerProduct", "num_outputs": 4, "axis": 3}, "global"),
        # Without parameters, whatever it reads, and with them.
        ({"type": "Activation", "function": "relu"}, "local"),
        ({"type": "BatchNorm", "affine": False}, "local"),
        ({"type": "Scale"}, "global"),
        (conv("data"), "global"),
    ],
    ids=str,
)
def test_only_layers_with_parameters_that_keep_height_and_width_are_asked(
    after: dict[str, Any], reach: str
) -> None:
    for old, new in ((8, 16), (16, 8)):
        change = change_of(behind(old, **after), behind(new, **after))
        assert (change.reach, change.edited) == (reach, ("data",))


def test_another_number_of_parameters_is_a_change_by_itself() -> None:
    # "b" has 3 * 3 + 3 = 12 parameters. All are those of "a"; "bare" has no bias, and so 9 of
    # them: 3 are its own. Nothing is edited, and all dimensions are what they were.
    def net(owner: str) -> paleo.NetSpec:
        bare = conv("a", use_bias=False)
        return make_net(
            {"data": DATA, "a": conv("data"), "bare": bare, "b": conv("bare", shares=owner)}
        )

    assert paleo.summarize(net("a")).num_params == 12 + 9
    assert paleo.summarize(net("bare")).num_params == 12 + 9 + 3
    change = change_of(net("a"), net("bare"))
    assert (change.edited, change.added, change.removed, change.changed) == ((), (), (), ())
    assert (change.follows, change.reach) == (("b",), "local")
    assert change_of(net("a"), net("a")).reach == "none"


@pytest.mark.parametrize(("layers", "reach"), [(4, "local"), (5, None), (6, None)])
def test_less_than_half_in_common_is_no_change_whichever_comes_first(
    layers: int, reach: str | None
) -> None:
    # The image and "a" are common: 2 of 4 are half, 2 of 5 are not.
    def net(count: int) -> paleo.NetSpec:
        names = ["data", *"abcdef"][:count]
        convs = {name: conv(before) for before, name in itertools.pairwise(names)}
        return make_net({"data": DATA, **convs})

    added, removed = change_of(net(2), net(layers)), change_of(net(layers), net(2))
    assert (added.reach, removed.reach) == (reach, reach)
    assert (added.common, removed.common) == (1, 1)
    assert added.added == removed.removed == tuple("bcdef"[: layers - 2])
    assert added.removed == removed.added == ()


def test_a_layer_of_images_that_reads_videos_is_edited_though_its_channels_follow() -> None:
    def net(shape: list[int], channels: int) -> paleo.NetSpec:
        data = {"type": "Input", "parents": [], "tensor": [2, *shape, 3 if channels < 4 else 4]}
        return make_net({"data": data, "a": conv("data", filter=[1, 1, channels, 3])})

    image, deep = net([8, 8], 3), net([8, 8], 4)
    assert change_of(image, deep).edited == ("data",)
    assert change_of(image, deep).follows == ("a",)
    for before, after in ((image, net([5, 8, 8], 4)), (net([5, 8, 8], 3), deep)):
        assert change_of(before, after).edited == ("data", "a")
        assert change_of(before, after).follows == ()
    # With the same keys it is the same layer, of whatever rank its input is.
    assert change_of(image, net([5, 8, 8], 3)).edited == ("data",)
    assert change_of(image, net([5, 8, 8], 3)).follows == ("a",)
