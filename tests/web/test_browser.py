"""The live demo in a browser: each control, the address, links, exports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import PATIENCE, View, violations, watch
from click.testing import CliRunner

from paleo.cli import cli
from paleo.cluster import find_device
from paleo.studies.datasets import DATASETS
from paleo.views.tables.metrics import money
from paleo.web.answers import Answers
from paleo.web.settings import parse_query, read_settings

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

ANSWERS = Answers()
#: A net that is answered quickly.
LENET = "net=lenet5"


def answer(kind: str, query: str) -> dict[str, Any]:
    """Return what the server answers to the settings of an address."""
    own = "&".join(part for part in query.split("&") if not part.startswith("view="))
    found = json.loads(ANSWERS.text(kind, read_settings(parse_query(own.encode()))))
    assert isinstance(found, dict)
    return found


def expected_headlines(query: str) -> list[list[str]]:
    found = answer("scaling", query)
    (row,) = (row for row in found["headlines"] if row["workers"] == found["settings"]["workers"])
    items = [*row["items"], *answer("memory", query)["headlines"]]
    return [[item["label"], item["value"]] for item in items]


def command(*arguments: str) -> bytes:
    result = CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def pick(name: str, typed: str, *keys: str) -> Callable[[Any], None]:
    """Choose by typing into a field with a list."""

    def act(page: Any) -> None:
        page.click(f"#{name}")
        page.fill(f"#{name}", typed)
        for key in keys:
            page.keyboard.press(key)

    return act


def choose(name: str, value: str) -> Callable[[Any], None]:
    return lambda page: page.select_option(f"#{name}", value)


def write(name: str, text: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.fill(f"#{name}", text)
        page.keyboard.press("Tab")

    return act


def tick(selector: str) -> Callable[[Any], None]:
    return lambda page: page.check(selector)


def slide(name: str, *keys: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.focus(f"#{name}-slider")
        for key in keys:
            page.keyboard.press(key)

    return act


def flat(act: Callable[[Any], None]) -> Callable[[Any], None]:
    """Choose no cluster, and then act."""

    def both(page: Any) -> None:
        choose("cluster", "")(page)
        act(page)

    return both


def exchange(act: Callable[[Any], None]) -> Callable[[Any], None]:
    """Open the settings of exchanges, and then act."""

    def both(page: Any) -> None:
        page.evaluate("document.getElementById('box-exchange').open = true")
        act(page)

    return both


#: What a user does, and what of the address changes.
CONTROLS: dict[str, tuple[Callable[[Any], None], tuple[str, ...]]] = {
    "device": (flat(pick("device", "k20x", "Enter")), ("device=K20X",)),
    "network": (flat(pick("network", "infiniband", "ArrowDown", "Enter")), ("network=infiniband",)),
    "cluster": (choose("cluster", "dgx1_v100"), ("cluster=dgx1_v100",)),
    "no cluster": (choose("cluster", ""), ("cluster=",)),
    "exchange": (exchange(choose("overlap", "false")), ("overlap=false",)),
    "bucket": (exchange(write("bucket", "1MiB")), ("bucket=1MiB",)),
    "accumulated batches": (exchange(write("accumulate", "4")), ("accumulate=4",)),
    "type of gradients": (exchange(choose("gradient_dtype", "fp8")), ("gradient_dtype=fp8",)),
    "compression": (exchange(write("compress", "onebit")), ("compress=onebit",)),
    "jitter": (exchange(write("jitter", "0.1")), ("jitter=0.1",)),
    "version of NCCL": (exchange(write("nccl", "2.18")), ("nccl=2.18",)),
    "number of workers": (write("workers", "24"), ("workers=24",)),
    "slider of workers": (slide("workers", "ArrowRight"), ("workers=16",)),
    "strong scaling": (tick("[name=scaling][value=strong]"), ("scaling=strong",)),
    "scheme": (choose("scheme", "TreeAllReduce"), ("scheme=TreeAllReduce",)),
    "batch": (write("batch_size", "100"), ("batch_size=100",)),
    "slider of the batch": (slide("batch_size", "ArrowLeft"), ("batch_size=128",)),
    "cost model": (choose("cost_model", "paleo2017"), ("cost_model=paleo2017",)),
    "type": (choose("dtype", "fp64"), ("dtype=fp64",)),
    "optimizer": (choose("optimizer", "adam"), ("optimizer=adam",)),
    "pipelined": (tick("#use_pipeline"), ("use_pipeline=true",)),
    "fused": (tick("#fuse"), ("fuse=true",)),
    "software": (choose("software", "MXNet"), ("software=MXNet",)),
    "share of computing": (write("ppp_comp", "0.5"), ("ppp_comp=0.5",)),
    "slider of computing": (slide("ppp_comp", "ArrowLeft"), ("ppp_comp=0.99",)),
    "share of the network": (write("ppp_comm", "0.25"), ("ppp_comm=0.25",)),
    "slider of the network": (slide("ppp_comm", "Home"), ("ppp_comm=0.01",)),
    "dataset": (choose("dataset", "mnist"), ("dataset=mnist",)),
    "samples": (write("dataset_size", "5000"), ("dataset=", "dataset_size=5000")),
    "epochs": (write("epochs", "3.5"), ("epochs=3.5",)),
    "price": (write("price", "0.90 EUR/h"), ("price=0.90+EUR%2Fh",)),
}


def test_the_page_opens_with_the_defaults_and_their_figures(view: View) -> None:
    view.open().shows()
    assert view.query() == ""
    assert view.headlines() == expected_headlines("")
    assert view.page.title() == "resnet50_v1_5 - Paleo"
    keys = [figure.get_attribute("data-key") for figure in view.page.query_selector_all("figure")]
    shown = ["memory", "speedup", "time", "cost", "step", "efficiency"]
    others = ("footprint", "parts")  # of another tab, and of a kind of its own
    assert [key for key in keys if key and key not in others] == shown
    assert "footprint" in keys
    assert view.cells("table-scaling") == answer("scaling", "")["table"]["rows"]


@pytest.fixture(scope="module")
def shared(browser: Any, server: str) -> Iterator[View]:
    """One page for all controls: to open it takes longer than to change them."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    view = View(context.new_page(), server)
    watch(view.page, view)
    yield view.open(LENET)
    context.close()


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_changes_the_address_and_the_figures(shared: View, control: str) -> None:
    view = shared
    act, changed = CONTROLS[control]
    view.page.evaluate("history.pushState(null, '', '?net=lenet5')")
    view.page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    view.shows(LENET)
    act(view.page)
    view.shows(LENET, *changed)
    assert sorted(view.query().split("&")) == sorted([LENET, *changed])
    assert view.headlines() == expected_headlines(view.query())
    assert view.cells("table-scaling") == answer("scaling", view.query())["table"]["rows"]
    view.check()


