"""Nets of one's own in the live demo: uploads, links that carry them, names like markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from browser import NET, View, net_file

import paleo
from paleo.web.parsing import ENDINGS

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

PROTOTXT = b"""name: "proto"
layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 5 kernel_size: 3 pad: 1 } }
"""
#: For training, it leaves open how large an image is.
TRAINING = b"""name: "training"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { batch_size: 4 } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
        inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""
DROP = """([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    for (const type of ["dragover", "drop"]) {
        document.querySelector("#upload").dispatchEvent(
            new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
}"""


def layers(view: View, file: str) -> list[str]:
    """Return the layers that the page shows of an uploaded net."""
    view.shows(file=file)
    view.page.click("#tab-layers")
    view.shows("view=layers", file=file)
    return [row[0] for row in view.cells("table-layers")]


def onnx_file() -> bytes:
    pytest.importorskip("onnx", reason="needs onnx")
    from onnx_models import FLOAT, model, node

    weights = {"w": (5, 3, 3, 3)}
    made = model([node("Conv", "x w", pads=[1, 1, 1, 1])], {"x": [4, 3, 8, 8]}, weights)
    assert FLOAT
    return bytes(made.SerializeToString())


def test_a_net_file_is_uploaded_and_answered(view: View) -> None:
    view.open().shows()
    view.upload("mine.json", net_file())
    assert layers(view, "mine.json") == ["data", "conv", "flat", "out"]
    assert "mine.json" in view.text("#own")
    assert "small, 4 layers" in view.text("#own")
    assert view.query() == "view=layers"
    # A batch of 256 on each of 8 workers, as by the API.
    settings: dict[str, Any] = {"cluster": "dgx_a100", "dtype": "mixed_fp16"}
    net = paleo.loads(json.dumps(NET))
    run = paleo.simulate(net, batch_size=256, workers=[8], **settings).runs[0]
    (row,) = run.rows
    assert dict(view.headlines())["speedup over one worker"] == (
        f"{row.whole_step(row.best_scheme).speedup:.2f}"
    )
    assert view.page.title() == "mine.json - Paleo"
    view.page.click("#own-remove")
    view.shows("view=layers")
    assert view.page.input_value("#net") == "resnet50_v1_5"


def test_a_prototxt_is_uploaded(view: View) -> None:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    view.open().shows()
    view.upload("deploy.prototxt", PROTOTXT)
    assert layers(view, "deploy.prototxt") == ["data", "conv"]


def test_an_onnx_file_is_uploaded(view: View) -> None:
    data = onnx_file()
    view.open().shows()
    view.upload("model.onnx", data)
    assert len(layers(view, "model.onnx")) >= 2
    assert any(row[1] == "Convolution" for row in view.cells("table-layers"))


def test_a_keras_model_is_uploaded(view: View) -> None:
    view.open().shows()
    fed = {"name": "x", "batch_shape": [None, 5]}
    layer_list = [
        {"class_name": "InputLayer", "config": fed},
        {"class_name": "Dense", "config": {"name": "d", "units": 4}},
    ]
    model = {"class_name": "Sequential", "config": {"name": "tiny", "layers": layer_list}}
    view.upload("model.keras.json", json.dumps(model).encode())
    assert layers(view, "model.keras.json") == ["x", "d"]
    accepted = view.page.get_attribute("#file", "accept").split(",")
    assert accepted == list(ENDINGS)


def test_a_file_is_dropped_on_the_page(view: View) -> None:
    view.open().shows()
    view.page.evaluate(DROP, ["dropped.json", net_file().decode()])
    assert layers(view, "dropped.json") == ["data", "conv", "flat", "out"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("cut.json", net_file()[:-9], "cut.json"),
        ("wrong.json", net_file().replace(b"InnerProduct", b"InerProduct"), "InnerProduct"),
        ("picture.png", b"\x89PNG", "picture.png"),
    ],
)
def test_a_bad_upload_shows_its_lines(view: View, name: str, data: bytes, said: str) -> None:
    view.refused = True
    view.open("net=lenet5").shows("net=lenet5")
    before = view.headlines()
    view.upload(name, data)
    assert said in view.text("#upload #error-upload")
    assert view.headlines() == before
    assert view.query() == "net=lenet5"
    assert view.text("#stale") == f"{name} cannot be shown. What is below is still of lenet5."


def test_settings_of_an_uploaded_net_are_those_of_the_controls(view: View) -> None:
    view.open("net=lenet5&software=MXNet").shows("net=lenet5", "software=MXNet")
    view.upload("mine.json", net_file())
    view.shows("software=MXNet", file="mine.json")
    view.page.select_option("#scheme", "OneToAll")
    view.shows("software=MXNet", "scheme=OneToAll", file="mine.json")
    assert dict(view.headlines())["scheme"] == "OneToAll"
    name, data = view.download('[data-export="simulate.json"]')
    assert name == "mine-simulate.json"
    assert json.loads(data)["runs"][0]["ppp_comp"] == 0.49


