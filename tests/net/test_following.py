"""What follows from other inputs, type by type, called directly and through an edit."""

from __future__ import annotations

from typing import Any

import pytest
from layer_examples import EXAMPLES, Example, node_of, over

import paleo
from paleo.net.layers import Layer, ShapeError


def example_of(kind: str, shape: list[int], **keys: Any) -> Any:
    """Return the layer as it is where its input has this shape."""
    _, node = node_of(Example(kind, keys, (shape,)))
    return node.layer


def edited(kind: str, shape: list[int], *edits: str, **keys: Any) -> Any:
    """Return the layer "x" on this input after edits of the net."""
    net = paleo.edit(Example(kind, keys, (shape,)).net(), set=edits)
    return next(spec.layer for spec in net.layers if spec.name == "x")


def followed(kind: str, before: list[int], after: list[int], **keys: Any) -> Any:
    """Return the layer that follows where the input has another shape.

    Where it fits, an edit of the input gives the same; where not, it says so.
    """
    found: Layer = example_of(kind, before, **keys).following((tuple(before),), (tuple(after),))
    try:
        found.infer_shape((tuple(after),))
    except ShapeError:
        with pytest.raises(paleo.NetSpecError, match=r'layer "x": .*no longer fits'):
            edited(kind, before, f"in0.tensor={after}", **keys)
    else:
        assert edited(kind, before, f"in0.tensor={after}", **keys) == found
    return found


def is_refused(kind: str, before: list[int], after: list[int], **keys: Any) -> bool:
    """Tell whether nothing follows where the input has another shape, and an edit says so."""
    layer = example_of(kind, before, **keys)
    with pytest.raises(ShapeError):
        layer.following((tuple(before),), (tuple(after),))
    with pytest.raises(paleo.NetSpecError, match=r'layer "x": .*no longer fits'):
        edited(kind, before, f"in0.tensor={after}", **keys)
    return True


def stays(kind: str, before: list[int], after: list[int], **keys: Any) -> bool:
    """Tell whether the layer is the same where the input has another shape."""
    return bool(followed(kind, before, after, **keys) == example_of(kind, before, **keys))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_layer_of_larger_images_fits_or_says_that_it_does_not(example: Example) -> None:
    _, node = node_of(example)
    after = tuple((s[0], *(2 * size for size in s[1:-1]), *s[-1:]) for s in node.inputs)
    try:
        found = node.layer.following(node.inputs, after)
        assert type(found) is type(node.layer)
        output = found.infer_shape(after)
    except ShapeError:  # any other exception is one of the test
        return
    assert len(output) >= 2
    assert all(size >= 1 for size in output)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_layer_of_the_same_inputs_gives_what_it_gave(example: Example) -> None:
    _, node = node_of(example)
    found = node.layer.following(node.inputs, node.inputs)
    assert found.infer_shape(node.inputs) == node.output


# Convolution


def conv(before: list[int], after: list[int], window: list[int], **keys: Any) -> Any:
    found = followed("Convolution", before, after, **over(filter=window, **keys))
    return found.filter, found.groups


def test_a_filter_takes_the_channels_of_its_group() -> None:
    small, large = [2, 6, 6, 4], [2, 6, 6, 6]
    assert conv(small, large, [3, 3, 4, 8]) == ((3, 3, 6, 8), 1)
    assert conv(small, large, [3, 3, 2, 8], groups=2) == ((3, 3, 3, 8), 2)  # 6 / 2
    assert conv(small, large, [3, 3, -1, 8], groups=2) == ((3, 3, -1, 8), 2)  # still derived
    # One channel in is a group by itself, and not depthwise.
    assert conv([2, 6, 6, 1], large, [3, 3, 1, 8]) == ((3, 3, 6, 8), 1)


def test_a_depthwise_convolution_has_as_many_filters_for_each_channel() -> None:
    # 8 filters over 4 channels, 2 for each: 12 over 6, each of which sees one.
    found = conv([2, 6, 6, 4], [2, 6, 6, 6], [3, 3, 1, 8], groups=4)
    assert found == ((3, 3, 1, 12), 6)
    found = conv([2, 6, 6, 4], [2, 6, 6, 6], [3, 3, -1, 4], groups=4)
    assert found == ((3, 3, -1, 6), 6)
    # As many groups as filters, but 2 channels in each: 6 / 2 = 3.
    found = conv([2, 6, 6, 4], [2, 6, 6, 6], [3, 3, 2, 2], groups=2)
    assert found == ((3, 3, 3, 2), 2)


