"""The server of the demo, as a process and over sockets."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import paleo
from paleo.cli import cli
from paleo.web import security

pytest.importorskip("flask", reason="needs Flask")
pytest.importorskip("waitress", reason="needs waitress")

NIN = Path(__file__).parents[2] / "nets" / "nin.json"
LIMIT = 300_000


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    from paleo.web.server import Server

    found = Server(port=0, max_upload=LIMIT, prepares=False)
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    yield found
    found.close()
    thread.join(10)


def ask(server: Any, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    response = connection.getresponse()
    response.text = response.read().decode()  # type: ignore[attr-defined]
    connection.close()
    return response


def raw(server: Any, request: bytes) -> tuple[int, dict[str, str], str]:
    """Send bytes and return what comes back until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(request)
        found = b""
        while part := connection.recv(65536):
            found += part
    head, _, body = found.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body.decode()


def test_the_page_its_files_and_the_answers_come_over_a_socket(server: Any) -> None:
    assert ask(server, "GET", "/").text.startswith("<!DOCTYPE html>")
    assert ask(server, "GET", "/static/app.js").status == 200
    answer = json.loads(ask(server, "GET", "/api/scaling?net=nin").text)
    assert answer["settings"]["net"] == "nin"


def test_a_net_is_uploaded_and_asked_about(server: Any) -> None:
    kind = "application/octet-stream"
    path = "/api/net?file=my%20net.json"
    response = ask(server, "POST", path, NIN.read_bytes(), Content_Type=kind)
    net = json.loads(response.text)
    body = {"settings": {"batch_size": "16"}, "net": {"file": net["file"], "text": net["text"]}}
    response = ask(
        server, "POST", "/api/simulate.json", json.dumps(body).encode(),
        Content_Type="application/json",
    )  # fmt: skip
    settings: dict[str, Any] = {"cluster": "dgx_a100", "dtype": "mixed_fp16"}
    expected = paleo.simulate("nin", batch_size=16, scaling="weak", **settings).to_dict()
    assert json.loads(response.text) == expected


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"POST /api/net HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /api/net HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /api/net HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (
            b"POST /api/net HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
            400,
        ),
        (b"POST /api/net HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /static/../app.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /static/%2e./app.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_in_json(server: Any, request_: bytes, status: int) -> None:
    code, headers, body = raw(server, request_)
    assert code == status
    assert headers["Content-Type"] == "application/json"
    expected = security.headers("")
    policy = headers.pop("Content-Security-Policy")
    assert policy.startswith(expected.pop("Content-Security-Policy").split("style-src")[0])
    assert "frame-ancestors 'none'" in policy
    assert {key: headers.get(key) for key in expected} == expected
    assert (headers["X-Frame-Options"], len(expected)) == ("DENY", 7)
    (line,) = json.loads(body)["errors"]
    assert "Traceback" not in line


def test_a_file_that_is_too_large_gets_its_answer_though_it_is_still_sent(server: Any) -> None:
    response = ask(
        server, "POST", "/api/net?file=a.onnx", bytes(40 * LIMIT),
        Content_Type="application/octet-stream",
    )  # fmt: skip
    assert response.status == 413
    assert json.loads(response.text) == {
        "errors": ["too large: 300,000 bytes are the most that this server takes"]
    }


def test_a_chunked_body_is_bounded_too(server: Any) -> None:
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    head = (
        b"POST /api/net?file=a.onnx HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head + b"\r\n")
        try:
            for _ in range(100):
                connection.sendall(chunk)
            first = connection.recv(100)
        except OSError:  # it has hung up
            first = b""
    assert not first or b" 413 " in first


def test_a_slow_request_ends_after_a_while(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paleo.web.server._REQUEST_TIME", 0.2)
    head = b"POST /api/net?file=a.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head)
        for _ in range(100):
            time.sleep(0.05)
            if select.select([connection], [], [], 0)[0]:
                break
            connection.sendall(b" ")
        found = connection.recv(65536)
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b'"errors"' in found


def resolving(monkeypatch: pytest.MonkeyPatch, **names: str) -> None:
    """Let names stand for addresses."""
    find = socket.getaddrinfo
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda host, *more, **options: find(names.get(host, host), *more, **options),
    )


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_a_name_of_this_machine_keeps_other_names_out(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another name that resolves here is a page's whose owner wants at what is served."""
    from paleo.web.server import Server

    resolving(monkeypatch, Box=address)
    try:
        named = Server("Box", 0, prepares=False)
    except paleo.PaleoError as error:
        pytest.skip(str(error))
    thread = threading.Thread(target=named.run, daemon=True)
    thread.start()
    assert named.is_loopback
    assert named.url == f"http://Box:{named.port}/"
    for host, status in (
        ("box", 200), ("Box:8000", 200), ("localhost", 200), (address, 200),
        ("evil.example", 400), (f"evil.example:{named.port}", 400), ("box.evil.example", 400),
    ):  # fmt: skip
        connection = http.client.HTTPConnection(address, named.port, timeout=30)
        connection.request("GET", "/", headers={"Host": host})
        assert connection.getresponse().status == status, host
        connection.close()
    named.close()
    thread.join(10)


def test_a_name_of_an_address_that_others_reach_is_none_of_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paleo.web.server import Server

    # Even one that looks as if it were.
    resolving(monkeypatch, localhost="0.0.0.0")
    found = Server("localhost", 0)
    assert not found.is_loopback
    assert found.url == f"http://127.0.0.1:{found.port}/"
    found.close()


@pytest.mark.slow
def test_too_many_bytes_of_unfinished_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from paleo.web.server import Server

    monkeypatch.setattr("paleo.web.server._UPLOADS", 1)
    small = Server(port=0, max_upload=100_000, prepares=False)
    thread = threading.Thread(target=small.run, daemon=True)
    thread.start()
    head = b"POST /api/net?file=a.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n"
    connections = [
        socket.create_connection(("127.0.0.1", small.port), timeout=30) for _ in range(3)
    ]
    for connection in connections:
        connection.sendall(head + bytes(60_000))
        time.sleep(0.1)
    for connection in connections:
        connection.sendall(b" ")
        time.sleep(0.1)
    refused, _, _ = select.select(connections, [], [], 30)
    found = b"".join(connection.recv(65536) for connection in refused)
    assert b" 503 " in found
    for connection in connections:
        connection.close()
    small.close()
    thread.join(10)


def test_connections_that_ask_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those silent longest are closed first, and none that is sending a request."""
    from paleo.web.server import Server

    monkeypatch.setattr("paleo.web.server._MOST_CONNECTIONS", 20)
    monkeypatch.setattr("paleo.web.server._SILENCE", 3600)  # which ends none of them
    small = Server(port=0, prepares=False)
    thread = threading.Thread(target=small.run, daemon=True)
    thread.start()

    def connected() -> socket.socket:
        return socket.create_connection(("127.0.0.1", small.port), timeout=30)

    asking = connected()
    asking.sendall(b"GET /static/app.js HTTP/1.1\r\nHost: loc")
    while not any(channel.request for channel in list(small._server.active_channels.values())):
        time.sleep(0.01)
    idle = [connected() for _ in range(60)]
    assert ask(small, "GET", "/").status == 200
    asking.sendall(b"alhost\r\nConnection: close\r\n\r\n")
    assert asking.recv(100).startswith(b"HTTP/1.1 200 ")
    closed = [bool(select.select([each], [], [], 0)[0]) for each in idle]
    assert closed == sorted(closed, reverse=True)  # the oldest ones
    # Of 20, two are the server's own, and the page and the request before were open.
    assert 40 <= sum(closed) <= 46
    for each in (asking, *idle):
        each.close()
    small.close()
    thread.join(10)


def started(*options: str) -> tuple[subprocess.Popen[str], str]:
    """Start `paleo serve`, and return the line that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "paleo", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        # A shell's job in the background ignores Ctrl-C, and so does what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout
    return process, process.stdout.readline()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.slow
def test_the_command_says_where_it_is_and_ends_quietly() -> None:
    process, line = started("--port=0")
    match = re.fullmatch(r"Paleo is at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n", line)
    assert match
    connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=30)
    connection.request("GET", "/api/memory?net=lenet5")
    response = connection.getresponse()
    assert (response.status, response.read()[:1]) == (200, b"{")
    connection.close()
    assert ended(process) == (0, "", "")


def test_it_may_be_closed_as_soon_as_an_answer_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from paleo.web.server import Server

    found = Server(port=0, prepares=False)
    waking = found._server.pull_trigger

    def late() -> None:
        time.sleep(0.2)  # the client has its answer by now
        waking()

    monkeypatch.setattr(found._server, "pull_trigger", late)
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    assert ask(found, "GET", "/api/simulate.json?net=nin").status == 200
    found.close()
    thread.join(10)
    assert not thread.is_alive()
    time.sleep(0.3)  # a thread that was not waited for has failed by now
    assert not caplog.records


def test_an_interrupt_before_the_address_is_printed_ends_it_quietly_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paleo.web.server.Server", interrupted)
    done = CliRunner().invoke(cli, ["serve", "--port=0"])
    assert (done.exit_code, done.output) == (0, "")


def test_requests_that_wait_for_each_other_are_no_news(server: Any) -> None:
    assert ask(server, "GET", "/api/memory?net=lenet5").status == 200
    assert not logging.getLogger("waitress.queue").isEnabledFor(logging.WARNING)
    assert logging.getLogger("waitress").isEnabledFor(logging.WARNING)


@pytest.mark.slow
def test_other_addresses_bring_a_warning() -> None:
    process, line = started("--port=0", "--host=0.0.0.0")
    assert line.startswith("Paleo is at http://127.0.0.1:")  # no browser opens 0.0.0.0 everywhere
    status, out, err = ended(process)
    assert (status, out) == (0, "")
    assert err == (
        "paleo: warning: 0.0.0.0 is not this machine alone: whoever reaches it, by this "
        "machine's name or address, can use the demo, and there is no password\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port=65536"], "port: expected a whole number from 0 to 65535, got 65536"),
        (["--port=-1"], "port: expected a whole number from 0 to 65535, got -1"),
        (["--host=no.such.host.invalid"], 'host "no.such.host.invalid": there is no such address'),
        (["--host="], 'host: expected a name or an address, got ""'),
        (["--host=a..b"], 'host "a..b": there is no such address'),
        (["--port=0", "--threads=0"], "threads: expected a whole number from 1 to 64, got 0"),
        (["--port=0", "--max_upload=8GiB"], "max_upload: expected a whole number from 1 to"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_one_line(options: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["serve", *options])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"paleo: {said}")
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_line(server: Any) -> None:
    done = CliRunner().invoke(cli, ["serve", f"--port={server.port}"])
    assert done.exit_code == 1
    assert done.stderr == (
        f"paleo: 127.0.0.1:{server.port}: the port is in use: give another --port, or 0 for a "
        "free one\n"
    )


@pytest.mark.parametrize("options", [["--port=x"], ["--max_upload=much"], ["--wrong"]])
def test_wrong_usage_ends_with_2(options: list[str]) -> None:
    done = CliRunner().invoke(cli, ["serve", *options])
    assert done.exit_code == 2


@pytest.mark.parametrize("module", ["flask", "waitress"])
def test_without_its_packages_it_says_how_to_install_them(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = CliRunner().invoke(cli, ["serve", "--port=0"])
    assert done.exit_code == 1
    assert 'install it with: pip install "paleo[web]"' in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_nothing_is_written_while_it_serves(tmp_path: Path) -> None:
    """An audit hook in the server's process sees every file that is opened to be written."""
    program = (
        "import sys, threading\n"
        "from paleo.web.server import Server\n"
        "written = []\n"
        "def hook(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[0], str) and arguments[2] & 0o1103:\n"
        "        written.append(arguments[0])\n"
        "    elif event.startswith(('tempfile.', 'os.mkdir', 'os.rename', 'os.link')):\n"
        "        written.append(event)\n"
        "server = Server(port=0, max_upload=20_000_000)\n"
        "sys.dont_write_bytecode = True\n"
        "sys.addaudithook(hook)\n"
        "print(server.port, flush=True)\n"
        "threading.Thread(target=server.run, daemon=True).start()\n"
        "sys.stdin.read()\n"
        "print(written)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout

    line = process.stdout.readline()

    class Address:
        port = int(line)

    kind = "application/octet-stream"
    large = json.loads(NIN.read_text("utf-8")) | {"source": "x" * 3_000_000}
    for path, body in (
        ("/api/net?file=a.json", NIN.read_bytes()),
        ("/api/net?file=b.json", json.dumps(large).encode()),
        ("/api/net?file=c.onnx", bytes(15_000_000)),
        ("/api/net?file=d.onnx", bytes(25_000_000)),
    ):
        ask(Address, "POST", path, body, Content_Type=kind)
    ask(Address, "GET", "/api/summary.json?net=gpt2_xl")  # more than waitress buffers by itself
    out, _ = process.communicate("", timeout=60)
    # Linux: what starts a process opens the null device for it.
    assert out in ("[]\n", "['/dev/null']\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_says_once_it_has_read_what_answers_need(monkeypatch: pytest.MonkeyPatch) -> None:
    from paleo.web.server import Server

    done: list[str] = []
    monkeypatch.setattr("paleo.web.server.pieces", lambda _: [lambda: done.append("read")])
    for prepares, expected in ((True, ["read", "said"]), (False, [])):
        done.clear()
        server = Server(port=0, prepares=prepares, when_prepared=lambda: done.append("said"))
        server.preparation.start()
        server.preparation.join(30)
        server.close()
        assert done == expected
