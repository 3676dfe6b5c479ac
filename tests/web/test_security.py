"""Whatever a request says: JSON comes back, nothing is opened, and no text becomes markup."""

from __future__ import annotations

import base64
import gc
import hashlib
import io
import json
import random
import re
import weakref
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo.web
from paleo.web.answers import EXPORTS, KINDS, Answers
from paleo.web.security import is_foreign, is_loopback, is_own_host
from paleo.web.settings import KEYS

pytest.importorskip("flask", reason="needs Flask")
EnvironBuilder = pytest.importorskip("werkzeug.test").EnvironBuilder

SCRIPT = "<script>alert(1)</script>"
STATIC = Path(paleo.web.__file__).parent / "static"
#: What a refused request may be answered with.
REFUSALS = (400, 403, 404, 405, 413, 415, 503)
TRACES = ("Traceback", 'File "', "line 1", ".py")


@pytest.fixture(scope="module")
def client() -> Any:
    from paleo.web.app import create_app

    return create_app(max_upload=100_000).test_client()


def errors(response: Any) -> list[str]:
    """Return the lines of a refusal, whose form is checked."""
    assert response.status_code in REFUSALS, response.get_data(as_text=True)
    assert response.content_type == "application/json"
    found = json.loads(response.get_data())
    assert list(found) == ["errors"]
    assert found["errors"]
    for line in found["errors"]:
        assert line.isprintable()
        assert not any(trace in line for trace in TRACES), line
    return list(found["errors"])


def posted(client: Any, what: str, net: Any, **values: Any) -> Any:
    return client.post(f"/api/{what}", json={"settings": values, "net": net})


#: The headers of every answer, but for the policy.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Body(io.BytesIO):
    """The bytes of a request, which can be watched."""


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("POST", "/nothing", "application/json", 404),
        ("POST", "/", "application/json", 405),
        ("POST", "/api/net", "text/plain", 415),
        ("POST", "/api/net", "application/octet-stream", 400),
        ("POST", "/api/scaling", "application/json", 400),
        ("GET", "/api/scaling", "", 200),
    ],
)
def test_the_bytes_of_a_request_are_freed_with_it_without_a_search_for_garbage(
    client: Any, method: str, path: str, kind: str, status: int
) -> None:
    body = Body(b"x" * 1000)
    environ = EnvironBuilder(path, method=method).get_environ() | {
        "wsgi.input": body, "CONTENT_LENGTH": "1000", "CONTENT_TYPE": kind,
    }  # fmt: skip
    gone = weakref.ref(body)
    statuses: list[str] = []
    gc.disable()
    try:
        answer = client.application(environ, lambda status, _, __=None: statuses.append(status))
        b"".join(answer)
        answer.close()
        del body, environ, answer
        assert gone() is None
    finally:
        gc.enable()
    assert statuses[0].startswith(f"{status} ")


def test_every_answer_has_the_headers(client: Any) -> None:
    for response in (
        client.get("/"), client.get("/static/app.js"), client.get("/api/scaling?net=nin"),
        client.get("/api/simulate.csv?net=nin"), client.get("/nothing"), client.post("/"),
        client.get("/", headers={"Host": "evil.example"}), client.get("/api/scaling?net=x"),
    ):  # fmt: skip
        policy = dict(
            part.strip().split(" ", 1)
            for part in response.headers["Content-Security-Policy"].split(";")
        )
        assert policy.pop("style-src").startswith("'self' 'sha256-")
        assert policy == {
            "default-src": "'none'", "script-src": "'self'", "img-src": "'self' data:",
            "connect-src": "'self'", "base-uri": "'none'", "form-action": "'none'",
            "frame-ancestors": "'none'",
        }  # fmt: skip
        assert {key: response.headers.get(key) for key in HEADERS} == HEADERS
        assert "Access-Control-Allow-Origin" not in response.headers
        assert "Set-Cookie" not in response.headers


def test_answers_are_not_stored_and_files_are_asked_for_again(client: Any) -> None:
    assert client.get("/api/scaling?net=nin").headers["Cache-Control"] == "no-store"
    for path in ("/", "/static/app.js"):
        first = client.get(path)
        assert first.headers["Cache-Control"] == "no-cache"
        again = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.get_data()) == (304, b"")


def test_the_policy_lets_in_the_style_that_the_charts_have(client: Any) -> None:
    text = (STATIC / "vendor" / "plot-style.css").read_bytes()
    digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
    assert f"'sha256-{digest}'" in client.get("/").headers["Content-Security-Policy"]