def test_a_link_carries_an_uploaded_net_to_another_browser(
    new_view: Callable[..., View], server: str
) -> None:
    first, other = new_view(server), new_view(server)
    first.open().shows()
    first.upload("mine.json", net_file())
    first.shows(file="mine.json")
    first.page.check("#fuse")
    first.shows("fuse=true", file="mine.json")
    other.page.goto(first.page.url)
    other.shows("fuse=true", file="mine.json")
    assert other.headlines() == first.headlines()
    assert other.page.is_checked("#fuse")
    # Back is the net without fusion, then the page before the upload.
    first.page.go_back()
    first.shows(file="mine.json")
    first.page.go_back()
    first.shows()
    assert first.page.input_value("#net") == "resnet50_v1_5"


def test_what_a_file_leaves_open_is_given_on_the_page(
    new_view: Callable[..., View], server: str
) -> None:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    first, other = new_view(server), new_view(server)
    first.refused = True
    first.open().shows()
    assert not first.page.is_visible("#file-options")
    first.upload("training.prototxt", TRAINING)
    assert "--input data=4xCxHxW" in first.text("#error-upload")
    first.page.fill("#file-options", "--input=4x")
    first.page.press("#file-options", "Enter")
    first.page.locator("#error-upload", has_text="expected a shape such as").wait_for()
    first.page.fill("#file-options", "--input=data=4x3x8x8")
    first.page.press("#file-options", "Enter")
    first.shows(file="training.prototxt")
    assert not first.page.is_visible("#error-upload")
    command = "paleo simulate training.prototxt --input=data=4x3x8x8 "
    assert command in first.page.locator("#commands").text_content()
    # Other options are another net.
    first.page.fill("#file-options", "--input=data=4x3x16x16")
    first.page.press("#file-options", "Enter")
    first.page.locator("#commands", has_text="--input=data=4x3x16x16 ").wait_for(state="attached")
    first.shows(file="training.prototxt")
    other.page.goto(first.page.url)
    other.shows(file="training.prototxt")
    assert other.headlines() == first.headlines()
    assert "4x3x16x16 " in other.page.locator("#commands").text_content()
    # A net file leaves nothing open.
    first.upload("mine.json", net_file())
    first.shows(file="mine.json")
    assert not first.page.is_visible("#file-options")


def test_a_link_that_was_cut_says_so(view: View) -> None:
    view.open("net=lenet5", "#net=AAAA").shows("net=lenet5")
    assert "cannot be read" in view.text("#notice")


def test_a_link_of_a_net_too_large_for_it_asks_for_the_file(view: View) -> None:
    # Names that no compression makes short.
    import random

    noise = random.Random(7)
    many = dict(NET["layers"])
    for _ in range(700):
        name = f"n{noise.getrandbits(1024):x}"
        many[name] = {"type": "Activation", "parents": ["data"], "function": "relu"}
    view.open("view=memory").shows("view=memory")
    view.upload("large.json", net_file(layers=many))
    view.shows("view=memory", file="large.json")
    assert "too large for a link" in view.text("#notice")
    assert view.page.url.endswith("#file=large.json")
    view.page.reload()
    assert "upload large.json" in view.text("#notice")
    view.shows("view=memory")


def test_a_net_named_like_markup_shows_as_text_everywhere(view: View) -> None:
    bad = "<script>alert(1)<\\script><img src=x onerror=alert(2)>"
    named = {
        bad if key == "conv" else key: {
            **value, "parents": [bad if parent == "conv" else parent for parent in value["parents"]]
        }
        for key, value in NET["layers"].items()
    }  # fmt: skip
    file = "<img src=x onerror=alert(3)>.json"
    view.open().shows()
    view.upload(file, net_file(name=bad, layers=named))
    assert bad in layers(view, file)
    assert view.text("#own-name") == file
    assert bad in view.text("#own")
    assert bad in view.text("#heading")
    assert file in view.page.title()
    elements = "script:not([src]):not([type]), img, [onerror]"
    assert view.page.locator(elements).count() == 0
    view.page.reload()
    view.shows("view=layers", file=file)
    assert view.page.locator(elements).count() == 0


def test_a_mistake_that_repeats_markup_shows_as_text(view: View) -> None:
    view.refused = True
    view.open("net=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E&%3Cb%3E=1")
    assert "<img src=x onerror=alert(1)>" in view.text("#error-net")
    assert '"<b>"' in view.text("#notice")
    assert view.page.locator("img").count() == 0


def test_types_of_numbers_do_not_matter_in_settings_of_uploads() -> None:
    # The page sends every setting as text; programs may send numbers.
    from paleo.web.settings import read_settings

    texts: dict[str, Any] = {"workers": "16", "fuse": "true", "ppp_comp": "0.5"}
    numbers = {"workers": 16, "fuse": True, "ppp_comp": 0.5}
    assert read_settings(texts) == read_settings(numbers)