def test_a_net_is_found_by_typing_a_part_of_its_name(view: View) -> None:
    view.open(LENET).shows(LENET)
    pick("net", "densenet201")(view.page)
    assert view.page.locator("#box-net [role=option]").all_inner_texts() == ["densenet201"]
    view.page.keyboard.press("Enter")
    view.shows("net=densenet201")
    pick("net", "alex", "ArrowDown", "ArrowDown", "Enter")(view.page)
    second = [entry for entry in view.page.evaluate("Paleo.data('choices').nets.map(n => n.name)")
              if "alex" in entry][1]  # fmt: skip
    view.shows(f"net={second}")
    pick("net", "no such")(view.page)
    assert view.text("#box-net [role=listbox]") == "No such name."
    view.page.keyboard.press("Escape")
    assert view.page.input_value("#net") == second


def test_shares_of_a_software_are_shown_and_become_ones_own_when_moved(view: View) -> None:
    view.open(f"{LENET}&software=Caffe").shows(LENET, "software=Caffe")
    assert (view.page.input_value("#ppp_comp"), view.page.input_value("#ppp_comm")) == (
        "0.21",
        "0.56",
    )
    slide("ppp_comp", "ArrowRight")(view.page)
    view.shows(LENET, "ppp_comp=0.22", "ppp_comm=0.56")
    assert view.page.input_value("#software") == ""
    choose("software", "TensorFlow")(view.page)
    view.shows(LENET, "software=TensorFlow")
    choose("software", "")(view.page)
    view.shows(LENET, "ppp_comp=0.62", "ppp_comm=0.72")


