"""What Paleo says of bad input: one clear line per mistake, all of a file together.

Every case of a net file is read by `paleo.loads` and by the commands; all say the same.
"""

from __future__ import annotations

import bisect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import click.testing
import pytest
from faulty_layers import DATA, LAYERS, LEFT_OUT, block, conv, flat, layer, net, pool, split

import paleo
from paleo.cli import cli

WORKS_TOO = "`paleo nets` lists them, a .json, .prototxt, .keras, .onnx or .pt2 works too"


def placed(short: str) -> str:
    """Turn "c.filter: message" or "c: message" into a line as Paleo writes it."""
    where, _, message = short.partition(": ")
    name, _, key = where.partition(".")
    return f'layer "{name}": ' + (f'key "{key}": ' if key else "") + message


def refused(*arguments: str, status: int = 1) -> list[str]:
    """Run a command that must fail, and return its lines without "paleo: "."""
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    lines = result.stderr.splitlines()
    assert lines
    assert all(line.startswith("paleo: ") for line in lines), lines
    return [line.removeprefix("paleo: ") for line in lines]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], list[str]]:
    """Return the lines that API and commands all say of a net file, without its name."""
    monkeypatch.chdir(tmp_path)

    def lines(text: str | bytes) -> list[str]:
        with pytest.raises(paleo.NetSpecError) as caught:
            paleo.loads(text, file="my.json")
        found = str(caught.value).splitlines()
        assert len(found) == len(caught.value.mistakes)
        Path("my.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        for command in ("summary", "simulate"):
            assert refused(command, "my.json") == found
        assert all(line.startswith("my.json: ") for line in found)
        return [line.removeprefix("my.json: ") for line in found]

    return lines


NO_NET = "not a net: expected a JSON object with name and layers"
TEXTS = [
    ("", "not JSON: Expecting value at line 1, column 1"),
    ('{"name":\n  "x",', "not JSON: Expecting property name enclosed in double quotes at line 2,"),
    (b'{"name": "\xff"}', "not JSON: not text in UTF-8"),
    ("[]", NO_NET),
    ("null", NO_NET),
    ("[" * 100_000, "not a net: nested too deeply"),
    ('{"a":' * 100_000, "not a net: nested too deeply"),
    (net().replace("[2,", f"[{'9' * 5000},"), f'layer "data": key "tensor": {10**30} is too large'),
    (net().replace('"name"', '"source"'), 'key "name": expected the net\'s name, it is missing'),
    (net().replace('"net"', "3"), 'key "name": expected the net\'s name, got 3'),
    ('{"name": "n"}', 'key "layers": it is missing'),
    ('{"name": "n", "layers": {}}', 'key "layers": it is empty'),
    ('{"name": "n", "layers": []}', 'key "layers": it must be an object: layer names to layers'),
    (net().replace("{", '{"nam": 1, ', 1), "key \"nam\": unknown key (did you mean 'name'?)"),
    (net().replace("{", '{"source": 3, ', 1), 'key "source": expected a text, got 3'),
    (net().replace("{", '{"name": "n", ', 1), 'key "name": given twice'),
    (net().replace('"type"', '"type": 1, "type"'), 'layer "data": key "type": given twice'),
    (net().replace('"data"', '"data": 1, "data"'), 'layer "data": two layers have this name'),
    (
        net(b=block(x=flat())).replace('"x"', '"x": {}, "x"'),
        'layer "b/x": two layers have this name',
    ),
]


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=[message for _, message in TEXTS])
def test_a_file_that_is_no_net_says_why(said: Any, text: str | bytes, message: str) -> None:
    (line,) = said(text)
    assert line.startswith(message)


def decodable(depth: int) -> bool:
    """Whether Python's own decoder takes lists as deep: what bounds it differs by version."""
    try:
        json.loads("[" * depth + "]" * depth)
    except RecursionError:
        return False
    return True


