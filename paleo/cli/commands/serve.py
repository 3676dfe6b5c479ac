"""`paleo serve`: the live demo."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.options import Parsed, debug_option
from paleo.cli.printing import say, show
from paleo.core.units import parse
from paleo.web.limits import MAX_UPLOAD, THREADS

#: The name of a setting in glibc's malloc.h.
_M_ARENA_MAX = -8


def _bytes(text: str) -> int:
    """Return the bytes that a text such as 64MiB says; raises ValueError."""
    return int(parse(text, "bytes"))


@click.command("serve", short_help="Start the demo: a page in your browser.")
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen at. With the default only this machine can open the page; 0.0.0.0 lets "
    "others in.",
)
@click.option("--port", type=int, default=8000, help="Port to listen at; 0 takes a free one.")
@click.option(
    "--threads",
    type=int,
    default=THREADS,
    help="Number of requests that are answered at once. They share one core.",
)
@click.option(
    "--max_upload",
    type=Parsed("size", _bytes),
    default=f"{MAX_UPLOAD >> 20}MiB",
    metavar="SIZE",
    help="Largest net file that can be uploaded.",
)
@click.option(
    "--unlimited_uploads",
    is_flag=True,
    help="Read uploaded files even where the system cannot limit the memory for it, as Windows "
    "cannot. A file may be made to use up all memory.",
)
@debug_option
def command(host: str, port: int, **settings: Any) -> None:
    """Serve a page on which predictions follow each change of net, device, network and so on.

    It prints the page's address and runs until Ctrl-C. Nothing is stored. Nets that are uploaded
    are parsed, never run, and never written to disk.

    \b
    Examples:
      paleo serve
      paleo serve --port=0
      paleo serve --host=0.0.0.0 --port=8080 --max_upload=16MiB
    """  # noqa: D301 (click takes the control character, not the escape)
    import contextlib

    # From the start: Ctrl-C may come before the page's address is printed, too.
    with contextlib.suppress(KeyboardInterrupt):
        _serve(host, port, settings)


def _serve(host: str, port: int, settings: dict[str, Any]) -> None:
    from paleo.web.server import Server
    from paleo.web.warmup import collect_seldom

    server = Server(host, port, when_prepared=collect_seldom, **settings)
    if not server.is_loopback:
        say(
            f"warning: {host} is not this machine alone: whoever reaches it, by this "
            "machine's name or address, can use the demo, and there is no password"
        )
    collect_seldom()
    _share_freed_memory()
    show(f"Paleo is at {server.url} (Ctrl-C ends it)\n")
    server.run()


def _share_freed_memory() -> None:
    """Let what one thread frees be taken by any, where each would keep its own (glibc).

    That is so that threads need not wait for each other, and Python's do anyway. Else a tenth more
    is held, and sometimes a fifth.
    """
    import contextlib
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