def test_tabs_show_layers_and_memory_as_the_api_has_them(view: View) -> None:
    view.open(LENET).shows(LENET)
    view.page.click("#tab-layers")
    view.shows(LENET, "view=layers")
    assert view.cells("table-layers") == answer("layers", LENET)["table"]["rows"]
    assert view.page.locator("#layers-charts svg:visible").count() >= 2
    view.page.click("#tab-memory")
    view.shows(LENET, "view=memory")
    assert view.cells("table-memory") == answer("memory", LENET)["table"]["rows"]
    assert view.page.locator("#memory-charts figure[data-key=footprint] svg:visible").count() >= 1
    view.page.reload()
    view.shows(LENET, "view=memory")
    assert view.page.locator("#table-memory").is_visible()


@pytest.mark.parametrize("key", ["speedup", "memory"])
def test_a_tip_says_a_value_as_the_chart_has_it_in_words(view: View, key: str) -> None:
    view.open(LENET).shows(LENET)
    kind, mark = ("scaling", "dot") if key == "speedup" else ("memory", "bar")
    if kind == "memory":
        view.page.click("#tab-memory")
    chart = answer(kind, LENET)["charts"][key]
    figure = f"figure[data-key={key}]"
    view.page.locator(f"{figure} g[aria-label={mark}] > *").last.hover(force=True)
    lines = view.page.locator(f"{figure} g[aria-label=tip] tspan")
    lines.first.wait_for(timeout=PATIENCE)
    said = [line.strip("\u200b") for line in lines.all_text_contents()]
    told = [
        (f"{series['name']}", f"{chart['y_label']}: {text}")
        if key == "speedup"
        else (f"{series['name']}: {text}", chart["y_label"])
        for series in chart["series"]
        for text in series["texts"]
    ]
    assert any(name in said and value in said for name, value in told), said


def test_what_does_not_fit_stands_out_and_not_by_colour_alone(view: View) -> None:
    view.open(LENET).shows(LENET)
    assert view.page.locator("#headlines .warns").count() == 0
    large = "net=vgg16&batch_size=4096&device=TITAN_X"
    view.open(large).shows(*large.split("&"))
    warning = view.page.locator("#headlines .warns")
    assert warning.get_attribute("data-key") == "fits"
    assert warning.locator("dd").inner_text() == "does not fit in 12 GiB"
    mark = "e => getComputedStyle(e, '::before').content"
    assert warning.locator("dd").evaluate(mark).startswith('"!"')
    # It is said first, in words and among the figures, and times that nobody gets are grey.
    assert "does not fit" in view.text("#answer")
    labels = [label for label, _ in view.headlines()]
    assert labels.index("memory of the device") < labels.index("training step")
    colour = "e => getComputedStyle(e).color"
    step = view.page.locator("#headlines [data-key=step] dd:not(.band)").evaluate(colour)
    row = view.page.locator("#table-scaling tbody tr.unfit td").first.evaluate(colour)
    muted = view.page.locator("#heading").evaluate(colour)
    assert step == row == muted != warning.locator("dd").evaluate(colour)


