"""Design spaces: files of choices, convolutions in the place of a net's own, nets by number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nets_of_tests import make_net

import paleo
from paleo.net.spaces import SPACES, find_design
from paleo.net.spaces.layered import NotAdditiveError, layered

#: Of each predefined space how many nets there are.
COUNTS = {
    "thesis": 5**16,
    "vgg": 4**5 * 5**8,
    "nin": 5**4 * 6**7,
    "resnet": 4**16,
    "squeezenet": 3**4 * 4,
    "transformer": 7 * 8 * 6,
    "moe": 5 * 3 * 5,
}
MINE = """
about = "Mine"
net = "nin_227"
[choices]
"conv8.filter[3]" = [192, 384, "none"]
depth = [{label = "deep"}, {remove = ["conv5", "conv6"], label = "short"}]
"conv2.padding" = ["SAME", "VALID"]
"""


@pytest.mark.parametrize("name", SPACES)
def test_predefined_spaces_say_what_they_are_and_their_nets_fit(name: str) -> None:
    design = find_design(name)
    assert design.about
    assert design.source
    space = design.of(design.own_net)
    assert space.count == COUNTS[name]
    for places in space.sampled(3, 0):
        assert paleo.build(space.net_of(places)).num_params > 0


def test_a_file_has_choices_of_keys_and_of_edits(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    design = find_design(str(file))
    assert (design.name, design.about) == ("mine", "Mine")
    space = design.of(design.own_net)
    assert space.count == 3 * 2 * 2
    number = 2 * 4 + 1 * 2 + 1  # the last quickest: "none", "short", "VALID"
    places = space.places_at(number)
    assert list(space.labels(places).values()) == ["none", "short", "VALID"]
    names = [layer.name for layer in space.net_of(places).layers]
    assert not {"conv8", "conv5", "conv6"} & set(names)
    values = {"choices": {"conv8.filter[3]": [192, 384, "none"]}}
    as_json = tmp_path / "mine.json"
    as_json.write_text(json.dumps(values))
    assert find_design(as_json).choices == find_design(values).choices == design.choices[:1]


def test_convolutions_take_the_place_of_others_between_changes_of_size() -> None:
    """NiN has 2, 3 and 3 convolutions between conv1, which strides, and poolings: 16 x 2/8 is 4."""
    space = find_design("thesis").of(paleo.load("nin_227"))
    names = [layer.name for layer in space.net.layers]
    new = [f"layer{i}" for i in range(1, 17)]
    assert names == [
        *("data", "conv1", *new[:4], "pool3", *new[4:10], "pool6", *new[10:], "pool9"),
        *("conv10", "conv11", "conv12", "pool12", "softmax"),
    ]
    sizes = {each.name: each.output for each in paleo.summarize(space.net).layers}
    own = {each.name: each.output for each in paleo.summarize("nin_227").layers}
    assert all(sizes[each] == own[each] for each in ("pool12", "softmax", "conv1"))


@pytest.mark.parametrize(
    ("net", "said"),
    [
        ("resnet18", "convolutions are put into chains of layers, and it is none"),
        ("lenet5", "it has 4 layers with parameters"),
    ],
)
def test_nets_that_take_no_other_convolutions(net: str, said: str) -> None:
    design = find_design(
        {"convolutions": {"count": 2, "window": 3, "filters": [8, "none"], "fixed": 4}}
    )
    with pytest.raises(paleo.NetSpecError, match=said):
        design.of(paleo.load(net))


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(
        'about = 1\nother = 2\n[choices]\nx = 1\n"conv8.filter" = []\ny = [{sett = 1}]\n'
        '"conv8" = [1]\n"a.b" = [1, 1]\n[convolutions]\ncount = 0\nwindow = 3\nfixed = 3\n'
        'filters = ["none"]\n'
    )
    with pytest.raises(paleo.SettingError) as caught:
        find_design(str(file))
    keys = [each.key for each in caught.value.mistakes]
    assert keys == [
        *("other", "about", "x", "conv8.filter", "y", None, "a.b"),
        *("convolutions.count", "convolutions.filters"),
    ]
    assert all(each.file == str(file) for each in caught.value.mistakes)
    for text, said in (("x =", "not TOML"), ("", "no choices"), ("[choices]", "no choices are")):
        file.write_text(text)
        with pytest.raises(paleo.SettingError, match=said):
            find_design(str(file))


def test_states_of_a_chain_by_hand() -> None:
    """Before conv2 there is one state, behind it two shapes; conv3 takes each of them."""
    space = find_design({"choices": {"conv2.filter[3]": [32, 64], "conv3.filter[3]": [96]}})
    found = layered(space.of(paleo.load("nin_227")), 2)
    at = dict(zip(found.names, found.states, strict=False))
    assert (at["conv2"], at["conv3"], at["pool3"]) == (1, 2, 1)
    inputs = {each.node.inputs for each in found.situations if each.node.name == "conv3"}
    assert inputs == {((2, 55, 55, 32),), ((2, 55, 55, 64),)}
    assert found.valid == 2


def test_options_of_which_none_fits_say_why() -> None:
    space = find_design({"choices": {"pool12.ksize[1:3]": [90]}}).of(paleo.load("nin_227"))
    with pytest.raises(paleo.NetSpecError, match=r'layer "pool12".*fits with no option'):
        layered(space)


def test_parameters_that_layers_share_cannot_be_chosen() -> None:
    net = make_net(
        {
            "data": {"type": "Input", "parents": [], "tensor": [2, 8]},
            "a": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 8},
            "b": {"type": "InnerProduct", "parents": ["a"], "num_outputs": 8, "shares": "a"},
        }
    )
    space = find_design({"choices": {"a.num_outputs": [8, 16]}}).of(net)
    with pytest.raises(NotAdditiveError, match='layer "a" shares parameters, which are chosen'):
        layered(space)
