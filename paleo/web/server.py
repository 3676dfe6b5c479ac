"""The server of the demo: waitress, with bounds on what a client may send, and for how long.

Requests stay in memory: waitress would write large ones to temporary files, and is told not to.
What it refuses by itself is answered in JSON, too.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

from paleo.core.checks import is_whole, shown
from paleo.core.errors import PaleoError
from paleo.core.optional import extra
from paleo.web.answers import Answers
from paleo.web.app import create_app, error_text, too_large
from paleo.web.limits import MAX_UPLOAD, THREADS
from paleo.web.security import JSON, headers, is_loopback
from paleo.web.warmup import Preparation, pieces

_MOST_THREADS = 64
#: Seconds in which a request must have come in, and seconds without a byte of it.
_REQUEST_TIME, _SILENCE = 60, 30
#: A request's line and headers; no address of the page is longer.
_MOST_HEADER = 32 << 10
#: How many uploads of the largest size may be in memory at once.
_UPLOADS = 4
#: With one more, the connection is closed that is missed least.
_MOST_CONNECTIONS = 500
#: A longer body is not waited for.
_MOST_FORGOTTEN = 1 << 30
_TOO_LARGE = 413
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
#: Bytes of answers that wait for a client. They are never written to files.
_MOST_WAITING = 64 << 20


class Server:
    """The demo at one address. It listens once it is made; `run` answers until `close`.

    `port` 0 takes a free one. `is_loopback` tells whether none but this machine reaches it; then
    requests have to name it: as localhost, by a loopback address or as `host`. Where the system
    cannot limit a process, uploads are read with `unlimited_uploads` alone. If it `prepares`,
    it reads beside the first requests what their answers need, and then calls `when_prepared`.
    Raises PaleoError, in one line, if it cannot listen there, or if Flask or waitress is not
    installed.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        threads: int = THREADS,
        max_upload: int = MAX_UPLOAD,
        unlimited_uploads: bool = False,
        prepares: bool = True,
        when_prepared: Callable[[], object] = lambda: None,
    ) -> None:
        if not (isinstance(host, str) and host.strip()):
            raise PaleoError(f"host: expected a name or an address, got {shown(host)}")
        for name, value, least, most in (
            ("port", port, 0, 65535),
            ("threads", threads, 1, _MOST_THREADS),
            ("max_upload", max_upload, 1, 1 << 32),
        ):
            if not (is_whole(value) and least <= value <= most):
                raise PaleoError(
                    f"{name}: expected a whole number from {least} to {most}, got {shown(value)}"
                )
        extra("waitress", "the demo", "waitress", "web")
        self.host = host
        listening = _listening(host, port)
        self.port: int = listening.getsockname()[1]
        # What counts is the address: a name may stand for any.
        address = listening.getsockname()[0]
        self.is_loopback: bool = is_loopback(address)
        #: What stands for all addresses of this machine is none that can be opened.
        is_any = ipaddress.ip_address(address.partition("%")[0]).is_unspecified
        self._opened = _LOOPBACK[listening.family] if is_any else host
        try:
            answers = Answers()
            self.app = create_app(
                loopback=self.is_loopback,
                own_names=(host,),
                max_upload=max_upload,
                answers=answers,
                unlimited_uploads=unlimited_uploads,
            )
            self._server = _waitress(self.app, listening, threads, max_upload)
        except BaseException:
            listening.close()
            raise
        things = itertools.chain(pieces(answers), [when_prepared]) if prepares else ()
        self.preparation = Preparation(things)

    @property
    def url(self) -> str:
        """Where the page is for this machine; others reach it by this machine's name or address."""
        host = f"[{self._opened}]" if ":" in self._opened else self._opened
        return f"http://{host}:{self.port}/"

    def run(self) -> None:
        """Answer requests until `close` is called, or the program is interrupted."""
        # That requests wait for each other is no news here.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self.preparation.start()
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self._server.run()
        finally:
            self.preparation.stop()
            self.preparation.join()

    def close(self) -> None:
        """Stop listening, from any thread but those that answer.

        Who has an answer may close it though the thread that gave it is not at its end.
        """
        self.preparation.stop()
        self._server.task_dispatcher.shutdown()
        self._server.close()


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; raises PaleoError, in one line."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
    except (OSError, UnicodeError):  # UnicodeError: no name of a host is like that
        raise PaleoError(f"host {shown(host)}: there is no such address") from None
    listening = socket.socket(family, kind)
    try:
        if hasattr(socket, "SO_REUSEADDR") and not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            why = "the port is in use: give another --port, or 0 for a free one"
        else:
            why = error.strerror or str(error)
        raise PaleoError(f"{host}:{port}: {why}") from None
    return listening


