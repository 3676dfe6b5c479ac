"""Settings of requests: whatever comes, each mistake is one line with its key."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.cli.commands import memory, metrics, report, simulate, summary
from paleo.cluster import device_aliases
from paleo.cluster.frameworks import SOFTWARE
from paleo.web import predefined
from paleo.web.cache import Cache
from paleo.web.commands import DEFAULTS, command_lines
from paleo.web.settings import KEYS, PageSettings, parse_query, read_settings


def mistakes(values: dict[str, Any], file: str | None = None) -> list[str]:
    with pytest.raises(paleo.SettingError) as caught:
        read_settings(values, file)
    return [str(each) for each in caught.value.mistakes]


def test_no_settings_are_the_defaults_and_every_key_is_told() -> None:
    assert read_settings({}) == PageSettings()
    assert tuple(PageSettings().to_dict()) == KEYS
    assert read_settings(PageSettings().to_dict()) == PageSettings()


def test_texts_and_json_values_say_the_same() -> None:
    texts = {
        "batch_size": "64", "workers": "3", "ppp_comp": "0.5", "use_pipeline": "true",
        "fuse": "false", "epochs": "2.5", "dataset": "", "dataset_size": "1000", "price": "2.5",
    }  # fmt: skip
    values = {
        "batch_size": 64, "workers": 3, "ppp_comp": 0.5, "use_pipeline": True,
        "fuse": False, "epochs": 2.5, "dataset": "", "dataset_size": 1000, "price": 2.5,
    }  # fmt: skip
    assert read_settings(texts) == read_settings(values)


def test_the_curves_have_the_number_of_workers_looked_at() -> None:
    assert read_settings({"workers": "8"}).counts == (1, 2, 4, 8, 16, 32, 64, 128)
    assert read_settings({"workers": "100"}).counts == (1, 2, 4, 8, 16, 32, 64, 100, 128)


def test_a_software_brings_its_shares() -> None:
    found = read_settings({"software": "MXNet"})
    assert (found.ppp_comp, found.ppp_comm) == (0.49, 0.72)
    assert read_settings({"software": "MXNet", "ppp_comp": "0.49"}) == found
    assert mistakes({"software": "MXNet", "ppp_comp": "0.5"}) == [
        "ppp_comp: MXNet has 0.49; give another one without software"
    ]
    assert sorted(SOFTWARE) == ["Caffe", "MXNet", "TensorFlow"]


def test_a_size_of_ones_own_takes_the_place_of_the_dataset() -> None:
    assert read_settings({"dataset_size": "5"}).dataset == ""
    assert mistakes({"dataset_size": "5", "dataset": "mnist"}) == [
        "dataset: give it or dataset_size, not both"
    ]
    none = read_settings({"dataset": "", "epochs": ""})
    assert (none.dataset, none.dataset_size, none.epochs) == ("", None, None)


def test_a_net_that_takes_no_images_has_no_dataset_unless_one_is_named() -> None:
    assert read_settings({"net": "lenet5"}).dataset == "imagenet"
    assert read_settings({"net": "bert_base"}).dataset == ""
    assert read_settings({"net": "bert_base", "dataset": "imagenet"}).dataset == "imagenet"
    uploaded = paleo.load("gpt2")
    assert read_settings({}, "mine.json", net=uploaded).dataset == ""
    assert read_settings({}, "mine.json", net=paleo.load("nin")).dataset == "imagenet"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({"device": "H100_SXM"}, "mixed_fp16"),
        ({"device": "K80"}, "fp32"),
        ({"device": "H100_SXM", "cost_model": "paleo2017"}, "fp32"),
        ({"device": "K80", "dtype": "mixed_fp16"}, "mixed_fp16"),  # to be refused
    ],
)
def test_what_knows_no_mixed_precision_computes_in_fp32_unless_it_is_asked_for(
    values: dict[str, str], dtype: str
) -> None:
    assert read_settings(values).dtype == dtype


def test_an_alias_stands_for_its_device() -> None:
    alias, name = next(iter(device_aliases().items()))
    assert read_settings({"device": alias}).device == name


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("net", "resnet"), ("net", 3), ("net", "n" * 1000), ("net", None), ("net", ["nin"]),
        ("device", ""), ("network", "x"), ("cost_model", "x"), ("dtype", "fp7"), ("dtype", {}),
        ("batch_size", "x"), ("batch_size", ""), ("batch_size", "1.5"), ("batch_size", True),
        ("batch_size", "0"), ("batch_size", "1e3"), ("batch_size", 10**6 + 1), ("batch_size", [1]),
        ("workers", "0"),
        ("workers", "1,2"), ("workers", 2**40), ("workers", None), ("scaling", "medium"),
        ("scaling", "weak,strong"), ("scheme", "x"), ("scheme", None), ("software", "Torch"),
        ("ppp_comp", "0"), ("ppp_comp", "1.01"), ("ppp_comp", "nan"), ("ppp_comp", "inf"),
        ("ppp_comp", float("nan")), ("ppp_comm", float("inf")), ("ppp_comm", "-1"),
        ("ppp_comm", "1e-999999"), ("use_pipeline", "yes"), ("use_pipeline", 1), ("fuse", None),
        ("dataset", "nothing"), ("dataset_size", "0"), ("dataset_size", 10**40),
        ("epochs", "-1"), ("epochs", "1e999"), ("epochs", 10**40), ("price", "cheap"),
        ("price", "-1"), ("price", {}), ("price", "1" * 300), ("price", True),
        ("loss", "x"), ("recompute", "half"), ("recompute", "full:"), ("optimizer_kernels", "x"),
        ("tokens", "x"), ("tokens", "0"), ("tokens", "1e99"), ("clip_gradients", "1"),
        ("scale_loss", "x"), ("seq_len", "0"), ("seq_len", "x"), ("seq_len", "1.5"),
        ("seq_len", 10**9), ("seq_len", [1]), ("seq_len", True),
        ("optimizer", "x"), ("optimizer", "<script>"), ("nonsense", "1"), ("", "1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line_that_begins_with_its_key(key: str, value: Any) -> None:
    (line,) = mistakes({key: value})
    assert line.startswith(f"{key}: ")
    assert "\n" not in line


def test_a_batch_has_a_million_samples_at_most() -> None:
    assert read_settings({"batch_size": "1000000"}).batch_size == 10**6
    assert mistakes({"batch_size": "1000001"}) == [
        "batch_size: 1,000,000 are the most that are answered here, got 1000001"
    ]


def test_all_mistakes_are_told_at_once() -> None:
    lines = mistakes({"net": "x", "device": "y", "batch_size": "z", "epochs": "w", "fuse": "v"})
    assert [line.split(":")[0] for line in lines] == [
        "net", "device", "batch_size", "fuse", "epochs",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("key", ["net", "device", "network", "cluster"])
@pytest.mark.parametrize(
    "name",
    [
        "nets/nin.json", "nin.json", "./nin", "../nets/nin.json", "/etc/passwd", "C:\\x.toml",
        "../../etc/passwd", "python:os:system", "python:antigravity:x", "K40.toml", "nin\0",
        "ethernet.toml", "file:///etc/passwd", "..", ".", "~", "nin/", "nin.prototxt",
    ],
)  # fmt: skip
def test_no_path_and_no_code_stands_for_a_name(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError("a file was opened")

    predefined.device_aliases(), predefined.network_aliases(), predefined.net_names()
    predefined.cluster_aliases()
    monkeypatch.setattr("pathlib.Path.open", opened)
    monkeypatch.setattr("pathlib.Path.read_bytes", opened)
    monkeypatch.setattr("builtins.open", opened)
    monkeypatch.setattr("importlib.import_module", opened)
    (line,) = mistakes({key: name})
    assert line.startswith(f"{key}: unknown {key} ")


def test_a_query_is_read_strictly() -> None:
    assert parse_query(b"") == {}
    assert parse_query(b"net=nin&price=0.9+EUR%2Fh&scheme=") == {
        "net": "nin", "price": "0.9 EUR/h", "scheme": "",
    }  # fmt: skip
    for wrong in (b"net", b"net=%ff", b"net=\xff", b"&", b"&".join([b"a=1"] * 161)):
        with pytest.raises(paleo.SettingError, match="the query: expected"):
            parse_query(wrong)
    with pytest.raises(paleo.SettingError, match=r"^net: given twice$"):
        parse_query(b"net=nin&net=vgg16")


def test_an_uploaded_net_leaves_no_room_for_another() -> None:
    assert read_settings({}, "a.json").net == "a.json"
    assert read_settings({"net": "a.json"}, "a.json").is_uploaded
    (line,) = mistakes({"net": "nin"}, "a.json")
    assert line.startswith("net: ")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(KEYS) | st.text(max_size=10),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(), st.integers(), max_size=2),
        max_size=6,
    )
)
def test_anything_gives_settings_or_mistakes(values: dict[str, Any]) -> None:
    try:
        found = read_settings(values)
    except paleo.SettingError as error:
        said = [str(each) for each in error.mistakes]
    else:
        said = ["no mistake"]
        assert read_settings(found.to_dict()) == found
    assert said
    assert all("\n" not in line for line in said)


def test_the_commands_have_these_defaults() -> None:
    commands = (simulate, summary, memory, metrics, report)
    for module in commands:
        options = {name.strip("-"): each for each in module.command.params for name in each.opts}
        for key, default in DEFAULTS.items():
            said = (module in (summary, memory) and key == "device") or (
                module in (metrics, memory) and key == "num_workers"
            )
            if key in options and not said:
                found = options[key].get_default(click.Context(module.command))
                assert found == default, (module.__name__, key)


def lines(kind: str, **values: Any) -> list[str]:
    file = values.pop("file", None)
    return [each["text"] for each in command_lines(read_settings(values, file), kind, 16)]


def test_command_lines_say_what_differs_from_the_defaults() -> None:
    assert lines("layers", net="nin", batch_size="16") == [
        "paleo summary nin --device=A100_SXM_80GB --batch_size=16 --dtype=mixed_fp16"
    ]
    assert lines("memory", net="nin", device="K40", optimizer="adam", dtype="fp16") == [
        "paleo memory nin --device=K40 --batch_size=16 --dtype=fp16 --optimizer=adam"
    ]
    simulated, measured, reported = lines(
        "scaling", net="nin", workers="100", scheme="TreeAllReduce", software="Caffe", epochs="47",
        use_pipeline="true", price="0.90 EUR/h", device="TITAN_X", network="ethernet",
        batch_size="128",
    )  # fmt: skip
    assert simulated == (
        "paleo simulate nin --batch_size=128 --num_workers=1,2,4,8,16,32,64,100,128 "
        "--ppp_comm=0.56 --dtype=mixed_fp16 --ppp_comp=0.21 --use_pipeline --scheme=TreeAllReduce"
    )
    assert measured.startswith("paleo metrics nin --batch_size=128 --num_workers=1,2,4,8,16,")
    assert "--dataset=imagenet --epochs=47 '--price=0.90 EUR/h'" in measured
    assert reported.endswith(" -o report.html")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("a b.json", "a b.json"), ("-rf.json", "./-rf.json"), ("$(x);'\".json", "$(x);'\".json"),
        ("<script>.onnx", "<script>.onnx"),
    ],
)  # fmt: skip
def test_file_names_are_one_word_of_a_shell(file: str, said: str) -> None:
    for kind in ("scaling", "layers", "memory"):
        for line in lines(kind, file=file):
            assert shlex.split(line)[2] == said


def test_what_is_asked_for_again_is_the_most_recent() -> None:
    kept: Cache[str] = Cache(3)
    for key in "abc":
        kept.keep(key, key.upper())
    assert kept.find("a") == "A"  # so that "b" is the oldest now
    kept.keep("d", "D")
    assert kept.find("b") is None
    kept.get("c", lambda: "another")  # and "a" now
    kept.keep("e", "E")
    assert [kept.find(key) for key in "abcde"] == [None, None, "C", "D", "E"]


def test_the_weight_of_what_went_is_free_again() -> None:
    kept: Cache[str] = Cache(10)
    for key, weight in (("a", 3), ("b", 3), ("c", 3)):
        kept.keep(key, key, weight)
    assert kept.weight == 9
    kept.keep("d", "d", 7)  # 3 + 7 are 10: "a" and "b" go, "c" stays
    assert ([kept.find(key) for key in "abcd"], kept.weight) == ([None, None, "c", "d"], 10)
    kept.keep("e", "e", 10)  # as heavy as everything may be
    assert (len(kept), kept.weight, kept.find("e")) == (1, 10, "e")


def test_what_is_heavier_than_everything_may_be_drives_nothing_out() -> None:
    kept: Cache[str] = Cache(10)
    kept.keep("a", "A", 10)
    assert kept.get("b", lambda: "B", lambda _: 11) == "B"
    assert (kept.find("a"), kept.find("b"), kept.weight) == ("A", None, 10)


def test_what_is_kept_already_is_not_made_or_replaced() -> None:
    kept: Cache[str] = Cache(10)
    kept.keep("a", "A", 4)
    assert kept.keep("a", "another", 6) == "A"
    assert kept.get("a", lambda: pytest.fail("it is made again")) == "A"
    assert (len(kept), kept.weight) == (1, 4)


def test_what_is_kept_is_bounded_by_weight_and_the_most_recent() -> None:
    kept: Cache[str] = Cache(10)
    kept.keep("a", "A", 4)
    kept.keep("b", "B", 4)
    assert kept.find("a") == "A"
    kept.keep("c", "C", 4)  # 12 is more than 10: the one not asked for goes
    assert [kept.find(key) for key in "abc"] == ["A", None, "C"]
    assert (len(kept), kept.weight) == (2, 8)
    assert kept.keep("d", "D", 11) == "D"
    assert kept.find("d") is None
    assert kept.keep("a", "another", 4) == "A"
    assert kept.get("e", lambda: "E") == "E"