def test_the_page_has_no_script_style_or_handler_of_its_own(client: Any) -> None:
    page = client.get("/").get_data(as_text=True)
    for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL):
        assert 'src="static/' in attributes or 'type="application/json"' in attributes
        assert 'type="application/json"' in attributes or not body
    assert "<style" not in page
    assert not re.search(r"<[^>]*\s(?:on\w+|style)\s*=", page)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_the_lists_of_the_page_are_json_that_ends_no_block(client: Any) -> None:
    page = client.get("/").get_data(as_text=True)
    (text,) = re.findall(r'<script type="application/json" id="choices">(.*?)</script>', page)
    assert "<" not in text
    lists = json.loads(text)
    assert [each["name"] for each in lists["nets"]] == paleo.net_names()
    assert {each["name"] for each in lists["devices"]} == set(paleo.device_names())
    assert [each["name"] for each in lists["networks"]] == paleo.network_names()
    assert tuple(lists["defaults"]) == KEYS


def test_no_name_of_a_list_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from paleo.web.app import create_app

    monkeypatch.setattr("paleo.web.app.choices", lambda: {"nets": [{"name": f"</script>{SCRIPT}"}]})
    page = create_app().test_client().get("/").get_data(as_text=True)
    assert SCRIPT not in page
    (text,) = re.findall(r'<script type="application/json" id="choices">(.*?)</script>', page)
    assert json.loads(text)["nets"][0]["name"] == f"</script>{SCRIPT}"


@pytest.mark.parametrize("key", ["net", "device", "network", "cost_model", "dtype", "scheme"])
@pytest.mark.parametrize(
    "value",
    [
        "../../etc/passwd", "/etc/passwd", "nin\0", "python:os:system", "nets/nin.json", SCRIPT,
        "nin.json", "K40.toml", "..", "a" * 5000, "é", "\n",
    ],
)  # fmt: skip
def test_a_value_from_an_address_is_a_name_or_refused(client: Any, key: str, value: str) -> None:
    (line,) = errors(client.get(f"/api/scaling?{urlencode({key: value})}"))
    assert line.startswith(f"{key}: ")


@pytest.mark.parametrize(
    "path",
    [
        "../app.py", "../../paleo/__init__.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd",
        "%00", "vendor/../../app.py", "index.html", "", "vendor", "app.js/", "app.js%00", "C:/x",
        "~root", "APP.JS", "\\..\\app.py", "%5c..%5capp.py", "vendor//plot-style.css",
    ],
)  # fmt: skip
def test_only_the_pages_own_files_are_given(client: Any, path: str) -> None:
    assert client.get(f"/static/{path}").status_code == 404
    errors(client.get(f"/static/{path}"))


def test_a_request_opens_no_file(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to names that are known read the registries' files; nothing else is opened."""
    client.get("/api/scaling?net=nin")

    def opened(path: Any, *_: Any, **__: Any) -> None:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr("builtins.open", opened)
    monkeypatch.setattr("io.open", opened)
    monkeypatch.setattr("tempfile.TemporaryFile", opened)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", opened)
    for path in ("/", "/static/app.js", "/static/../x", "/api/scaling?net=nin&batch_size=3"):
        client.get(path)
    assert client.get("/api/layers?net=nin&batch_size=3").status_code == 200
    form = {"file": (__import__("io").BytesIO(b"x" * 90_000), "a.json")}
    errors(client.post("/api/net?file=a.json", data=form, content_type="multipart/form-data"))
    errors(client.post("/api/scaling", data=b"x" * 90_000, content_type="application/json"))


def test_names_that_are_markup_come_back_as_texts(client: Any) -> None:
    evil = f'"><img src=x onerror=alert(1)>{SCRIPT}'
    layers = {
        evil: {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]},
        SCRIPT: {"type": "Softmax", "parents": [evil], "num_classes": 192},
    }
    file = "<script>alert(1)<script>.json"
    data = json.dumps({"name": evil, "layers": layers}).encode()
    query = urlencode({"file": file})
    response = client.post(f"/api/net?{query}", data=data, content_type="application/octet-stream")
    assert response.status_code == 200, response.get_data(as_text=True)
    net = response.get_json()
    assert (net["name"], net["file"]) == (evil, file)
    for what in (*KINDS, *EXPORTS):
        answer = posted(client, what, {"file": file, "text": net["text"]})
        assert answer.status_code == 200
        # JSON or CSV, which no browser takes for a page.
        assert answer.content_type in ("application/json", "text/csv; charset=utf-8")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    cells = posted(client, "layers", {"file": file, "text": net["text"]}).get_json()["table"]
    assert SCRIPT in [row[0] for row in cells["rows"]]


