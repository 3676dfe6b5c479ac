"""The demo as a WSGI application: the page, its files and the answers.

The application keeps no state but what was computed. It opens no file for a request: the page's
files are read when it is made, and names of nets, devices and networks are those of the registries.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Collection, Mapping
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import PaleoError, SettingError, printable
from paleo.core.frozen import dataclass
from paleo.core.optional import extra
from paleo.web.answers import COMPARE, EXPORTS, FOUND, KINDS, Answers
from paleo.web.choices import choices
from paleo.web.limits import MAX_UPLOAD
from paleo.web.page import STATIC, page_with
from paleo.web.security import JSON, headers, is_foreign, is_own_host, source_hash
from paleo.web.settings import PageSettings, parse_query, read_settings
from paleo.web.uploads import BusyError, UnlimitedError, Uploaded, Uploads

#: No answer has more lines about mistakes.
_MOST_LINES = 100
_BYTES = "application/octet-stream"
#: What is said of an uploaded net: its options may be left out.
_OF_NET = {"file", "text", "options"}


@dataclass(frozen=True)
class _File:
    """A file of the page."""

    data: bytes
    kind: str

    @property
    def tag(self) -> str:
        """What changes with the file."""
        return hashlib.sha256(self.data).hexdigest()[:32]


def _files() -> dict[str, _File]:
    """Return the files of the page by their path; its own is ""."""
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            kind = mimetypes.guess_type(path.name)[0] or _BYTES
            kind += "; charset=utf-8" if kind.startswith("text/") else ""
            found[path.relative_to(STATIC).as_posix()] = _File(path.read_bytes(), kind)
    page = page_with("choices", choices()).encode()
    return {**found, "": _File(page, found["index.html"].kind)}


class _TypeError(PaleoError):
    """What was sent is not of the type that is expected."""


#: The status of a mistake that is none in the settings or the net.
_STATUS = {BusyError: 503, UnlimitedError: 501, _TypeError: 415}


def error_text(lines: list[str]) -> str:
    """Return the body of an error as JSON."""
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], "there are more mistakes, which are not listed"]
    return json.dumps({"errors": lines})


def too_large(max_upload: int) -> str:
    """Return what is said of a request with more bytes."""
    return f"too large: {max_upload:,} bytes are the most that this server takes"


def create_app(
    *,
    loopback: bool = True,
    own_names: Collection[str] = (),
    max_upload: int = MAX_UPLOAD,
    answers: Answers | None = None,
    unlimited_uploads: bool = False,
) -> Any:
    """Return the demo as a Flask application.

    With `loopback`, requests have to name this machine as their host: as localhost, by a loopback
    address or one of `own_names`. A request has at most `max_upload` bytes. Where the system cannot
    limit a process, uploads are read with `unlimited_uploads` alone. Raises PaleoError if
    Flask is not installed.
    """
    flask = extra("flask", "the demo", "Flask", "web")
    errors = extra("werkzeug.exceptions", "the demo", "Flask", "web")
    app = flask.Flask("paleo.web", static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_upload
    files = _files()
    sent = headers(source_hash(files["vendor/plot-style.css"].data))
    demo = _Demo(flask, answers or Answers(), Uploads(unlimited=unlimited_uploads))

    def check() -> Any:
        request = flask.request
        host = request.environ.get("HTTP_HOST", "")
        if loopback and not is_own_host(host, own_names):
            return demo.refuse(400, f"this server is not {shown(host)}")
        # The page itself may be linked to from anywhere.
        if request.path.startswith("/api/") and is_foreign(request.headers, host):
            return demo.refuse(403, "another site's page may not ask this server")
        return None

    def add_headers(response: Any) -> Any:
        if response.status_code == 308:  # there is no other path for anything
            response = demo.refuse(404, "not found")
        response.headers.update(sent)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def refuse(error: Any) -> Any:
        # It would hold the request in turn: all its bytes, until garbage is looked for.
        flask.request.routing_exception = None
        if error.code == 413:
            return demo.refuse(413, too_large(max_upload))
        return demo.refuse(error.code, error.name.lower(), error.get_headers())

    def fail(error: Exception) -> Any:
        app.logger.error("an answer failed", exc_info=error)
        return demo.refuse(500, "the server made a mistake: its standard error says which")

    def show(name: str = "") -> Any:
        file = files.get(name)
        if file is None or (name == "index.html"):
            raise errors.NotFound
        response = flask.Response(file.data, content_type=file.kind)
        response.set_etag(file.tag)
        response.headers["Cache-Control"] = "no-cache"
        return response.make_conditional(flask.request)

    app.before_request(check)
    app.after_request(add_headers)
    app.register_error_handler(errors.HTTPException, refuse)
    app.register_error_handler(PaleoError, demo.refuse_mistakes)
    app.register_error_handler(Exception, fail)

    def route(path: str, function: Any, *methods: str) -> None:
        app.add_url_rule(path, path, function, methods=methods, provide_automatic_options=False)

    route("/", show, "GET")
    route("/static/<path:name>", show, "GET")
    for what in (*KINDS, COMPARE, *FOUND, *EXPORTS):
        route(f"/api/{what}", demo.answering(what), "GET", "POST")
    route("/api/net", demo.upload, "POST")
    return app


class _Demo:
    """What answers requests of the page."""

    def __init__(self, flask: Any, answers: Answers, uploads: Uploads) -> None:
        self.flask = flask
        self.answers = answers
        self.uploads = uploads

    def refuse(self, status: int, line: str, more: Any = ()) -> Any:
        """Return an error of one line."""
        sent = {key: value for key, value in more if key.lower() in ("allow", "retry-after")}
        return self.flask.Response(error_text([line]), status, sent, content_type=JSON)

    def refuse_mistakes(self, error: PaleoError) -> Any:
        """Return an error with a line for each mistake."""
        status = _STATUS.get(type(error), 400)
        lines = [printable(each) for each in error.mistakes]
        sent = {"Retry-After": "1"} if status == 503 else {}
        return self.flask.Response(error_text(lines), status, sent, content_type=JSON)

    def answering(self, what: str) -> Any:
        """Return the function that answers with one of KINDS or EXPORTS."""
        kind = "text/csv; charset=utf-8" if what.endswith(".csv") else JSON

        def answer() -> Any:
            text = self.answers.text(what, *self._asked())
            return self.flask.Response(text, content_type=kind)

        return answer

    def upload(self) -> Any:
        """Answer with the net of the bytes that are sent."""
        self._expect(_BYTES)
        query = self._query()
        if set(query) - {"file", "options"}:
            raise SettingError("the query: expected file=NAME, and perhaps options=TEXT, alone")
        data = self.flask.request.get_data(cache=False)
        found = self.uploads.read(data, query.get("file"), query.get("options", ""))
        return self.flask.Response(json.dumps(found), content_type=JSON)

    def _query(self) -> dict[str, str]:
        return parse_query(self.flask.request.environ.get("QUERY_STRING", "").encode("latin-1"))

    def _expect(self, kind: str) -> None:
        if self.flask.request.mimetype != kind:
            raise _TypeError(f"expected Content-Type: {kind}")

    def _asked(self) -> tuple[PageSettings, Uploaded | None]:
        """Return what the request asks about."""
        if self.flask.request.method != "POST":
            return read_settings(self._query()), None
        self._expect(JSON)
        if self._query():
            raise SettingError("the query: settings of an uploaded net are in the body")
        body = _object(self.flask.request.get_data(cache=False))
        settings, net = body.get("settings", {}), body.get("net")
        if set(body) - {"settings", "net"} or not isinstance(settings, dict):
            raise SettingError('the body: expected {"settings": {...}, "net": {...}}')
        if net is None:
            return read_settings(settings), None
        if not isinstance(net, dict) or {"file", "text"} - set(net) or set(net) - _OF_NET:
            raise SettingError(
                'the body: expected "net": {"file": "...", "text": "...", "options": "..."}'
            )
        uploaded = self.uploads.net(net["text"], net["file"], net.get("options", ""))
        found = read_settings(settings, uploaded.file, uploaded.options, uploaded.net)
        return found, uploaded


def _object(data: bytes) -> Mapping[str, Any]:
    """Return a body as a JSON object; raises SettingError if it is none."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_once,
            parse_constant=_no_number,
            parse_int=_whole,
        )
    except SettingError:
        raise
    except RecursionError:
        raise SettingError("the body: nested too deeply") from None
    except ValueError:  # of JSON, and of UTF-8
        raise SettingError("the body: expected JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise SettingError("the body: expected a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise SettingError("the body: a key is given twice")
    return found


def _no_number(name: str) -> Any:
    raise SettingError(f"the body: {name} is no number")


def _whole(digits: str) -> int:
    """Return a number; one of very many digits as another that is too large."""
    return int(digits) if len(digits) <= 40 else 10**40