def test_groups_that_do_not_divide_the_filters_are_not_depthwise() -> None:
    # 6 filters are not as many for each of 4 channels, and 6 they stay; a group has 8 / 4.
    layer = example_of("Convolution", [2, 6, 6, 4], **over(filter=[3, 3, 4, 6]))
    odd = layer.replace(groups=4)
    found = odd.following(((2, 6, 6, 4),), ((2, 6, 6, 8),))
    assert (found.filter, found.groups) == ((3, 3, 2, 6), 4)
    with pytest.raises(paleo.NetSpecError, match="4 channels and 6 filters do not divide"):
        edited("Convolution", [2, 6, 6, 4], "x.groups=4", **over(filter=[3, 3, 4, 6]))


# Deconvolution


def deconv(before: list[int], after: list[int], **keys: Any) -> Any:
    found = followed("Deconvolution", before, after, **over(**keys))
    return found.filter, found.output_shape[1:]


def test_a_deconvolution_gives_larger_images_by_its_steps() -> None:
    # 3 rows more in steps of 2: 12 + 6; 1 column more: 12 + 2.
    keys = {"filter": [3, 3, 8, 4], "output_shape": [-1, 12, 12, 8]}
    assert deconv([2, 6, 6, 4], [2, 9, 7, 4], **keys) == ((3, 3, 8, 4), (18, 14, 8))
    # 11 = 2 * 6 - 1 is one of the two sizes that give 6; 11 - 2 * 2 = 7 gives 4.
    keys = {"filter": [3, 3, 8, 4], "output_shape": [-1, 11, 12, 8]}
    assert deconv([2, 6, 6, 4], [2, 4, 6, 4], **keys) == ((3, 3, 8, 4), (7, 12, 8))
    # 11 + 2 * 3 = 17, not 11 * 9 / 6.
    assert deconv([2, 6, 6, 4], [2, 9, 6, 4], **keys) == ((3, 3, 8, 4), (17, 12, 8))


def test_what_a_deconvolution_gives_follows_from_its_groups() -> None:
    before, after = [2, 6, 6, 4], [2, 6, 6, 6]
    # 8 channels out in 2 groups: a filter gives 4, and takes the channels in.
    keys: dict[str, Any] = {"output_shape": [-1, 12, 12, 8], "groups": 2}
    assert deconv(before, after, filter=[3, 3, 4, 4], **keys)[0] == (3, 3, 4, 6)
    assert deconv(before, after, filter=[3, 3, -1, 4], **keys)[0] == (3, 3, -1, 6)
    assert deconv(before, after, filter=[3, 3, 4, -1], **keys)[0] == (3, 3, 4, -1)
    whole = over(filter=[3, 3, 8, 4], output_shape=[-1, 12, 12, 8])
    assert edited("Deconvolution", before, "x.groups=4", **whole).filter == (3, 3, 2, 4)
    more = ["x.groups=2", "x.output_shape[3]=10"]
    assert edited("Deconvolution", before, *more, **whole).filter == (3, 3, 5, 4)


def test_another_rank_leaves_a_deconvolution() -> None:
    keys = over(filter=[3, 3, 8, 4], output_shape=[-1, 12, 12, 8])
    assert stays("Deconvolution", [2, 6, 6, 4], [2, 6, 4], **keys)
    assert stays("Deconvolution", [2, 6, 6, 4], [2, 6, 6, 6, 5], **keys)


# Pooling, Resize


def pooled(after: list[int], **keys: Any) -> Any:
    """Return window and steps of a pooling that read 8 x 6 before."""
    whole = {"ksize": [1, 8, 6, 1], "strides": [1, 8, 6, 1], "padding": "VALID"}
    found = followed("AvgPool", [2, 8, 6, 4], after, **whole | keys)
    return found.ksize, found.strides


@pytest.mark.parametrize("padding", ["VALID", [0, 0], [[0, 0], [0, 0]]])
def test_a_pooling_over_the_whole_image_follows_where_nothing_is_padded(padding: Any) -> None:
    # A window over the whole image has one place, whatever its steps.
    assert pooled([2, 16, 9, 4], padding=padding) == ((16, 9), (8, 6))
    assert pooled([2, 4, 6, 4], padding=padding) == ((4, 6), (8, 6))
    ones = [1, 1, 1, 1]
    assert pooled([2, 16, 9, 4], padding=padding, strides=ones) == ((16, 9), (1, 1))