def test_small_times_are_in_microseconds_with_their_sign(view: View) -> None:
    view.open(f"{LENET}&batch_size=1&view=layers").shows(LENET, "batch_size=1", "view=layers")
    heads = "\n".join(view.page.locator("#table-layers thead .unit").all_inner_texts())
    assert "(\u00b5s)" in heads
    assert "(us)" not in view.text("#results")
    (label,) = [
        each
        for each in view.page.locator("figure[data-key=time] text").all_text_contents()
        if "without the update" in each
    ]
    assert label.endswith("(\u00b5s)")


def test_a_table_is_sorted_by_a_column_and_as_it_was(view: View) -> None:
    view.open(f"{LENET}&view=layers").shows(LENET, "view=layers")
    rows = view.cells("table-layers")
    heads = view.page.locator("#table-layers thead button span:first-child").all_inner_texts()
    place = heads.index("parameters")
    sort = f"#table-layers thead th:nth-child({place + 1}) button"

    def parameters() -> list[int]:
        return [int(row[place].replace(",", "")) for row in view.cells("table-layers")]

    view.page.click(sort)
    # ip1 has 800 x 500 + 500, conv2 25 x 20 x 50 + 50, ip2 5,010, conv1 75 x 20 + 20.
    assert parameters() == [400_500, 25_050, 5_010, 1_520, 0, 0, 0, 0, 0, 0]
    view.page.click(sort)
    assert parameters() == [0, 0, 0, 0, 0, 0, 1_520, 5_010, 25_050, 400_500]
    view.page.click(sort)
    assert view.cells("table-layers") == rows


def test_back_and_forward_go_through_what_was_looked_at(view: View) -> None:
    view.open(LENET).shows(LENET)
    choose("scheme", "OneToAll")(view.page)
    view.shows(LENET, "scheme=OneToAll")
    slide("workers", "ArrowRight", "ArrowRight")(view.page)
    view.shows(LENET, "scheme=OneToAll", "workers=32")
    view.page.go_back()
    # Each press of a key is a step; a drag, with its change at the end alone, is one.
    view.shows(LENET, "scheme=OneToAll", "workers=16")
    assert view.page.input_value("#workers") == "16"
    view.page.go_back()
    view.page.go_back()
    view.shows(LENET)
    assert view.page.input_value("#scheme") == ""
    assert view.headlines() == expected_headlines(LENET)
    view.page.go_forward()
    view.shows(LENET, "scheme=OneToAll")


def test_a_drag_is_answered_on_the_way_and_is_one_step_back(view: View) -> None:
    view.open(LENET).shows(LENET)
    before = view.page.evaluate("history.length")
    view.page.locator("#batch_size-slider").scroll_into_view_if_needed()
    box = view.page.locator("#batch_size-slider").bounding_box()
    middle = box["y"] + box["height"] / 2
    view.page.mouse.move(box["x"] + box["width"] * 8 / 13, middle)
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + box["width"] - 1, middle, steps=12)
    view.shows(LENET, "batch_size=8192")  # the button is still down
    view.page.mouse.up()
    view.page.wait_for_timeout(100)
    assert view.page.evaluate("history.length") == before + 1
    view.page.go_back()
    view.shows(LENET)
    assert view.page.input_value("#batch_size") == "256"


def test_the_heading_says_the_number_of_workers_and_the_thick_line_why(view: View) -> None:
    several = (LENET, "cost_model=paleo2017")  # which has four schemes by itself
    view.open("&".join(several)).shows(*several)
    title = answer("scaling", "&".join(several))["table"]["title"]
    assert view.text("#heading") == f"{title}, 8\u00a0workers"
    best = ".of-group:has(+ #workers-charts) .legend .chosen"
    assert view.text(best).endswith("(the best exact on 128 workers)")
    write("workers", "1")(view.page)
    view.shows(*several, "workers=1")
    assert view.text("#heading") == f"{title}, 1\u00a0worker"
    choose("scheme", "OneToAll")(view.page)
    view.shows(*several, "workers=1", "scheme=OneToAll")
    assert view.text(best) == "OneToAll (chosen)"