def test_a_name_with_control_characters_stays_on_its_line(client: Any) -> None:
    layers = {"a": {"type": "Nothing\r\n\x1b[31m", "parents": []}}
    data = json.dumps({"name": "x\ny", "layers": layers}).encode()
    errors(client.post("/api/net?file=a.json", data=data, content_type="application/octet-stream"))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff", b"[" * 90_000, b'{"a":' * 15_000,
        b'{"settings": {}, "settings": {}}', b'{"settings": []}', b'{"settings": null}',
        b'{"more": 1}', b'{"settings": {"batch_size": NaN}}',
        b'{"settings": {"workers": Infinity}}',
        b'{"net": 1}', b'{"net": {"file": "a.json"}}', b'{"net": {"file": 1, "text": 2}}',
        b'{"net": {"file": "a.json", "text": "{}", "more": 1}}',
        b'{"net": {"file": "../a.json", "text": "{}"}}',
        b'{"net": {"file": "a.onnx", "text": "{}", "options": 1}}',
        b'{"net": {"file": "a.onnx", "text": "{}", "options": "--input"}}',
        b'{"net": {"file": "a.json", "text": "{}", "options": "--input=1x2"}}',
        b'{"settings": {"net": "nin"}, "net": {"file": "a.json", "text": "{}"}}',
        b'{"settings": {"batch_size": ' + b"9" * 90_000 + b"}}",
        b'{"settings": {"net": "\\ud800"}}', b'{"settings": {"net": {"a": {"b": []}}}}',
        b'{"settings": {"net": "nin", "net": "nin"}}', b'{"settings": ' + b'{"a": 1}' + b"}",
        json.dumps({"settings": {f"k{i}": i for i in range(1000)}}).encode(),
        b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_a_body_that_is_not_as_it_should_be_is_refused(client: Any, body: bytes) -> None:
    errors(client.post("/api/scaling", data=body, content_type="application/json"))


def test_what_javascript_calls_a_number_and_json_does_not_is_named(client: Any) -> None:
    for name in ("NaN", "Infinity", "-Infinity"):
        body = f'{{"settings": {{"price": {name}}}}}'.encode()
        response = client.post("/api/scaling", data=body, content_type="application/json")
        assert errors(response) == [f"the body: {name} is no number"]


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("POST", "/api/scaling", "text/plain", 415),
        ("POST", "/api/scaling", "application/x-www-form-urlencoded", 415),
        ("POST", "/api/scaling", None, 415),
        ("POST", "/api/net?file=a.json", "application/json", 415),
        ("POST", "/api/net?file=a.json", "multipart/form-data; boundary=x", 415),
        ("GET", "/api/net?file=a.json", None, 405),
        ("PUT", "/api/scaling", None, 405),
        ("DELETE", "/api/scaling", None, 405),
        ("PATCH", "/api/net", None, 405),
        ("OPTIONS", "/api/scaling", None, 405),
        ("TRACE", "/", None, 405),
        ("POST", "/", None, 405),
        ("BREW", "/api/scaling", None, 405),
        ("GET", "/api", None, 404),
        ("GET", "/api/", None, 404),
        ("GET", "/api/scaling/", None, 404),
        ("GET", "/API/scaling", None, 404),
        ("GET", "/api//scaling", None, 404),
        ("GET", "/favicon.ico", None, 404),
        ("GET", "/%2e%2e/", None, 404),
        ("GET", "/api/simulate.xml", None, 404),
        ("POST", "/api/net", "application/octet-stream", 400),
        ("POST", "/api/net?file=a.json&more=1", "application/octet-stream", 400),
        ("POST", "/api/scaling?net=nin", "application/json", 400),
    ],
)
def test_what_is_not_offered_is_refused(
    client: Any, method: str, path: str, kind: str | None, status: int
) -> None:
    response = client.open(path, method=method, data=b"{}", content_type=kind)
    assert response.status_code == status
    if method != "HEAD":
        errors(response)
    if status == 405:
        assert response.headers["Allow"]


def test_a_body_that_is_too_large_is_refused(client: Any) -> None:
    for path, kind in (
        ("/api/net?file=a.json", "application/octet-stream"),
        ("/api/scaling", "application/json"),
    ):
        response = client.post(path, data=b" " * 100_001, content_type=kind)
        assert response.status_code == 413
        assert errors(response) == ["too large: 100,000 bytes are the most that this server takes"]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True), ("localhost:8000", True), ("LOCALHOST:1", True), ("127.0.0.1", True),
        ("127.0.0.1:8000", True), ("[::1]", True), ("[::1]:8000", True), ("127.1.2.3:80", True),
        ("", False), ("evil.example", False), ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False), ("evil.example:8000", False), ("0.0.0.0", False),
        ("localhost:x", False), ("192.168.0.1", False), ("localhost@evil.example", False),
        ("2130706433", False), ("[::2]", False), (":8000", False), ("localhost:8000:1", False),
    ],
)  # fmt: skip
def test_only_names_of_this_machine_are_its_hosts(client: Any, host: str, own: bool) -> None:
    assert is_own_host(host) is own
    response = client.get("/", headers={"Host": host})
    assert (response.status_code == 200) is own
    if not own:
        assert response.status_code == 400
        errors(response)


