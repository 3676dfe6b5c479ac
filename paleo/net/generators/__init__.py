"""Generators: functions from metaparameters to nets.

Each returns a NetSpec, which every function that takes a net takes, and which
`paleo.net.writer.dumps` writes as a net file. To add one: a module of this folder with a
function whose arguments all have defaults, registered below, and a command in
`paleo/cli/commands/generate.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from paleo.core.registry import Registry
from paleo.net.generators.squeezenet import squeezenet
from paleo.net.generators.transformer import transformer
from paleo.net.spec import NetSpec

__all__ = ["GENERATORS", "squeezenet", "transformer"]

GENERATORS: Registry[Callable[..., NetSpec]] = Registry("generator")
GENERATORS.add("squeezenet", squeezenet)
GENERATORS.add("transformer", transformer)
