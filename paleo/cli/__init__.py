"""The command `paleo`: options, one call of the library, one view.

In come the words of a command line; out go text, files and an exit status. Only here and in `web`
is anything printed.
"""

from __future__ import annotations

from paleo.cli.main import cli

__all__ = ["cli"]
