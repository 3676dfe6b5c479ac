"""The command `paleo`. Each subcommand is a thin module: parse, call the API, report."""

from __future__ import annotations

from paleo.cli.main import cli

__all__ = ["cli"]