def test_no_depth_is_more_than_can_be_said() -> None:
    """Near the limit a text can be decoded, but not written out for a message."""
    deepest = bisect.bisect_left(range(100_000), True, key=lambda depth: not decodable(depth)) - 1
    told = set()
    for depth in (*range(deepest - 500, deepest - 20, 12), *range(deepest - 20, deepest + 10)):
        deep = net(x=layer("InnerProduct", num_outputs=0)).replace(
            "0}", "[" * depth + "]" * depth + "}"
        )
        with pytest.raises(paleo.NetSpecError) as caught:
            paleo.loads(deep)
        told.add(str(caught.value)[:9])
    assert told == {'layer "x"', "not a net"}


def test_what_is_wrong_in_equal_layers_is_said_of_each() -> None:
    wrong = conv(strides=[1, 1], filter=LEFT_OUT)
    with pytest.raises(paleo.NetSpecError) as caught:
        paleo.loads(net(a=conv(), b=wrong, c=conv(), d=wrong, e=conv(padding="VALID")))
    assert [each.layer for each in caught.value.mistakes] == ["b", "b", "d", "d"]
    repeated = net(a=conv(), b=conv()).replace('"b": {', '"b": {"padding": "SAME", ')
    with pytest.raises(paleo.NetSpecError, match='layer "b": key "padding": given twice'):
        paleo.loads(repeated)
    # 1 and true are equal in Python.
    with pytest.raises(paleo.NetSpecError, match=r'"b": .* expected a whole number, got true'):
        paleo.loads(
            net(
                f=flat("data"),
                a=layer("InnerProduct", num_outputs=1, parents=["f"]),
                b=layer("InnerProduct", num_outputs=True, parents=["f"]),
            )
        )


def test_a_byte_order_mark_is_accepted() -> None:
    assert paleo.loads(b"\xef\xbb\xbf" + net().encode()).name == "net"


@pytest.mark.slow
@pytest.mark.parametrize(("body", "message"), LAYERS, ids=[message for _, message in LAYERS])
def test_a_faulty_layer_is_named_with_its_key(said: Any, body: Any, message: str) -> None:
    (line,) = said(net(c=body))
    assert line.startswith(placed(f"c.{message}"))