@pytest.mark.parametrize("padding", ["SAME", [1, 1], [0, 1], [[0, 0], [1, 0]], [[0, 1], [0, 0]]])
def test_a_padded_pooling_stays(padding: Any) -> None:
    assert pooled([2, 16, 12, 4], padding=padding) == ((8, 6), (8, 6))


def test_a_window_over_part_of_the_image_stays() -> None:
    keys = {"ksize": [1, 8, 3, 1], "strides": [1, 8, 6, 1]}
    assert pooled([2, 16, 12, 4], **keys) == ((8, 3), (8, 6))
    # One dimension of two is not the whole image either.
    assert pooled([2, 16, 12, 4], ksize=[1, 4, 6, 1]) == ((4, 6), (8, 6))


def test_a_pooling_over_each_frame_of_a_video_follows() -> None:
    keys = {"ksize": [1, 8, 6, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
    found = followed("AvgPool", [2, 5, 8, 6, 4], [2, 7, 9, 6, 4], **keys)
    assert (found.ksize, found.strides) == ((9, 6), (1, 1))


def test_a_maximum_over_a_small_image_may_be_one_of_many_in_larger_ones() -> None:
    keys = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    assert stays("Pooling", [2, 2, 2, 4], [2, 8, 8, 4], **keys)


def test_a_resize_is_as_much_larger_as_it_was() -> None:
    # 9 * 12 / 6 = 18 and 12 * 3 / 6 = 6; 9 * 7 / 6 = 10.5, rounded down.
    before = [2, 6, 6, 4]
    assert followed("Resize", before, [2, 12, 3, 4], size=[9, 12]).size == (18, 6)
    assert followed("Resize", before, [2, 7, 6, 4], size=[9, 12]).size == (10, 12)


def test_a_resize_is_never_to_nothing() -> None:
    # 2 * 2 / 6 is less than 1, though 3 * 2 / 6 = 1; 2 * 3 / 6 = 1 is enough.
    assert stays("Resize", [2, 6, 6, 4], [2, 2, 2, 4], size=[2, 3])
    assert followed("Resize", [2, 6, 6, 4], [2, 3, 2, 4], size=[2, 3]).size == (1, 1)


# Views and copies


def test_dimensions_that_are_not_repeated_follow_in_an_expand() -> None:
    # 1 x 4 to 5 x 6 x 4: the 5 is new, the 6 is the 1 repeated, the 4 is the input's.
    found = followed("Expand", [2, 1, 4], [2, 1, 8], output_shape=[-1, 5, 6, 4])
    assert found.output_shape == (-1, 5, 6, 8)
    found = followed("Expand", [2, 3, 1, 4], [2, 7, 1, 2], output_shape=[-1, 3, 6, 4])
    assert found.output_shape == (-1, 7, 6, 2)
    # What was not repeated is not, where it is 1 now.
    found = followed("Expand", [2, 3, 4], [2, 1, 4], output_shape=[-1, 5, 3, 4])
    assert found.output_shape == (-1, 5, 1, 4)
    # What was, is still wanted: of 3 there cannot be 6, of 6 there are.
    assert stays("Expand", [2, 1, 4], [2, 3, 4], output_shape=[-1, 5, 6, 4])
    assert stays("Expand", [2, 1, 4], [2, 6, 4], output_shape=[-1, 5, 6, 4])


def test_another_rank_leaves_an_expand() -> None:
    assert stays("Expand", [2, 1, 4], [2, 4], output_shape=[-1, 5, 6, 4])
    assert stays("Expand", [2, 1, 4], [2, 6, 1, 4], output_shape=[-1, 5, 6, 4])


@pytest.mark.parametrize("part", [0, 1, 3])
def test_one_of_several_equal_parts_stays_one(part: int) -> None:
    # Quarters of 8 are 2 each, of 20 they are 5.
    keys = {"begin": 2 * part, "size": 2}
    found = followed("Slice", [2, 6, 8], [2, 6, 20], **keys)
    assert (found.begin, found.size) == (5 * part, 5)
    found = followed("Slice", [2, 8, 6], [2, 20, 3], dim=1, **keys)
    assert (found.begin, found.size) == (5 * part, 5)


@pytest.mark.parametrize(
    ("keys", "after", "begin", "size"),
    [
        ({"size": 4, "step": 2}, 16, 0, 8),  # every other one
        ({"size": 4, "step": 2, "begin": 1}, 15, 1, 7),  # 1, 3, ... 13
        ({"size": 1}, 16, 0, 1),  # the first, not an eighth
        ({"size": 1, "begin": 7}, 16, 15, 1),  # the last
        ({"size": 8}, 5, 0, 5),  # all
    ],
)
def test_a_slice_of_the_first_the_last_or_every_other_stays_that(
    keys: dict[str, int], after: int, begin: int, size: int
) -> None:
    found = followed("Slice", [2, 6, 8], [2, 6, after], **keys)
    assert (found.begin, found.size) == (begin, size)
    assert stays("Slice", [2, 6, 8], [2, 9, 8], **keys)  # of another dimension


@pytest.mark.parametrize(
    ("keys", "after"),
    [
        ({"size": 3, "step": 2}, 16),  # of every other one, not the last
        ({"size": 1, "begin": 4}, 16),
        ({"size": 3, "begin": 3}, 16),  # 8 are not whole threes
        ({"size": 4, "begin": 2}, 16),  # a crop
        ({"size": 6}, 16),  # all but two, or six
        ({"size": 4, "begin": 4}, 15),  # 15 has no halves
        ({"size": 2, "begin": 2}, 10),  # nor 10 quarters
    ],
)
def test_a_slice_that_is_no_such_part_is_refused(keys: dict[str, int], after: int) -> None:
    assert is_refused("Slice", [2, 6, 8], [2, 6, after], **keys)
    # What is asked for in the same edit is no guess.
    edits = [f"in0.tensor=[2,6,{after}]", "x.begin=1", "x.size=2", "x.step=1"]
    found = edited("Slice", [2, 6, 8], *edits, **keys)
    assert (found.begin, found.size) == (1, 2)


def test_another_rank_leaves_a_slice() -> None:
    assert stays("Slice", [2, 6, 8], [2, 16], size=4)
    assert stays("Slice", [2, 6, 8], [2, 3, 16, 16], size=4)


@pytest.mark.parametrize(
    ("before", "wanted", "after", "expected"),
    [
        ([6, 6, 4], [36, 4], [12, 6, 8], [72, 8]),  # rows and columns made one: 12 * 6
        ([6, 6, 4], [6, 24], [12, 5, 4], [12, 20]),
        ([6, 6, 4], [144], [3, 2, 5], [30]),
        ([6, 6, 4], [36, -1], [12, 6, 4], [72, -1]),  # the last is still derived
        ([6, 6, 4], [-1], [12, 6, 4], [-1]),
        ([6, 4], [6, 1, 4], [12, 4], [12, 1, 4]),  # what was 1 and new stays
        ([1, 6, 4], [6, 4], [1, 12, 4], [12, 4]),
        ([1, 6, 4], [6, 4], [2, 6, 4], [12, 4]),  # made one, whatever they are
        ([6, 4, 1], [6, 4], [6, 8, 1], [6, 8]),
    ],
)
def test_a_reshape_follows_where_dimensions_stay_or_are_made_one(
    before: list[int], wanted: list[int], after: list[int], expected: list[int]
) -> None:
    found = followed("Reshape", [2, *before], [2, *after], output_shape=[-1, *wanted])
    assert found.output_shape == (-1, *expected)


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ([6, 6, 4], [3, 12, 4], [12, 6, 4]),  # 6 x 6 become 3 x 12
        ([6, 6, 4], [6, 6, 2, 2], [6, 6, 8]),
        ([6, 6, 4], [6, 3, -1], [6, 12, 4]),
        ([6, 6, 4], [6, 8, 3], [6, 6, 8]),
    ],
)
def test_a_reshape_that_cuts_a_changed_dimension_is_refused(
    before: list[int], wanted: list[int], after: list[int]
) -> None:
    assert is_refused("Reshape", [2, *before], [2, *after], output_shape=[-1, *wanted])