def _waitress(app: Any, listening: socket.socket, threads: int, max_upload: int) -> Any:
    """Return waitress's server for an application."""
    waitress = extra("waitress", "the demo", "waitress", "web")
    server = waitress.create_server(
        app,
        sockets=[listening],
        threads=threads,
        ident=None,
        connection_limit=_MOST_CONNECTIONS,
        asyncore_use_poll=True,
        channel_timeout=_SILENCE,
        cleanup_interval=5,
        recv_bytes=1 << 16,
        max_request_header_size=_MOST_HEADER,
        max_request_body_size=max_upload + 1,
        # Above the limits, so that neither goes to a temporary file.
        inbuf_overflow=max_upload + (1 << 20),
        outbuf_overflow=_MOST_WAITING,
        outbuf_high_watermark=_MOST_WAITING // 4,
        log_socket_errors=False,
        clear_untrusted_proxy_headers=True,
    )
    server.channel_class = _channel(_UPLOADS * max_upload)
    return server


def _channel(most_waiting: int) -> Any:
    """Return the class of connections.

    `most_waiting` is how many bytes of requests that have not come in yet all may hold together.
    """
    channel = extra("waitress.channel", "the demo", "waitress", "web")
    parser = extra("waitress.parser", "the demo", "waitress", "web")
    task = extra("waitress.task", "the demo", "waitress", "web")
    utilities = extra("waitress.utilities", "the demo", "waitress", "web")
    sent = headers("")

    class Refusal(utilities.Error):  # type: ignore[name-defined,misc]
        def __init__(self, code: int, reason: str, body: str) -> None:
            super().__init__(body)
            self.code, self.reason = code, reason

    class ErrorTask(task.ErrorTask):  # type: ignore[name-defined,misc]
        """Says in JSON what waitress refuses."""

        def execute(self) -> None:
            error = self.request.error
            why = f"{error.reason.lower()}: {error.body}"
            if error.code == _TOO_LARGE:
                why = too_large(self.channel.adj.max_request_body_size - 1)
            body = error_text([why]).encode()
            self.status = f"{error.code} {error.reason}"
            self.response_headers += [("Content-Type", JSON), ("Cache-Control", "no-store")]
            self.response_headers += sent.items()
            self.set_close_on_finish()
            self.content_length = len(body)
            self.write(body)

    class Parser(parser.HTTPRequestParser):  # type: ignore[name-defined,misc]
        """A request that must have come in after a while.

        A body that is too large is read to its end and forgotten: a browser that is still sending
        would not look at an answer.
        """

        def __init__(self, adjustments: Any) -> None:
            super().__init__(adjustments)
            self.started = time.monotonic()
            self.forgotten = 0

        def refuse(self, code: int, reason: str, why: str) -> None:
            self.error = Refusal(code, reason, why)
            self.completed = True

        def received(self, data: bytes) -> int:
            if not self.completed and time.monotonic() - self.started > _REQUEST_TIME:
                self.refuse(408, "Request Timeout", f"it took more than {_REQUEST_TIME} seconds")
                return len(data)
            if self.forgotten:
                passed = min(len(data), self.forgotten)
                self.forgotten -= passed
                self.completed = not self.forgotten
                return passed
            consumed: int = super().received(data)
            too_long = self.error is not None and self.error.code == _TOO_LARGE
            if too_long and not self.chunked and self.content_length <= _MOST_FORGOTTEN:
                self.forgotten = self.content_length
                self.completed = False
            return consumed

    class Channel(channel.HTTPChannel):  # type: ignore[name-defined,misc]
        """A connection, which has to wait where all of them hold too much."""

        parser_class = Parser
        error_task_class = ErrorTask

        def __init__(self, server: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(server, *arguments, **options)
            if len(self._map) >= self.adj.connection_limit:
                self._make_room()

        def _make_room(self) -> None:
            """Close the connection that is missed least: nobody waits for those that ask nothing.

            That is one without a request, then one with part of a request, then one that does not
            read its answer; of each the one that is silent longest.
            """
            others = [
                each
                for each in self.server.active_channels.values()
                if each is not self and not each.requests
            ]
            least = min(
                others,
                key=lambda each: (
                    each.total_outbufs_len > 0, each.request is not None, each.last_activity
                ),
                default=None,
            )  # fmt: skip
            if least is not None:
                least.handle_close()

        def received(self, data: bytes) -> bool:
            if self.request is not None and not self.request.completed:
                waiting = [each.request for each in list(self.server.active_channels.values())]
                held = sum(each.body_bytes_received for each in waiting if each is not None)
                if held > most_waiting:
                    self.request.refuse(
                        503, "Service Unavailable", "too many uploads at once: try again later"
                    )
            accepted: bool = super().received(data)
            return accepted

    return Channel