#: Layers beside "data", and the lines: the layer, its key and the message.
NETS: list[tuple[dict[str, Any], str, *tuple[str, ...]]] = [
    (
        {"c": conv(), "e": layer("Elementwise", parents=["data", "c"])},
        "e: its parents differ in shape: 2x8x8x3, 2x8x8x4",
    ),
    (
        {"p": pool(ksize=[1, 2, 2, 1]), "e": layer("Concatenate", parents=["data", "p"], dim=3)},
        "e: its parents differ outside dimension 3: 2x8x8x3, 2x7x7x3",
    ),
    (
        {
            "a": layer("InnerProduct", num_outputs=2**31 - 1),
            "b": layer("InnerProduct", num_outputs=2**31 - 1, parents=["a"]),
        },
        "b: 4.61e+18 parameters are too many to mean anything",
    ),
    ({"two": DATA | {"tensor": [3, 8]}}, "two.tensor: its batch of 3 is not that of data, 2"),
    (
        {"a": flat("c"), "b": flat("a"), "c": flat("b"), "d": flat("a")},
        "a.parents: a cycle: a -> b -> c -> a",
    ),
    (
        {"a": flat("b"), "b": flat("a"), "x": flat("y"), "y": flat("x")},
        "a.parents: a cycle: a -> b -> a",
        "x.parents: a cycle: x -> y -> x",
    ),
    ({"b/x": flat("data"), "b": block(x=flat())}, "b/x: two layers have this name"),
    (
        {"b": block(x=flat("data"))},
        'b/x.parents: there is no layer "data" in Block "b"; "/data" is one of the whole net',
    ),
    (
        {"b": block(x=flat("/dato"))},
        "b/x.parents: there is no layer \"/dato\" (did you mean '/data'?)",
    ),
    ({"c": flat("/x")}, 'c.parents: there is no layer "/x"'),
    (
        {"b": block(x=flat(), y=flat() | {"shares": "z"}, w=flat() | {"shares": "/b"})},
        'b/y.shares: there is no layer "z" in Block "b"',
        'b/w.shares: "/b" is a Block: name one of its layers',
    ),
    (
        {"a": conv(), "b": conv(shares="a"), "c": conv(shares="b")},
        "c.shares: name the layer that the parameters belong to, which shares nobody's",
    ),
    (
        {"m": split(x=flat(), y=flat() | {"shares": "x"}), "c": flat("data") | {"shares": "m/x"}},
        "m/y.shares: a split layer cannot share parameters",
        'c.shares: "m/x" is split: its parameters cannot be shared',
    ),
    (
        {"a": flat("data"), "m": layer("MatMul", parents=["data", "a"])},
        "m: its inputs must be N x ... x M x K, got 2x192",
    ),
    (
        {"a": layer("Reduce", dims=[1]), "e": layer("Concatenate", parents=["data", "a"], dim=2)},
        "e: its parents differ outside dimension 2: 2x8x8x3, 2x8x3",
    ),
    (
        {"a": layer("Reduce", dims=[1]), "t": layer("Attention", parents=["data", "a", "a"])},
        "t: its inputs must be N x heads x T x d, got 2x8x8x3, 2x8x3, 2x8x3",
    ),
    (
        {
            "a": layer("Slice", dim=2, size=7),
            "t": layer("Attention", parents=["data", "data", "a"]),
        },
        "t: queries, keys and values do not fit together: 2x8x8x3, 2x8x8x3, 2x8x7x3",
    ),
    (
        {
            "a": layer("Slice", dim=2, size=7),
            "t": layer("Einsum", parents=["data", "a"], equation="nhwc,nhwc->nhc"),
        },
        "t.equation: w is 8 and 7",
    ),
    (
        {"b": block(x=flat()), "c": flat("b")},
        'c.parents: "b" is a Block without an endpoint: name one of its layers, as in "b/..."',
    ),
    (
        {"m": split(x=flat()), "c": flat("m/x@self")},
        'c.parents: "m/x@self" in a layer that is not split: write "m/x@all"',
    ),
    (  # @self would be the next mistake here
        {"m": split(x=flat()), "c": flat("m/x")},
        'c.parents: "m/x" is split: write "m/x@all" or "m/x@0"',
    ),
    (
        {"m": split(x=flat(), y=flat("x"))},
        'm/y.parents: "x" is split: write "x@all" or "x@self"',
    ),
    (
        {"m": split(x=flat()), "c": flat("m/x@2")},
        'c.parents: there is no slice 2 of "m/x": it has 2',
    ),
    (
        {"m": split(5, x=conv(parents=[]))},
        "m/x.filter: 4 output channels cannot be split 5 ways",
    ),
    (
        {"m": split(k=split(x=flat()) | {"parents": []})},
        "m/k.type: a ModelParallel cannot stand inside another",
    ),
    (  # several mistakes in one layer
        {"c": conv(fliter=1, strides=2, padding=7, parents=["dato"])},
        "c.fliter: unknown key (did you mean 'filter'?)",
        "c.strides: expected [1, height, width, 1], got 2",
        'c.padding: expected "VALID", "SAME", [p_h, p_w] or [[top, bottom], [left, right]], got 7',
        "c.parents: there is no layer \"dato\" (did you mean 'data'?)",
    ),
    (
        {"c": layer("Flaten", parents=["dato"])},
        "c.type: unknown layer type \"Flaten\" (did you mean 'Flatten'?)",
        "c.parents: there is no layer \"dato\" (did you mean 'data'?)",
    ),
    (  # mistakes of every step of reading; "d" is below one, and has none
        {"a": conv(filter=0), "b": flat("dato"), "c": conv(filter=[3, 3, 5, 4]), "d": flat("c")},
        "a.filter: expected [R, S, C, K], got 0",
        "b.parents: there is no layer \"dato\" (did you mean 'data'?)",
        "c.filter: the filter takes 5 channels, the input has 3",
    ),
    ({"": flat("data")}, ": not a layer name: it is empty"),
    ({"x@0": flat("data")}, 'x@0: not a layer name: "@0" at its end means a slice'),
    (
        {"a\nb\x1b[31m": flat("x\n\u2028")},
        r'a\nb\x1b[31m.parents: there is no layer "x\n\u2028"',
    ),
]


