"""What the demo answers is what the commands print."""

from __future__ import annotations

import csv
import gc
import io
import json
import random
import re
import shlex
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from summing_schemes import EXCHANGES

import paleo
from paleo.cli import cli
from paleo.cluster.frameworks import SOFTWARE
from paleo.step.memory import fit
from paleo.web.answers import EXPORTS, KINDS, Answers
from paleo.web.choices import choices
from paleo.web.serving_settings import SERVED
from paleo.web.settings import KEYS, MESH, PageSettings, read_settings

pytest.importorskip("flask", reason="needs Flask")

#: Layers that a net of the random settings may have: the large ones take as long as all others.
MOST_LAYERS = 80


@pytest.fixture(scope="module")
def client() -> Any:
    from paleo.web.app import create_app

    return create_app().test_client()


def printed(line: str, *options: str) -> str:
    """Return what a command line of the page prints."""
    words = shlex.split(line)
    assert words[0] == "paleo"
    done = CliRunner().invoke(cli, [*words[1:], *options])
    assert done.exit_code == 0, (line, done.output)
    return done.stdout


def answered(client: Any, what: str, settings: dict[str, Any]) -> Any:
    response = client.get(f"/api/{what}?{urlencode(settings)}")
    assert response.status_code == 200, (settings, response.get_data(as_text=True))
    return response