def test_a_name_that_the_server_was_given_is_its_own() -> None:
    from paleo.web.app import create_app

    client = create_app(own_names=("Box.example",)).test_client()
    for host, status in (
        ("box.example", 200), ("BOX.example:8000", 200), ("box.example.", 200), ("localhost", 200),
        ("evil.example", 400), ("box.example.evil.example", 400), ("x.box.example", 400),
        ("box.example:x", 400), ("", 400), (":8000", 400), (".", 400),
    ):  # fmt: skip
        assert client.get("/", headers={"Host": host}).status_code == status, host


def test_any_host_will_do_where_others_are_let_in() -> None:
    from paleo.web.app import create_app

    client = create_app(loopback=False).test_client()
    assert client.get("/", headers={"Host": "demo.example"}).status_code == 200
    assert is_loopback("127.0.0.1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("::")


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ({}, False),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "https://localhost"}, False),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": "http://localhost.evil.example"}, True),
        ({"Origin": "http://localhost:9"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
    ],
)
def test_another_sites_page_gets_no_answer(
    client: Any, headers: dict[str, str], foreign: bool
) -> None:
    assert is_foreign(headers, "localhost") is foreign
    for response in (
        client.get("/api/memory?net=lenet5", headers=headers),
        client.post("/api/memory", json={"settings": {"net": "lenet5"}}, headers=headers),
    ):
        assert (response.status_code == 403) is foreign
    # A link to the page works from anywhere.
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_a_fault_of_the_server_is_one_line_and_its_traceback_is_for_standard_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from paleo.web.app import create_app

    class Broken(Answers):
        def text(self, *_: Any) -> str:
            raise ZeroDivisionError("the secret")

    client = create_app(answers=Broken()).test_client()
    response = client.get("/api/scaling")
    assert response.status_code == 500
    assert response.get_json() == {
        "errors": ["the server made a mistake: its standard error says which"]
    }
    assert "Traceback" in caplog.text
    assert "the secret" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("net", ["lenet5", "lstm_lm"])
def test_extreme_settings_are_answered_or_refused(client: Any, net: str) -> None:
    extremes: dict[str, list[Any]] = {
        "batch_size": [1, 2**31, 2**40, 2**53, 2**60, 2**61, 10**30],
        "workers": [1, 2**16, 2**31 - 1, 2**31],
        "ppp_comp": ["1e-300", "1e-20", 1],
        "ppp_comm": ["1e-300", "1e-20", 1],
        "dataset_size": [1, 2**60],
        "epochs": ["1e-300", "1e12"],
        "price": ["0", "1e12", "1e-300"],
        "cost_model": list(paleo.COST_MODELS),
        "scaling": ["weak", "strong"],
    }
    draw = random.Random(5)
    for _ in range(60):
        keys = draw.sample(list(extremes), 3)
        chosen: dict[str, Any] = {key: draw.choice(extremes[key]) for key in keys}
        for what in KINDS:
            response = client.get(f"/api/{what}?{urlencode({'net': net} | chosen)}")
            assert response.status_code in (200, 400), (what, chosen)
            if response.status_code == 400:
                errors(response)


PIECES = st.sampled_from(
    ["nin", "lenet5", "K40", "ethernet", "tiled", "fp16", "weak", "1", "0", "-1", "1e9", "nan",
     "true", "", "../x", "/etc/passwd", "python:os:system", SCRIPT, "\0", "é", "%", "9" * 50]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_request_is_answered_in_json(client: Any, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(["GET", "GET", "POST", "POST", "PUT", "HEAD"]))
    paths = [f"/api/{what}" for what in (*KINDS, *EXPORTS, "net", "x")]
    path = data.draw(
        st.sampled_from(paths) | st.text(max_size=8).map(lambda text: "/" + quote(text))
    )
    pairs = data.draw(
        st.lists(
            st.tuples(st.sampled_from([*KEYS, "file"]) | st.text(max_size=4), PIECES), max_size=4
        )
    )
    query = data.draw(
        st.just(urlencode(pairs)) | st.text(max_size=12, alphabet="a=&%;+#?fé\x7f").map(quote)
    )
    body = data.draw(
        st.none()
        | st.binary(max_size=30)
        | st.fixed_dictionaries(
            {"settings": st.dictionaries(st.sampled_from(KEYS), PIECES | st.integers(), max_size=3)}
        ).map(lambda value: json.dumps(value).encode())
    )
    kind = data.draw(st.sampled_from(["application/json", "application/json", "text/plain"]))
    response = client.open(f"{path}?{query}", method=method, data=body, content_type=kind)
    assert response.status_code in (200, *REFUSALS), (path, query, body)
    if response.status_code != 200 and method != "HEAD":
        errors(response)