@pytest.mark.parametrize("case", NETS, ids=[case[1] for case in NETS])
def test_all_mistakes_of_a_net_are_said_together(said: Any, case: Any) -> None:
    layers, *expected = case
    assert sorted(said(net(**layers))) == sorted(map(placed, expected))


@pytest.mark.parametrize("number", ["1e400", "-1e400", "Infinity", "NaN", "2147483648", "-0"])
def test_no_number_beyond_meaning_is_taken_as_a_size(said: Any, number: str) -> None:
    (line,) = said(net().replace("[2, 8,", f"[2, {number},"))
    assert line.startswith('layer "data": key "tensor": ')


def test_a_type_or_key_that_resembles_none_is_told_all(said: Any) -> None:
    kind, key = said(net(a=layer("Foo"), b=layer("Flatten", zzz=1)))
    assert kind.startswith('layer "a": key "type": unknown layer type "Foo"; there are: ')
    assert {*paleo.LAYERS, "Block", "ModelParallel"} == set(kind.split(": ")[-1].split(", "))
    assert key == 'layer "b": key "zzz": unknown key; there are: type, parents, shares, dtype'


def test_a_net_without_an_input_says_so(said: Any) -> None:
    own = {"type": "Parameter", "shape": [3]}
    (line,) = said(json.dumps({"name": "n", "layers": {"own": own, "x": flat("own")}}))
    assert line == 'key "layers": there is no Input'


def test_blocks_nested_too_deeply_are_one_mistake(said: Any) -> None:
    inner = flat("data")
    for _ in range(60):
        inner = block(b=inner)
    (line,) = said(net(b=inner))
    assert line.endswith(": blocks are nested more than 50 deep")


@pytest.mark.slow
def test_a_file_of_3000_faulty_layers_says_all_of_them(said: Any) -> None:
    layers = {f"layer{i}": layer("Flaten", parents=["lost"], x=1) for i in range(1500)}
    lines = said(net(**layers, **{f"other{i}": flat(f"othr{i}") for i in range(1500)}))
    assert len({re.findall(r'layer "(\w+)"', line)[0] for line in lines}) == 3000


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.json").mkdir()
    nets = ["gone.json", "folder.json", "alexv2", "alex_v2"]
    assert refused("summary", *nets) == [
        "gone.json: no such file",
        "folder.json: a directory, not a net file",
        f"unknown net 'alexv2' (did you mean 'alex_v2'?); {WORKS_TOO}",
    ]
    assert refused("simulate", *nets) == refused("summary", *nets)


@pytest.mark.parametrize("name", ["", "x" * 5000])
def test_a_name_that_is_no_name_is_an_unknown_net(name: str) -> None:
    (line,) = refused("summary", name)
    assert line.startswith("unknown net ")


def test_mistakes_of_several_files_are_said_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one.json", "two.json"):
        Path(name).write_text(net(c=conv(padding=3), d=flat("x")))
    for command in ("summary", "simulate"):
        lines = refused(command, "one.json", "alex_v2", "two.json")
        assert [line.split(":")[0] for line in lines] == ["one.json"] * 2 + ["two.json"] * 2