def test_an_older_answer_never_follows_a_newer_one(view: View) -> None:
    view.open(LENET).shows(LENET)
    held: list[Any] = []

    def hold(route: Any) -> None:
        if "OneToAll" in route.request.url:
            held.append(route)  # answered after the next one
        else:
            route.continue_()

    view.page.route("**/api/scaling?*", hold)
    choose("scheme", "OneToAll")(view.page)
    view.page.wait_for_timeout(250)
    assert view.page.locator("#busy").is_visible()
    choose("scheme", "TreeAllReduce")(view.page)
    view.shows(LENET, "scheme=TreeAllReduce")
    for route in held:
        route.continue_()
    view.page.wait_for_timeout(150)
    assert view.headlines() == expected_headlines(f"{LENET}&scheme=TreeAllReduce")
    assert not view.page.locator("#busy").is_visible()


def test_a_link_reproduces_the_view_in_another_browser(
    new_view: Callable[..., View], server: str
) -> None:
    first, other = new_view(server), new_view(server)
    first.open(LENET).shows(LENET)
    flat(pick("device", "H100_SXM", "Enter"))(first.page)
    write("workers", "48")(first.page)
    tick("#fuse")(first.page)
    first.page.click("#tab-layers")
    changed = (LENET, "device=H100_SXM", "workers=48", "fuse=true", "view=layers")
    first.shows(*changed)
    other.page.goto(first.page.url)
    other.shows(*changed)
    for look in (View.headlines, lambda view: view.cells("table-layers")):
        assert look(first) == look(other)
    assert other.page.is_checked("#fuse")
    assert other.page.input_value("#device") == "H100_SXM"


def test_a_link_with_bad_values_says_so_and_the_page_can_be_used(view: View) -> None:
    view.refused = True
    view.open(f"{LENET}&batch_size=many&device=K21X&colour=red&view=sideways")
    assert view.text("#error-batch_size").startswith("Expected a whole number")
    error = view.text("#error-device")  # where it happened
    assert error.startswith("Unknown device 'K21X'")
    assert "K20X" in error  # a near name is offered
    notice = view.text("#notice")
    assert '"colour"' in notice
    assert '"sideways"' in notice
    assert view.page.get_attribute("#batch_size", "aria-invalid") == "true"
    assert view.page.input_value("#batch_size") == "many"
    assert view.page.get_attribute("#batch_size", "aria-errormessage") == "error-batch_size"
    assert "nothing to show" in view.text("#nothing")
    assert "Device: unknown device" in view.text("#nothing")  # in the words of the page
    write("batch_size", "32")(view.page)
    pick("device", "K20X", "Enter")(view.page)
    view.shows(LENET, "batch_size=32", "device=K20X")
    assert view.page.locator("#errors:visible, .here:visible").count() == 0
    assert view.headlines() == expected_headlines(view.query())


def test_a_list_that_a_control_has_is_not_listed_once_more(view: View) -> None:
    view.refused = True
    view.open("net=zzz")
    assert view.text("#error-net").startswith("Unknown net")
    assert "alex_v2" not in view.text("#error-net")


def test_an_error_keeps_the_last_good_picture_dimmed(view: View) -> None:
    view.refused = True
    view.open(LENET).shows(LENET)
    before = view.headlines()
    view.page.fill("#ppp_comp", "7")
    assert view.text("#error-ppp_comp").startswith("Expected")
    assert view.page.get_attribute("#error-ppp_comp", "role") == "alert"
    assert view.headlines() == before
    assert "stale" in str(view.page.get_attribute("#results", "class"))
    assert "Share of peak, computing: expected" in view.text("#stale")
    assert "old: of the last settings that had no mistake" in view.text("#stale")
    view.page.fill("#ppp_comp", "0.7")
    view.shows(LENET, "ppp_comp=0.7")
    assert "stale" not in str(view.page.get_attribute("#results", "class"))
    assert not view.page.locator("#stale").is_visible()