def random_settings(count: int) -> list[dict[str, Any]]:
    """Return settings from all that can be chosen; every net, device and network comes up."""
    draw = random.Random(7)
    nets = [name for name in paleo.net_names() if len(paleo.load(name).layers) <= MOST_LAYERS]

    def dealt(names: list[str]) -> list[str]:
        cards = [name for _ in range(-(-count // len(names))) for name in names]
        draw.shuffle(cards)
        return cards[:count]

    def one(net: str, device: str, network: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "net": net,
            "device": device,
            "network": network,
            "cost_model": draw.choice(["tiled", "tiled", *paleo.COST_MODELS]),
            "batch_size": draw.choice([1, 3, 16, 64, 100, 256]),
            "workers": draw.choice([1, 2, 5, 8, 32, 128, 300]),
            "scaling": draw.choice(["weak", "weak", "strong"]),
            "scheme": draw.choice(["", *EXCHANGES]),
            "dtype": draw.choice(["fp32", "fp32", "fp32", "fp16"]),
            "optimizer": draw.choice(list(paleo.OPTIMIZERS)),
        }
        if draw.random() < 0.5:
            found["software"] = draw.choice(list(SOFTWARE))
        else:
            found |= {"ppp_comp": draw.randint(1, 100) / 100, "ppp_comm": draw.random() or 1.0}
        found |= {flag: "true" for flag in ("fuse", "use_pipeline") if draw.random() < 0.2}
        found |= draw.choice(
            [
                {},
                {"dataset": draw.choice(list(paleo.DATASETS)), "epochs": draw.randint(1, 100)},
                {"dataset_size": draw.randint(1, 10**7), "epochs": 0.5 + draw.random()},
                {"dataset": "", "epochs": ""},
            ]
        )
        found |= draw.choice([{}, {"price": "0.9"}, {"price": "2.5 EUR/h"}])
        if draw.random() < 0.3:
            found["cluster"] = draw.choice(paleo.cluster_names())
            size = paleo.find_cluster(found["cluster"]).size
            found["workers"] = min(found["workers"], size)
        found |= draw.choice([{}, {"overlap": "false"}, {"bucket": "100MiB"}])
        found |= draw.choice(
            [{}, {"accumulate": 4}, {"jitter": 0.1}, {"gradient_dtype": "fp16"}, {"nccl": "2.18"}]
        )
        return found

    dealers = (nets, paleo.device_names(), paleo.network_names())
    return [one(*three) for three in zip(*map(dealt, dealers), strict=True)]


@pytest.mark.slow
@pytest.mark.alike
def test_the_numbers_are_those_of_the_command_line_for_200_random_settings(client: Any) -> None:
    compared = 0
    for settings in random_settings(200):
        response = client.get(f"/api/scaling?{urlencode(settings)}")
        if response.status_code == 400:
            # What the page refuses the commands refuse in the same words.
            (line,) = response.get_json()["errors"]
            place = ("cluster",) if settings.get("cluster") else ("device", "network")
            words = {key: settings[key] for key in ("net", *place, "cost_model", "dtype", "scheme")}
            words = {key: value for key, value in words.items() if value}
            done = CliRunner().invoke(
                cli, ["simulate", words.pop("net"), *(f"--{k}={v}" for k, v in words.items())]
            )
            assert done.exit_code == 1
            assert line in done.stderr
            continue
        answer = response.get_json()
        simulate, metrics, _ = (each["text"] for each in answer["commands"])
        run = json.loads(printed(simulate, "--format=json"))["runs"]
        assert answered(client, "simulate.json", settings).get_json()["runs"] == run, settings
        found = json.loads(printed(metrics, "--format=json"))["metrics"]
        check_charts(answer, run[0], found)
        compared += 1
    assert compared >= 150


def check_charts(answer: dict[str, Any], run: dict[str, Any], metrics: list[Any]) -> None:
    """Compare the charts' numbers, in the units of their labels, with those of the commands."""
    charts, rows = answer["charts"], run["rows"]
    counts = [row["workers"] for row in rows]
    assert [each["workers"] for each in answer["headlines"]] == counts
    chosen = answer["settings"]["scheme"]
    for series in charts["speedup"]["series"]:
        assert series["x"] == counts
        scheme = series["name"]
        if scheme in ("ideal", *run["knee"]):
            alone = [row["speedup"].get(scheme, row["workers"]) for row in rows]
            assert series["y"] == alone
        else:
            assert chosen not in ("", scheme)
    seconds = [each["training_time_s"] for each in metrics]
    best = [chosen or row["best_scheme"] for row in rows]
    assert [each["scheme"] or chosen for each in metrics[1:]] == best[1:]
    if charts["time"] is None:
        assert seconds[-1] is None
    else:
        unit = {"s": 1, "min": 60, "h": 3600, "d": 86400, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
        factor = next(f for name, f in unit.items() if f"({name})" in charts["time"]["y_label"])
        lines = {series["name"]: series["y"] for series in charts["time"]["series"]}
        assert [lines[scheme][i] * factor for i, scheme in enumerate(best)] == pytest.approx(
            seconds, rel=1e-12
        )
    costs = [each["training_cost"] for each in metrics]
    if charts["cost"] is None:
        assert costs[-1] is None
    else:
        lines = {series["name"]: series["y"] for series in charts["cost"]["series"]}
        # A worker alone exchanges nothing: metrics names another scheme there, at the same price.
        assert [lines[scheme][i] for i, scheme in enumerate(best)] == costs


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("kind", ["layers", "memory"])
def test_layers_and_memory_are_those_of_the_command_line(client: Any, kind: str) -> None:
    command = {"layers": "summary", "memory": "memory"}[kind]
    for settings in random_settings(40):
        response = client.get(f"/api/{kind}?{urlencode(settings)}")
        if response.status_code == 400:
            continue
        (line,) = (each["text"] for each in response.get_json()["commands"])
        found = answered(client, f"{command}.json", settings).get_data(as_text=True)
        assert found == printed(line, "--format=json"), settings
        found = answered(client, f"{command}.csv", settings).get_data(as_text=True)
        assert found == printed(line, "--format=csv"), settings


#: For training, it leaves open how large an image is.
TRAINING = b"""
name: "training"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { batch_size: 4 } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
        inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""


@pytest.mark.slow
def test_commands_read_an_uploaded_file_with_the_options_that_it_was_read_with(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_bytes(TRAINING)

    def upload(**query: str) -> Any:
        path = f"/api/net?{urlencode({'file': 'net.prototxt', **query})}"
        return client.post(path, data=TRAINING, content_type="application/octet-stream")

    (line,) = upload().get_json()["errors"]
    assert line.endswith("give it with --input data=4xCxHxW")
    lines = upload(options="--input other=4x3x8x8").get_json()["errors"]
    assert all(line.startswith("net.prototxt: ") for line in lines)
    net = upload(options=" --input data=4x3x8x8").get_json()
    assert net["options"] == "--input=data=4x3x8x8"
    # 3 channels of 8 x 8, to each of 10, and their biases.
    assert paleo.summarize(paleo.loads(net["text"])).num_params == 3 * 8 * 8 * 10 + 10
    asked = {key: net[key] for key in ("file", "text", "options")}
    for kind, export in (("scaling", "simulate"), ("layers", "summary"), ("memory", "memory")):
        body = {"settings": {"batch_size": 4, "scaling": "weak"}, "net": asked}
        commands = client.post(f"/api/{kind}", json=body).get_json()["commands"]
        found = client.post(f"/api/{export}.csv", json=body).get_data(as_text=True)
        assert found == printed(commands[0]["text"], "--format=csv")
    page = printed(client.post("/api/scaling", json=body).get_json()["commands"][2]["text"])
    assert page == ""
    assert "paleo simulate net.prototxt --input=data=4x3x8x8 " in Path("report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["layers", "memory"])
def test_what_is_kept_of_layers_and_memory_is_not_given_for_other_settings(
    client: Any, kind: str
) -> None:
    base = {"net": "alex_v2", "batch_size": "32", "scaling": "strong", "workers": "2"}
    for change in (
        {}, {"device": "K40"}, {"dtype": "fp64"}, {"optimizer": "adam"}, {"batch_size": "64"},
        {"workers": "4"}, {"scaling": "weak"}, {"ppp_comp": "0.5"}, {"fuse": "true"},
        {"cost_model": "paleo2017"}, {"use_pipeline": "true", "cost_model": "paleo2017"},
        {"net": "nin"}, {"network": "infiniband"}, {"scheme": "OneToAll"}, {},
    ):  # fmt: skip
        answer = answered(client, kind, base | change).get_json()
        fresh = json.loads(Answers().text(kind, read_settings(base | change)))
        assert answer == fresh, change
        text = " ".join(printed(answer["commands"][0]["text"], "--quiet").split())
        assert text.startswith(answer["table"]["title"])
        assert all(note in text for note in answer["table"]["footnotes"])


@pytest.mark.slow
def test_what_the_page_is_told_that_an_answer_depends_on_is_all_that_it_does() -> None:
    """The page does not ask again when something else changes."""
    base = {"net": "gpt2", "workers": "2", "epochs": "9", "price": "1"}
    changes = {
        "network": "infiniband", "cost_model": "paleo2017", "scheme": "OneToAll", "ppp_comp": "0.5",
        "ppp_comm": "0.5", "use_pipeline": "true", "fuse": "true", "dataset": "mnist",
        "dataset_size": "1000", "epochs": "3", "price": "2", "optimizer": "adam", "dtype": "fp64",
        "device": "K40", "framework": "timm", "memory_format": "channels_last", "compile": "true",
        "attention": "fa2", "cluster": "firecaffe", "overlap": "false", "bucket": "1GiB",
        "accumulate": "2", "gradient_dtype": "fp16", "compress": "onebit", "num_servers": "2",
        "jitter": "0.1", "nccl": "2.18", "graphs": "true", "optimizer_kernels": "foreach",
        "clip_gradients": "true", "scale_loss": "true", "loss": "none", "recompute": "full",
        "tokens": "1e9", "seq_len": "512",
        "tp": "2", "zero": "1", "micro_batch": "1", "global_batch": "8",
        "allocator_slack": "0.1", "loader_rate": "9",
    }  # fmt: skip
    told = {kind: choices()["depends"][kind] for kind in KINDS}
    others = {key for key in KEYS if key.startswith("other_")}
    others |= set(MESH) - {*changes}  # most of these say nothing without others
    every = {*changes, "net", "batch_size", "workers", "scaling", "software", *others}
    assert every == set(KEYS) - {*SERVED}
    for kind, keys in told.items():
        assert {"net", "batch_size", "workers", "scaling", "software"} <= set(keys) <= set(KEYS)
        first = json.loads(Answers().text(kind, read_settings(base)))
        for key in set(changes) - set(keys):
            changed = base | {key: changes[key]} | ({"epochs": ""} if key == "tokens" else {})
            found = json.loads(Answers().text(kind, read_settings(changed)))
            assert first | {"settings": None} == found | {"settings": None}, (kind, key)


def test_exports_are_what_the_commands_print_byte_for_byte(client: Any) -> None:
    for settings in (
        {"net": "nin"},
        {"net": "lenet5", "scaling": "strong", "scheme": "TreeAllReduce", "workers": "3"},
    ):
        line = answered(client, "scaling", settings).get_json()["commands"][0]["text"]
        for ending in ("json", "csv"):
            found = answered(client, f"simulate.{ending}", settings).get_data(as_text=True)
            assert found == printed(line, f"--format={ending}")
    rows = list(csv.DictReader(io.StringIO(found)))
    assert [row["workers"] for row in rows] == ["1", "2", "3", "4", "8", "16", "32", "64", "128"]
    assert {row["best_scheme"] for row in rows} == {"TreeAllReduce"}


def test_the_table_is_the_one_that_the_command_prints(client: Any) -> None:
    for settings in ({"net": "nin"}, {"net": "nin", "scheme": "OneToAll"}):
        answer = answered(client, "scaling", settings).get_json()
        text = printed(answer["commands"][0]["text"], "--quiet")
        table = answer["table"]
        assert " ".join(text.split()).startswith(table["title"])
        for row in table["rows"]:
            line = next(line for line in text.splitlines() if line.split()[:1] == row[:1])
            assert line.split() == " ".join(row).split()
        for note in (*table["footnotes"], *table["notes"]):
            assert note in " ".join(text.split())


def test_an_answer_has_what_the_page_shows(client: Any) -> None:
    settings = {"net": "nin", "scheme": "OneToAll", "price": "1"}
    answer = answered(client, "scaling", settings).get_json()
    assert set(answer) == {
        "settings", "answer", "takes_images", "headlines", "table", "charts", "commands", "hints",
        "tiers", "stages",
    }  # fmt: skip
    assert answer["stages"] is None  # of a mesh alone
    assert set(answer["charts"]) == {"speedup", "step", "efficiency", "parts", "time", "cost"}
    assert answer["settings"] == PageSettings(net="nin", scheme="OneToAll", price="1").to_dict()
    parts = answer["charts"].pop("parts")
    assert (parts["kind"], parts["title"]) == ("columns", "Parts of a training step by OneToAll")
    for chart in answer["charts"].values():
        names = [series["name"] for series in chart["series"] if not series["is_reference"]]
        assert names == ["auto", "OneToAll"]
        assert [s["name"] for s in chart["series"] if s["chosen"]] == ["OneToAll"]
    # Half of a batch of 256 on each of two workers.
    strong = {"net": "nin", "scaling": "strong", "workers": "2"}
    layers = answered(client, "layers", strong).get_json()
    assert "--batch_size=128" in layers["commands"][0]["text"]
    assert set(layers["charts"]) == {"layers", "roofline"}
    memory = answered(client, "memory", strong).get_json()
    assert set(memory["charts"]) == {"memory", "footprint"}
    weights, *_ = memory["charts"]["footprint"]["series"]
    assert (weights["name"], weights["x"][1]) == ("weights", memory["table"]["rows"][1][0])


def test_the_answer_is_the_figures_of_the_command_with_their_bands(client: Any) -> None:
    found = answered(client, "scaling", {"price": "2", "workers": "16"}).get_json()
    run = json.loads(printed(found["commands"][0]["text"], "--format=json"))["runs"][0]
    (row,) = (row for row in run["rows"] if row["workers"] == 16)
    scheme = row["best_scheme"]
    speed, *_, training = found["answer"]
    assert speed.startswith("16 x A100 SXM 80GB of dgx_a100 train resnet50_v1_5 at about ")

    def numbers(text: str) -> list[float]:
        return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,.]*(?<![,.])", text)]

    rate, low, high = (numbers(speed.split(" at ")[1])[i] for i in (0, 2, 3))
    for said, key in ((rate, ""), (low, "_low"), (high, "_high")):
        assert said == pytest.approx(row[f"throughput_per_s{key}"][scheme], rel=0.06)
    metrics = json.loads(printed(found["commands"][1]["text"], "--format=json"))["metrics"]
    (whole,) = (each for each in metrics if each["workers"] == 16)
    minutes, least, most = numbers(training.split(" takes ")[1])[:3]
    cost = numbers(training.split(" costs ")[1])[0]
    assert minutes == pytest.approx(whole["training_time_s"] / 60, rel=0.06)
    assert least < minutes < most
    assert cost == pytest.approx(whole["training_cost"], rel=0.06)
    items = {each["key"]: each for each in found["headlines"][4]["items"]}
    assert numbers(items["throughput"]["band"]) == [low, high]
    assert items["speedup"].get("band") is None  # it is of one and the same error


def test_what_does_not_fit_is_the_first_sentence_and_said_of_each_number_of_workers(
    client: Any,
) -> None:
    strong = {"net": "vgg16", "device": "T4", "scaling": "strong", "batch_size": "512"}
    whole = fit("vgg16", 512, device=paleo.find_device("T4"), dtype="mixed_fp16")
    assert whole.largest_batch
    assert not whole.fits
    found = answered(client, "scaling", {**strong, "workers": "1"}).get_json()
    assert found["answer"][:2] == [
        "vgg16 with a batch of 512 samples does not fit in the 16 GiB of T4.",
        f"The largest batch that fits has {whole.largest_batch:,} samples.",
    ]
    fits = {row["workers"]: row["fits"] for row in found["headlines"]}
    # Of 512 samples each of so many workers has its part.
    assert fits == {count: 512 / count <= whole.largest_batch for count in fits}
    assert set(fits.values()) == {True, False}
    found = answered(client, "scaling", {**strong, "workers": "64"}).get_json()
    assert not any("does not fit" in sentence for sentence in found["answer"])
    # Adam keeps two more numbers of each parameter, so that fewer samples fit.
    adam = answered(client, "scaling", {**strong, "optimizer": "adam"}).get_json()
    memory = answered(client, "memory", {**strong, "optimizer": "adam"}).get_json()
    most = next(item["value"] for item in memory["headlines"] if item["key"] == "largest_batch")
    assert [row["fits"] for row in adam["headlines"]] == [
        512 / row["workers"] <= int(most.replace(",", "")) for row in adam["headlines"]
    ]
    assert int(most.replace(",", "")) < whole.largest_batch


def test_a_dataset_of_images_is_for_nets_that_take_some(client: Any) -> None:
    words = answered(client, "scaling", {"net": "bert_base"}).get_json()
    assert (words["takes_images"], words["charts"]["time"]) == (False, None)
    named = answered(client, "scaling", {"net": "bert_base", "dataset": "imagenet"}).get_json()
    assert named["hints"][0] == "imagenet is of images, and bert_base takes none"
    assert answered(client, "scaling", {}).get_json()["takes_images"]


def test_repeated_blocks_are_one_and_kinds_are_summed(client: Any) -> None:
    found = answered(client, "layers", {"net": "gpt2", "batch_size": 2}).get_json()
    summary = paleo.summarize("gpt2", 2)
    (block,) = [each for each in found["blocks"] if each["name"] == "h x 12"]
    inside = [layer for layer in summary.layers if layer.name.startswith("h/")]
    assert block["layers"] == len(inside) // 12
    assert block["said"].startswith(f"{len(inside)} layers, ")
    rows = [row[0] for row in found["table"]["rows"]]
    assert len(rows) == len(summary.layers) - len(inside) // 12 * 11
    assert rows[block["first"]] == "h/*/ln_1 x 12"
    kinds = {row[0]: int(row[1].replace(",", "")) for row in found["kinds"]["rows"]}
    assert kinds == Counter(layer.type_name for layer in summary.layers)
    assert next(iter(kinds)) == "InnerProduct"  # which takes longest
    assert found["kinds"]["total"][1] == str(len(summary.layers))


def test_blocks_are_the_layers_between_and_have_their_times_together(client: Any) -> None:
    found = answered(client, "layers", {}).get_json()
    summary: Any = paleo.summarize(
        "resnet50_v1_5", batch_size=256, device="A100_SXM_80GB", dtype="mixed_fp16"
    )
    whole = summary.forward + summary.backward
    assert [each["name"] for each in found["blocks"]][:2] == ["layer1/0", "layer1/1"]
    for each in found["blocks"]:
        layers = summary.layers[each["first"] : each["first"] + each["layers"]]
        assert all(layer.name.startswith(f"{each['name']}/") for layer in layers)
        share = sum(layer.forward + layer.backward for layer in layers) / whole
        assert each["said"].startswith(f"{each['layers']} layers, ")
        assert each["said"].endswith(f", {100 * share:.1f} % of the time")
    assert answered(client, "layers", {"net": "lenet5"}).get_json()["blocks"] == []


def test_devices_are_in_the_order_in_which_one_looks_for_them() -> None:
    devices = choices()["devices"]
    for typed, boards in (("H100_", ["SXM", "PCIE", "NVL"]), ("P100_", ["SXM2", "PCIE"])):
        names = [each["name"] for each in devices if each["name"].startswith(typed)]
        assert names == [typed + board for board in boards]


def test_a_device_comes_with_its_newest_price() -> None:
    for each in choices()["devices"]:
        price = paleo.find_device(each["name"]).newest_price
        assert ("price" in each) == (price is not None)
        if price:
            amount, currency = each["price"].removesuffix("/h").split()
            assert (float(amount), currency) == (
                pytest.approx(price.amount, abs=0.005),
                price.currency,
            )
            assert each["priced"].startswith(price.provider)
            assert each["priced"].endswith(price.date)


def test_what_is_not_known_is_no_chart_and_a_hint_says_what_to_give(client: Any) -> None:
    answer = answered(client, "scaling", {"net": "nin", "epochs": ""}).get_json()
    assert (answer["charts"]["time"], answer["charts"]["cost"]) == (None, None)
    assert any("epochs" in hint for hint in answer["hints"])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the batches of one worker that are computed."""
    from paleo.step.parallelism import Computations

    asked = []
    of: Callable[..., Any] = Computations.of

    def counting(self: Any, batch: Any) -> Any:
        if not isinstance(batch, int) or self.missing([batch]):
            asked.append(batch)
        return of(self, batch)

    monkeypatch.setattr(Computations, "of", counting)
    return asked


@pytest.mark.parametrize(
    "change",
    [
        {"network": "infiniband"}, {"scheme": "TreeAllReduce"}, {"ppp_comm": "0.5"},
        {"epochs": "3"}, {"dataset": "mnist"}, {"price": "1"}, {"workers": "200"},
    ],
)  # fmt: skip
def test_a_change_of_the_cluster_or_the_training_computes_nothing_anew(
    change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers()
    answers.text("scaling", read_settings({"net": "nin"}))
    asked = counted(monkeypatch)
    answers.text("scaling", read_settings({"net": "nin"} | change))
    assert asked == []
    answers.text("scaling", read_settings({"net": "nin", "batch_size": "7"}))
    assert asked


@pytest.mark.slow
def test_what_is_kept_is_bounded() -> None:
    layers, characters = 60, 50_000
    answers = Answers(layers, characters)
    for batch in range(1, 20):
        for net in ("nin", "lenet5", "alex_v2"):
            answers.text("scaling", read_settings({"net": net, "batch_size": str(batch)}))
            assert answers._nets.weight <= layers
            assert answers._texts.weight <= characters
    assert len(answers._texts) >= 2


@pytest.mark.slow
def test_no_more_than_64_nets_are_kept_however_small() -> None:
    # 20,000 layers are 312 for each of 64, of which lenet5 has fewer.
    answers = Answers()
    for share in range(1, 71):
        answers.text("memory", read_settings({"net": "lenet5", "ppp_comp": f"{share / 100}"}))
    assert len(answers._nets) == 64


def test_what_is_no_longer_kept_is_freed_without_a_search_for_garbage() -> None:
    answers = Answers(layers=30)
    gc.disable()
    try:
        for what in (*KINDS, *EXPORTS):
            answers.text(what, read_settings({"net": "lenet5", "scaling": "strong"}))
        ((net, _),) = answers._nets._things.values()
        gone = weakref.ref(net.study)
        del net
        answers.text("memory", read_settings({"net": "vgg16"}))
        assert len(answers._nets) == 1
        assert gone() is None
    finally:
        gc.enable()


def test_threads_that_ask_the_same_at_once_wait_for_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    entered, released = threading.Event(), threading.Event()
    make = KINDS["scaling"]

    def slow(overview: Any) -> dict[str, Any]:
        made.append(overview)
        entered.set()
        assert released.wait(30)
        return make(overview)

    monkeypatch.setitem(KINDS, "scaling", slow)
    answers, settings = Answers(), read_settings({"net": "lenet5"})
    looked = threading.Semaphore(0)
    find = answers._texts.find

    def finding(key: Any) -> str | None:
        found = find(key)
        looked.release()
        return found

    monkeypatch.setattr(answers._texts, "find", finding)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(answers.text, "scaling", settings)
        assert entered.wait(30)
        others = [pool.submit(answers.text, "scaling", settings) for _ in range(3)]
        # The first has looked twice, before and after it had the net; the others once.
        all_looked = all(looked.acquire(timeout=10) for _ in range(2 + 3))
        released.set()
        assert all_looked
        assert {each.result(30) for each in others} == {first.result(30)}
    assert len(made) == 1


@pytest.mark.slow
def test_threads_get_what_one_gets() -> None:
    asked = [
        (what, read_settings({"net": net, "network": network, "batch_size": batch}))
        for what in (*KINDS, *EXPORTS)
        for net in ("nin", "lenet5")
        for network in ("ethernet", "infiniband")
        for batch in ("1", "64")
    ]
    alone, together = Answers(), Answers()
    expected = [alone.text(*each) for each in asked]
    shuffled = random.Random(3).sample(range(len(asked)), len(asked))
    with ThreadPoolExecutor(8) as pool:
        found = dict(
            zip(shuffled, pool.map(lambda i: together.text(*asked[i]), shuffled), strict=True)
        )
    assert [found[i] for i in range(len(asked))] == expected
