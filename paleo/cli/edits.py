"""The options that edit nets: --set, --remove, --scale_input, --vary."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from paleo.edit import Edits, variations
from paleo.errors import Mistakes, PaleoError
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.netspec import NetSpec

__all__ = ["NetEdits", "edit_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


class NetEdits:
    """The edits that were asked for: one, or the series that --vary makes of it."""

    def __init__(self, edits: Edits, vary: Sequence[str]) -> None:
        self._edits = edits
        self._vary = vary

    def __bool__(self) -> bool:
        return bool(self._edits or self._vary)

    def nets(self, targets: Sequence[str], importing: ImportOptions) -> list[NetSpec]:
        """Return each net with each of the edits; raises PaleoError with all mistakes."""
        mistakes = Mistakes()
        loaded = [mistakes.check(load, target, importing) for target in targets]
        series = mistakes.check(variations, self._vary, self._edits) or []
        found = [mistakes.check(edits.apply, net) for net in loaded if net for edits in series]
        mistakes.raise_as(PaleoError)
        return [net for net in found if net]

    def applied(
        self, targets: Sequence[str], importing: ImportOptions
    ) -> Sequence[str] | list[NetSpec]:
        """Return the edited nets, or the targets as they are if there is nothing to edit."""
        return self.nets(targets, importing) if self else targets


def edit_options(function: _F) -> _F:
    """Add the options that edit nets, passed to the command as `edits`."""

    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="LAYER.KEY[INDEX]=VALUE",
        help="Change a key of a layer, or an entry or entries ([FROM:TO]) of it: "
        "conv8.filter[3]=1536. LAYER may be a pattern. What follows from it, such as the channels "
        "of the next filter, does. May be repeated.",
    )
    @click.option(
        "--remove",
        multiple=True,
        metavar="LAYER",
        help="Take out a layer, a block, or those of a pattern. May be repeated.",
    )
    @click.option(
        "--scale_input",
        type=float,
        metavar="FACTOR",
        help="Multiply height and width of the inputs.",
    )
    @click.option(
        "--vary",
        multiple=True,
        metavar="LAYER.KEY[INDEX]=VALUE,...",
        help="As --set, a net for each value; also scale_input=FACTOR,... and, for what "
        "`paleo generate squeezenet` makes, its metaparameters: squeezenet.sr=0.125,0.5. If "
        "repeated, a net for each combination.",
    )
    @functools.wraps(function)
    def command(
        settings: tuple[str, ...],
        remove: tuple[str, ...],
        scale_input: float | None,
        vary: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        edits = NetEdits(Edits(settings, remove, scale_input), vary)
        return function(edits=edits, **kwargs)

    return command  # type: ignore[return-value]