def test_a_reshape_that_cuts_another_dimension_follows() -> None:
    # The heads of attention: 64 features are cut in 4 x 16, whatever the length.
    for wanted in ([24, 4, 16], [24, 4, -1]):
        found = followed("Reshape", [2, 24, 64], [2, 48, 64], output_shape=[-1, *wanted])
        assert found.output_shape == (-1, 48, *wanted[1:])


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [([6, 6, 4], [36, 4], [36, 4]), ([6, 6, 4], [36, 4], [72, 4]), ([6, 4], [6, 4], [2, 6, 4])],
)
def test_another_rank_leaves_a_reshape(
    before: list[int], wanted: list[int], after: list[int]
) -> None:
    assert stays("Reshape", [2, *before], [2, *after], output_shape=[-1, *wanted])


def test_what_is_picked_along_one_dimension_stays_so_many() -> None:
    found = followed("Gather", [2, 12, 8], [2, 12, 16], output_shape=[-1, 3, 8])
    assert found.output_shape == (-1, 3, 16)
    found = followed("Gather", [2, 12, 8], [2, 24, 8], output_shape=[-1, 3, 8])
    assert found.output_shape == (-1, 3, 8)
    assert is_refused("Gather", [2, 12, 8], [2, 24, 8], output_shape=[-1, 3, 4])
    assert is_refused("Unknown", [2, 12], [2, 24], output_shape=[-1, 3], operator="Strange")