COUNT = "expected a whole number from 1 to 2147483647, got"
SHARE = "expected a number above 0, up to 1, got"
WHOLE = "expected a whole number of 1 or more, got"
#: An option of `paleo simulate`, the same in Python, and the line.
SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    ("--num_workers=0", {"workers": [0]}, f"num_workers: {COUNT} 0"),
    ("--num_workers=-1", {"workers": [-1]}, f"num_workers: {COUNT} -1"),
    ("--num_workers=1.5", {"workers": [1.5]}, f"num_workers: {COUNT} 1.5"),
    ("--num_workers=", {"workers": []}, "num_workers: expected one or more, got no"),
    (f"--num_workers={10**30}", {"workers": [10**30]}, f"num_workers: {COUNT} {10**30}"),
    ("--hybrid_workers=0", {"hybrid_workers": 0}, f"hybrid_workers: {COUNT} 0"),
    ("--ppp_comp=0", {"ppp_comp": 0}, f"ppp_comp: {SHARE} 0"),
    ("--ppp_comp=1.01", {"ppp_comp": 1.01}, f"ppp_comp: {SHARE} 1.01"),
    ("--ppp_comm=nan", {"ppp_comm": nan}, f"ppp_comm: {SHARE} NaN"),
    ("--ppp_comm=-1", {"ppp_comm": -1}, f"ppp_comm: {SHARE} -1"),
    ("--batch_size=0", {"batch_size": 0}, f"batch_size: {WHOLE} 0"),
    ("--batch_size=-1", {"batch_size": -1}, f"batch_size: {WHOLE} -1"),
    (
        f"--batch_size={10**20}",
        {"batch_size": 10**20},
        "batch_size: with so many workers, too large",
    ),
    ("--scaling=weka", {"scaling": "weka"}, "scaling: expected weak or strong, got 'weka'"),
    ("--scaling=", {"scaling": []}, "scaling: expected one or more, got none"),
    ("--device=TITANX", {"device": "TITANX"}, "unknown device 'TITANX' (did you mean 'TITAN_X'?)"),
    ("--network=foo", {"network": "foo"}, "unknown network 'foo' (there are: aws, efa_p3dn, "),
    ("--scheme=Star", {"schemes": ["Star"]}, "unknown communication scheme 'Star' (there are: "),
    ("--cost_model=x", {"cost_model": "x"}, "unknown cost model 'x' (there are: paleo2017, "),
]


@pytest.mark.parametrize(("option", "setting", "message"), SETTINGS)
def test_a_setting_out_of_range_is_named(
    option: str, setting: dict[str, Any], message: str
) -> None:
    (line,) = refused("simulate", "alex_v2", option)
    assert line.startswith(message)
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate("alex_v2", **setting)
    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(message)


def test_all_settings_out_of_range_are_said_together() -> None:
    last = {option.partition("=")[0]: (option, message) for option, _, message in SETTINGS}
    del last["--batch_size"]  # too large only for a net, which is not looked at then
    lines = refused("simulate", "gone.json", *(option for option, _ in last.values()))
    for message in ("gone.json: no such file", *(message for _, message in last.values())):
        assert [line.startswith(message) for line in lines].count(True) == 1
    assert len(lines) == len(last) + 1


def test_a_share_too_small_to_mean_anything_is_refused() -> None:
    for name in ("ppp_comp", "ppp_comm"):
        refused("simulate", "alex_v2", f"--{name}=1e-320")


@pytest.mark.slow
def test_a_process_says_the_same_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "my.json").write_text(net(**{"a\nb": conv(padding=3), "é": flat("x")}), "utf-8")
    (tmp_path / "folder").mkdir()
    cases = {
        ("summary", "my.json"): (1, 2),
        ("simulate", "gone.json", "folder", "--device=K41"): (1, 3),
        ("simulate", "alex_v2", "--num_workers=0,1.5", "--ppp_comp=nan"): (1, 3),
        ("simulate", "--foo"): (2, 1),
        ("foo",): (2, 1),
    }
    for arguments, (status, count) in cases.items():
        done = subprocess.run(
            [sys.executable, "-m", "paleo", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (status, ""), done
        assert len(done.stderr.splitlines()) == count, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_has_no_traceback() -> None:
    nets = ["inception_v3"] * 24
    command = shlex.join([sys.executable, "-m", "paleo", "summary", *nets])
    # Both by a program of its own: its tables are as wide, whatever terminal this runs in.
    whole = subprocess.run(command, shell=True, capture_output=True, text=True).stdout
    assert len(whole) > 2**17  # twice what a pipe holds
    done = subprocess.run(f"{command} | head -1", shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (whole.splitlines(keepends=True)[0], "")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/dev/full", "&-"])
def test_an_output_that_cannot_be_written_is_one_line(target: str) -> None:
    if target == "/dev/full" and not Path(target).exists():
        pytest.skip("this system has no /dev/full")
    command = shlex.join([sys.executable, "-m", "paleo", "summary", "alex_v2"])
    done = subprocess.run(f"{command} >{target}", shell=True, capture_output=True, text=True)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
