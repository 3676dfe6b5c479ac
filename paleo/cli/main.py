"""The group of commands, and the one place where errors become lines and exit statuses.

Exit status 0 is success; 1 a mistake in what Paleo was given, one line each on standard
error; 2 wrong usage.
"""

from __future__ import annotations

import errno
import functools
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from paleo.cli.printing import say, show_traceback
from paleo.core.errors import PaleoError
from paleo.core.garbage import uncollected
from paleo.core.version import __version__

#: The commands, in the order of the help. Each is a module of this folder, imported on use.
COMMANDS = (
    "summary",
    "simulate",
    "compare",
    "plan",
    "metrics",
    "infer",
    "search",
    "sweep",
    "memory",
    "report",
    "serve",
    "profile",
    "fullpass",
    "calibrate",
    "validate",
    "convert",
    "nets",
    "generate",
    "devices",
    "prices",
    "networks",
    "clusters",
    "collectives",
)

#: Those that run a framework, whose threads are its own affair.
MEASURING = frozenset(("profile", "fullpass", "calibrate"))


@functools.cache
def _imported(name: str) -> click.Command:
    """Import a command. Its modules stay, so that no garbage is looked for in what they make."""
    with uncollected():
        command: click.Command = importlib.import_module(f"paleo.cli.commands.{name}").command
        gc.freeze()
    return command


class _Commands(click.Group):
    """Loads a command when it is called, and reports what goes wrong in it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return _imported(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from paleo.core.errors import near_or_known

            hint = near_or_known(args[0], COMMANDS)
            raise click.UsageError(f"no such command {args[0]!r}{hint}", ctx) from None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **kwargs: Any
    ) -> Any:
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **kwargs)
        gc.set_threshold(20_000, 10, 20)  # of ours there is no garbage that holds itself
        words = sys.argv[1:] if args is None else list(args)
        if MEASURING.isdisjoint(words):
            # No matrix is multiplied here. NumPy's BLAS would start a thread for each core, which
            # takes almost as long as the rest of NumPy.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        for output in (sys.stdout, sys.stderr):
            # A net's names may hold what the terminal's encoding cannot show.
            if hasattr(output, "reconfigure"):
                output.reconfigure(errors="backslashreplace")
        if odd := next((word for word in words if "\0" in word), None):
            _stop(1, [f"{odd}: a NUL character is in no name of a file, and in no other argument"])
        try:
            if sys.stdout is None:
                raise OSError(errno.EBADF, "standard output is closed")
            result = super().main(args, standalone_mode=False, **kwargs)
            sys.stdout.flush()
        except click.UsageError as error:
            named = next((f" {word}" for word in words if word in COMMANDS), "")
            command = error.ctx.command_path if error.ctx else f"paleo{named}"
            _stop(2, [f"{error.format_message().rstrip('.')} (see {command} --help)"])
        except click.ClickException as error:
            _stop(1, [error.format_message()])
        except PaleoError as error:
            if "--debug" in words:
                show_traceback()
            _stop(1, list(map(str, error.mistakes)))
        except BrokenPipeError:
            # Whoever read this has stopped reading. Python would complain once more when
            # it flushes at exit.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            sys.exit(1)
        except OSError as error:
            _stop(1, [f"cannot write the output: {error.strerror or error}"])
        except (click.Abort, KeyboardInterrupt):
            sys.exit(130)
        sys.exit(result if isinstance(result, int) else 0)


def _stop(status: int, messages: Sequence[str]) -> NoReturn:
    for message in messages:
        say(message)
    sys.exit(status)


@click.command(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        # Options may be written with hyphens or underscores.
        "token_normalize_func": lambda token: token.replace("-", "_"),
    },
)
@click.version_option(__version__, prog_name="paleo", message="%(prog)s %(version)s")
@click.option("--verbose", is_flag=True, help="Print on standard error what is read and used.")
@click.option("--debug", is_flag=True, help="Show the Python traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool, debug: bool) -> None:
    """Predict how long a deep neural network takes to train or to run, without the hardware.

    A NET is a predefined one by its name (`paleo nets` lists them), a net file (JSON), a Caffe
    prototxt, an ONNX, .pt2 or .keras file, the folder of a TensorFlow SavedModel, timm:NAME or
    torchvision:NAME for a net of these packages, or python:package.module:name for a PyTorch module
    or a function that returns one. Only python: and packages run code; files are just read.

    Devices, networks and clusters are names (`paleo devices`, `paleo networks`, `paleo clusters`)
    or your own TOML files.
    Options may be written with hyphens or underscores.
    """
    ctx.obj = verbose
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