def test_a_depthwise_deconvolution_has_filters_for_each_channel() -> None:
    keys = over(filter=[3, 3, 2, 4], output_shape=[-1, 12, 12, 8], groups=4)
    found = followed("Deconvolution", [2, 6, 6, 4], [2, 6, 6, 10], **keys)
    assert (found.filter, found.output_shape, found.groups) == (
        (3, 3, 2, 10),
        (-1, 12, 12, 20),
        10,
    )


def test_the_classes_of_a_softmax_follow_where_they_were_all_of_its_input() -> None:
    before, after = [2, 1, 1, 10], [2, 1, 1, 20]
    assert followed("Softmax", before, after, num_classes=10).num_classes == 20
    assert stays("Softmax", before, after, num_classes=7)  # asked for as they are
    assert stays("Softmax", before, after)  # derived, and still so
    assert stays("Softmax", before, [2, 3, 3, 10], num_classes=10)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("InnerProduct", {"num_outputs": 8}),
        ("UpSampling2D", {"ksize": [1, 2, 2, 1]}),
        ("Pad", {"margins": [[1, 2], [0, 0], [3, 0]]}),
        ("LRN", {"local_size": 3}),
        ("GroupNorm", {"num_groups": 2}),
        ("Reduce", {"dims": [1, 2]}),
        ("Rearrange", {"output_shape": [-1, 3, 3, 16]}),
    ],
)
def test_what_was_asked_for_stays(kind: str, keys: dict[str, Any]) -> None:
    assert stays(kind, [2, 6, 6, 4], [2, 12, 12, 8], **keys)


# Found by these tests: each ends in a ValueError or a KeyError of Python's.


@pytest.mark.parametrize(
    ("kind", "keys", "edit"),
    [
        ("Expand", {"output_shape": [-1, 1, 6, 4]}, "x.output_shape=[-1,4]"),
        ("Resize", {"size": [9, 12]}, "x.size=[1,2,3,4]"),
        (
            "Deconvolution",
            over(filter=[3, 3, 8, 4], output_shape=[-1, 12, 12, 8]),
            "x.output_shape=[-1,12,8]",
        ),
        (
            "Deconvolution",
            over(filter=[3, 3, 8, 4], output_shape=[-1, 12, 12, 8]),
            "x.strides=[1,2,1]",
        ),
    ],
)
def test_a_key_of_another_rank_is_said_to_fit_no_longer(
    kind: str, keys: dict[str, Any], edit: str
) -> None:
    shape = [2, 1, 6, 4] if kind == "Expand" else [2, 6, 6, 4]
    with pytest.raises(paleo.NetSpecError, match="no longer fits"):
        edited(kind, shape, edit, **keys)


def test_a_deconvolution_of_each_frame_of_a_video_follows() -> None:
    # 5 frames of 6 x 6, each made 12 x 12; then of 9 x 6: 12 + 2 * 3 = 18.
    keys = {"filter": [3, 3, 8, 4], "output_shape": [-1, 12, 12, 8]}
    assert deconv([2, 5, 6, 6, 4], [2, 5, 9, 6, 4], **keys)[1] == (18, 12, 8)