def test_an_unknown_net_that_is_typed_is_said_there_and_what_is_shown_is_old(view: View) -> None:
    view.refused = True
    view.open(LENET).shows(LENET)
    pick("net", "resnet5O", "Tab")(view.page)
    assert view.text("#error-net").startswith("Unknown net 'resnet5O'")
    assert "old" in view.text("#stale")
    pick("net", "nin", "Enter")(view.page)
    view.shows("net=nin")
    assert view.page.locator("#stale:visible, .here:visible").count() == 0


def test_what_is_not_chosen_follows_the_device_and_the_net(view: View) -> None:
    view.open("net=bert_base&device=K80").shows("net=bert_base", "device=K80")
    assert view.page.input_value("#dtype") == "fp32"
    assert view.page.input_value("#dataset") == ""
    assert view.page.locator("#dataset option:disabled").count() == len(DATASETS)
    assert "takes none" in view.text("#dataset-note")
    pick("net", "nin", "Enter")(view.page)
    pick("device", "H100_SXM", "Enter")(view.page)
    view.shows("net=nin", "device=H100_SXM")
    assert view.page.input_value("#dtype") == "mixed_fp16"
    assert view.page.input_value("#dataset") == "imagenet"
    assert view.page.locator("#dataset option:disabled").count() == 0


def test_the_price_stands_at_the_device_with_where_it_is_from(view: View) -> None:
    for name in ("A100_SXM_80GB", "TITAN_X"):
        view.open(f"{LENET}&device={name}")
        view.page.locator("#headlines dd").first.wait_for()
        price = find_device(name).newest_price
        shown = view.page.get_attribute("#price", "placeholder")
        said = view.text("#price-hint")
        assert shown == (f"{money(price.amount)} {price.currency}/h" if price else "none known")
        assert (price.date in said and price.provider in said) if price else "such as" in said


def test_two_configurations_stand_side_by_side(view: View) -> None:
    view.open(LENET).shows(LENET)
    assert not view.page.locator("#beside").is_visible()
    view.page.click("#box-other summary")
    pick("other_device", "K80", "Enter")(view.page)
    view.shows(LENET, "other_device=K80")
    write("other_batch_size", "64")(view.page)
    query = (LENET, "other_device=K80", "other_batch_size=64")
    view.shows(*query)
    found = answer("compare", "&".join(query))
    assert view.text("#beside-answer") == " ".join(found["answer"])
    assert view.cells("table-compare") == found["table"]["rows"]
    heads = view.page.locator("#table-compare thead button").all_inner_texts()
    assert heads[1:] == found["names"]
    assert view.page.locator("#beside-charts figure:visible").count() >= 2
    shown = view.page.locator("#commands code").all_inner_texts()
    for each in found["commands"]:
        assert each["text"] in shown
    assert view.headlines() == expected_headlines(LENET)  # which are of the first
    assert violations(view.page) == []
    view.page.reload()
    view.shows(*query)
    assert view.page.input_value("#other_device") == "K80"  # not folded
    view.page.click("#alone")
    view.shows(LENET)
    assert not view.page.locator("#beside").is_visible()


def test_a_mistake_in_the_other_configuration_is_said_there_alone(view: View) -> None:
    view.refused = True
    query = (LENET, "other_device=K8O")
    view.open("&".join(query)).shows(*query)
    assert view.text("#error-other_device").startswith("Unknown device 'K8O'")
    assert view.headlines() == expected_headlines(LENET)
    assert not view.page.locator("#stale, #beside").first.is_visible()
    pick("other_device", "", "Enter")(view.page)
    view.shows(LENET)
    assert view.page.locator(".here:visible").count() == 0


