"""What a server does before it is asked: it ends, and changes no answer."""

from __future__ import annotations

import http.client
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import pytest
from model_configurations import DIFFERENT

import paleo
from paleo.web import predefined, warmup
from paleo.web.answers import EXPORTS, KINDS, Answers
from paleo.web.settings import PageSettings, read_settings
from paleo.web.warmup import Preparation, pieces

pytest.importorskip("flask", reason="needs Flask")
pytest.importorskip("waitress", reason="needs waitress")

#: The types that nets are looked at in.
DTYPES = warmup._DTYPES
Things = Iterator[Callable[[], object]]


def done(preparation: Preparation) -> None:
    preparation.start()
    preparation.join(30)
    assert preparation.is_done


def test_everything_is_done_in_order_and_then_it_ends() -> None:
    found: list[int] = []
    preparation = Preparation([lambda i=i: found.append(i) for i in range(20)])  # type: ignore[misc]
    assert not preparation.is_done
    done(preparation)
    assert found == list(range(20))


def test_a_mistake_in_it_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hooked: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)
    found: list[str] = []

    def wrong() -> None:
        raise RuntimeError("no")

    def missing() -> None:
        raise ImportError("no numpy")

    done(Preparation([wrong, lambda: found.append("a"), missing, lambda: found.append("b")]))
    assert found == ["a", "b"]
    assert hooked == []
    assert capfd.readouterr() == ("", "")


def endless(seen: list[int]) -> Things:
    for i in itertools.count():
        yield lambda i=i: seen.append(i)  # type: ignore[misc]


def test_it_stops_in_the_midst_and_does_not_wait_for_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warmup, "_PAUSE", 1e12)
    begun = threading.Event()
    seen: list[int] = []
    preparation = Preparation(itertools.chain([begun.set], endless(seen)))
    preparation.start()
    assert begun.wait(30)
    preparation.stop()
    preparation.join(30)
    assert preparation.is_done
    assert seen == []


def test_one_that_never_began_can_be_stopped_and_waited_for() -> None:
    preparation = Preparation([])
    preparation.stop()
    preparation.join()
    assert not preparation.is_done


@pytest.mark.slow
def test_every_net_is_read_and_the_first_view_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers()
    monkeypatch.setattr(warmup, "_look_at", lambda *_: None)
    for piece in pieces(answers):
        piece()
    before = predefined.net.cache_info().misses
    assert before >= len(paleo.net_names())
    for name in paleo.net_names():
        predefined.net(name)
    assert predefined.net.cache_info().misses == before
    monkeypatch.setattr("paleo.web.answers.overview_of", None)  # nothing is computed any more
    for kind in KINDS:
        assert (
            json.loads(answers.text(kind, PageSettings()))["settings"] == PageSettings().to_dict()
        )


@pytest.mark.slow
@pytest.mark.alike
def test_what_no_device_changes_is_found_of_every_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paleo.net.graph._known_of_nets", WeakKeyDictionary())
    for which, dtype in enumerate(DTYPES):  # each net is asked for in one of them
        names = DIFFERENT[which :: len(DTYPES)]
        monkeypatch.setattr(warmup, "net_names", lambda names=names: names)
        monkeypatch.setattr(warmup, "_DTYPES", [dtype])
        for piece in pieces(Answers()):
            piece()

    def never(*_: Any) -> Any:
        raise AssertionError("it is found again")

    monkeypatch.setattr("paleo.net.graph._infer", never)
    monkeypatch.setattr("paleo.step.memory.liveness._Scheduling", never)
    for name, dtype in zip(DIFFERENT, itertools.cycle(DTYPES), strict=False):
        asked = {"net": name, "device": "A30", "dtype": dtype, "batch_size": "7"}
        answered = json.loads(Answers().text("scaling", read_settings(asked)))
        assert answered["table"]["rows"]


@pytest.mark.slow
def test_nothing_is_read_twice_that_the_page_has_read_already() -> None:
    program = (
        "from paleo.web import predefined\n"
        "from paleo.web.app import create_app\n"
        "create_app()\n"
        "known = [f.cache_info().misses for f in (predefined.device, predefined.network)]\n"
        "for name in predefined.device_names(): predefined.device(name)\n"
        "for name in predefined.network_names(): predefined.network(name)\n"
        "print(known == [f.cache_info().misses for f in (predefined.device, predefined.network)])\n"
    )
    asked = [sys.executable, "-c", program]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "True\n"


def test_aliases_are_those_of_the_registry() -> None:
    assert predefined.device_aliases() == paleo.cluster.device_aliases()
    assert predefined.network_aliases() == paleo.cluster.network_aliases()


def served(**options: Any) -> Any:
    from paleo.web.server import Server

    server = Server(port=0, **options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    return server, thread


def asked(server: Any, what: str, settings: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", f"/api/{what}?{urlencode(settings)}")
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"net": "lenet5", "device": "XEON_8280", "scaling": "strong"},
        {"net": "vgg16", "device": "A100_SXM_80GB", "fuse": "true", "batch_size": "3"},
    ],
)
def test_answers_are_the_same_while_it_prepares_after_that_and_without(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # All nets would be minutes.
    monkeypatch.setattr("paleo.web.warmup.net_names", lambda: ("lenet5", "vgg16", "gpt2"))
    server, thread = served()
    whats = (*KINDS, *EXPORTS)
    meanwhile = [asked(server, what, settings) for what in whats]
    server.preparation.join(60)
    assert server.preparation.is_done
    afterwards = [asked(server, what, settings) for what in whats]
    server.close()
    thread.join(30)
    bare, other = served(prepares=False)
    without = [asked(bare, what, settings) for what in whats]
    bare.close()
    other.join(30)
    alone = [Answers().text(what, read_settings(settings)).encode() for what in whats]
    assert meanwhile == afterwards == without == [(200, text) for text in alone]


def test_it_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("paleo.web.server.pieces", lambda _: endless(seen))
    server, thread = served()
    assert asked(server, "memory", {"net": "lenet5"})[0] == 200
    assert not server.preparation.is_done
    server.close()
    thread.join(30)
    assert not thread.is_alive()
    assert server.preparation.is_done
    assert seen


def test_a_server_that_does_not_prepare_reads_what_it_is_asked_for() -> None:
    server, thread = served(prepares=False)
    server.preparation.join(30)
    assert asked(server, "memory", {"net": "lenet5"})[0] == 200
    server.close()
    thread.join(30)


def test_garbage_is_not_looked_for_in_what_is_there() -> None:
    program = """
import gc
from paleo.web.warmup import collect_seldom
kept = [[] for _ in range(50_000)]
before = len(gc.get_objects())
collect_seldom()
assert len(gc.get_objects()) < 100 < 50_000 < before
assert gc.get_threshold()[0] > 10_000
"""
    subprocess.run([sys.executable, "-c", program], check=True)