def test_layers_are_grouped_by_block(view: View) -> None:
    view.open("view=layers").shows("view=layers")
    found = answer("layers", "")
    heads = view.page.locator("#table-layers .block button")
    assert heads.all_inner_texts() == [each["name"] for each in found["blocks"]]
    said = view.page.locator("#table-layers .block td").all_inner_texts()
    assert said == [each["said"] for each in found["blocks"]]
    layer = view.page.locator("#table-layers tbody tr", has_text="layer1/0/conv1").first
    assert not layer.is_visible()  # of many layers the blocks are looked at first
    heads.first.click()
    assert layer.is_visible()
    assert heads.first.get_attribute("aria-expanded") == "true"
    assert view.page.evaluate("document.activeElement.dataset.block") == "5"
    assert violations(view.page) == []
    view.page.click("#table-layers thead th:last-child button")  # sorted, there are no blocks
    assert view.page.locator("#table-layers .block").count() == 0
    assert view.page.locator("#table-layers .folded").count() == 0
    view.open(f"{LENET}&view=layers").shows(LENET, "view=layers")
    assert view.page.locator("#table-layers .block").count() == 0


def test_boards_of_a_device_are_offered_in_their_order(view: View) -> None:
    view.open(LENET).shows(LENET)
    flat(pick("device", "H100"))(view.page)
    names = "#box-cluster [role=option] > span:first-child"
    assert view.page.locator(names).all_inner_texts() == ["H100_SXM", "H100_PCIE", "H100_NVL"]


def test_a_server_that_is_gone_is_said_in_a_line(view: View) -> None:
    view.open(LENET).shows(LENET)
    view.page.route("**/api/**", lambda route: route.abort("connectionrefused"))
    tick("#fuse")(view.page)
    assert view.text("#errors") == "The server does not answer. Is it still running?"
    assert all("CONNECTION_REFUSED" in fault for fault in view.faults)
    view.faults.clear()


@pytest.mark.parametrize("export", ["simulate", "summary", "memory"])
@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_is_what_the_command_line_prints(view: View, export: str, form: str) -> None:
    view.open(f"{LENET}&device=K20X&workers=4").shows(LENET, "device=K20X", "workers=4")
    name, data = view.download(f'[data-export="{export}.{form}"]')
    assert name == f"lenet5-{export}.{form}"
    options = {"simulate": ["--network=infiniband_hdr", "--scaling=weak"]}.get(export, [])
    said = ["lenet5", "--device=K20X", "--batch_size=256", *options, f"--format={form}"]
    assert data == command(export, *said)


def test_commands_and_the_link_are_copied(view: View) -> None:
    view.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    view.open(f"{LENET}&scaling=strong").shows(LENET, "scaling=strong")
    view.page.click(".command:first-child button")
    view.page.locator(".command:first-child button", has_text="Copied").wait_for()
    copied = view.page.evaluate("navigator.clipboard.readText()")
    shown = answer("scaling", view.query())["commands"][0]["text"]
    assert copied == shown == view.text(".command:first-child code")
    rows = json.loads(command(*shown.split()[1:], "--format=json"))["runs"][0]["rows"]
    figures = dict(view.headlines())
    eight = next(row for row in rows if row["workers"] == 8)
    assert figures["speedup over one worker"] == f"{eight['speedup'][eight['best_scheme']]:.2f}"
    view.page.click("#copy-link button")
    view.page.locator("#copy-link button", has_text="Copied").wait_for()
    assert view.page.evaluate("navigator.clipboard.readText()") == view.page.url


def test_reset_goes_back_to_the_defaults(view: View) -> None:
    view.open(f"{LENET}&fuse=true&scheme=OneToAll").shows(LENET, "fuse=true", "scheme=OneToAll")
    view.page.click("#reset")
    view.shows()
    assert view.query() == ""
    assert not view.page.is_checked("#fuse")
