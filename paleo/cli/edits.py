"""The options that say how nets are read, and edited: --dim, --set, --remove, --vary and others."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.cli.options import Parsed, is_given
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.net.importers import PHASES, PROPOSALS, UNKNOWN, ImportOptions, importer_of
from paleo.net.importers.options import (
    LOOKED_AT,
    import_options,
    not_looked_at,
    parse_dims,
    parse_input,
    parse_proposals,
    parse_value,
)
from paleo.net.load import load
from paleo.net.spec import NetSpec

if TYPE_CHECKING:  # most nets are taken as they are
    from paleo.net.edit import Edits

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class NetEdits:
    """The nets of a command with the edits that were asked for: one, or the series of `vary`.

    `edits` are None where there are none; `dims` are the choices of sizes of dimensions, each of
    which makes a net.
    """

    targets: Sequence[str]
    importing: ImportOptions
    edits: Edits | None
    vary: Sequence[str]
    dims: Sequence[Mapping[str, int]] = ({},)

    def __bool__(self) -> bool:
        return bool(self.edits or self.vary or len(self.dims) > 1)

    def nets(self, first: int = 0) -> list[NetSpec]:
        """Return each net, from a `first` one on, with each of the edits.

        Raises PaleoError with all mistakes.
        """
        from paleo.net.edit import variations

        mistakes = Mistakes()
        every = [(target, dims) for target in self.targets[first:] for dims in self.dims]
        loaded = mistakes.check_all(self._load, every)
        series = mistakes.check(variations, self.vary, self.edits) or []
        found = [mistakes.check(edits.apply, net) for net in loaded for edits in series]
        mistakes.raise_as(PaleoError)
        return [net for net in found if net]

    def applied(self) -> Sequence[str | NetSpec]:
        """Return the edited nets, or the targets as they are if there is nothing to edit."""
        return self.nets() if self else self.targets

    def beside(self) -> Sequence[str | NetSpec]:
        """Return the first net as it is and the others edited; of one net, itself as edited."""
        is_alone = len(self.targets) == 1
        if not self and not (is_alone and self.dims[0]):
            return self.targets
        mistakes = Mistakes()
        dims = {} if is_alone else self.dims[0]
        reference = mistakes.check_all(self._load, [(self.targets[0], dims)])
        others = mistakes.check(self.nets, 0 if is_alone else 1) or []
        mistakes.raise_as(PaleoError)
        return [*reference, *others]

    def _load(self, target: tuple[str, Mapping[str, int]]) -> NetSpec:
        name, dims = target
        return load(name, replace(self.importing, dims=dims))


def net_options(function: _F) -> _F:
    """Add the options that edit nets, and those for files of other frameworks.

    They are passed to the command as `edits` and `importing`.
    """

    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="LAYER.KEY[INDEX]=VALUE",
        help="Change a key of a layer, one entry of it, or several ([FROM:TO]): "
        "conv8.filter[3]=1536. LAYER may be a pattern such as 'conv*'. Layers behind it are "
        "adapted, such as the channels of the next filter. May be repeated.",
    )
    @click.option(
        "--remove",
        multiple=True,
        metavar="LAYER",
        help="Remove a layer, a block, or all that match a pattern. May be repeated.",
    )
    @click.option(
        "--scale_input",
        type=float,
        metavar="FACTOR",
        help="Multiply the height and width of the inputs by this.",
    )
    @click.option(
        "--vary",
        multiple=True,
        metavar="LAYER.KEY[INDEX]=VALUE,...",
        help="As --set with several values, which makes a net for each. Also "
        "scale_input=FACTOR,... and metaparameters of `paleo generate squeezenet`: "
        "squeezenet.sr=0.125,0.5. If repeated, a net for each combination.",
    )
    @click.option(
        "--input",
        type=Parsed("[NAME=]SHAPE", parse_input),
        multiple=True,
        help="Shape of an input, where a net of another framework does not say it, in the "
        "framework's own order: 1x3x224x224. May be repeated, with names.",
    )
    @click.option(
        "--dim",
        type=Parsed("NAME=SIZE,...", parse_dims),
        multiple=True,
        help="Size of a dimension that a net file names, or that an ONNX file leaves open: "
        "seq=4096. Several make a net for each. May be repeated.",
    )
    @click.option(
        "--seq_len",
        type=Parsed("SIZE,...", lambda text: parse_dims(f"seq={text}")),
        help="Length of the sequences: short for --dim=seq=SIZE,...",
    )
    @click.option(
        "--phase",
        type=click.Choice(PHASES),
        default="train",
        help="Read a prototxt's layers of this phase, or a PyTorch module in this mode.",
    )
    @click.option(
        "--unknown",
        type=click.Choice(UNKNOWN),
        default="error",
        help="What to do with operators of an imported net that Paleo does not know: stop, or take "
        "them to cost nothing, with a note.",
    )
    @click.option(
        "--proposals",
        type=Parsed("INTEGER", parse_proposals),
        help="The regions of an image that an imported detector keeps: as many as it says itself "
        f"unless given, {PROPOSALS} where it says nothing.",
    )
    @click.option(
        "--value",
        type=Parsed("NAME=NUMBER,...", parse_value),
        multiple=True,
        help="The numbers of an ONNX file's input that decides on shapes: "
        "new_shape=1,3,448,448. May be repeated.",
    )
    @click.option(
        "--no_cache",
        is_flag=True,
        help="Import nets of other frameworks anew, and keep nothing of them for the next command.",
    )
    @functools.wraps(function)
    def command(
        settings: tuple[str, ...],
        remove: tuple[str, ...],
        scale_input: float | None,
        vary: tuple[str, ...],
        no_cache: bool,
        seq_len: tuple[str, tuple[int, ...]] | None,
        **kwargs: Any,
    ) -> Any:
        named = kwargs["nets"] if "nets" in kwargs else (kwargs["net"],)
        nets = tuple(net for net in named if net is not None)
        _check_use({importer_of(net) for net in nets})
        dims = _combinations([*kwargs.pop("dim"), *([seq_len] if seq_len else [])])
        said = {name: kwargs.pop(name) for name in LOOKED_AT if name != "dim"}
        only = dims[0] if len(dims) == 1 else {}
        importing = import_options({**said, "dim": only, "cache": not no_cache})
        edits = None
        if settings or remove or scale_input is not None:
            from paleo.net.edit import Edits

            edits = Edits(settings, remove, scale_input)
        chosen = NetEdits(nets, importing, edits, vary, dims)
        return function(edits=chosen, importing=importing, **kwargs)

    return command  # type: ignore[return-value]


def _combinations(dims: Sequence[tuple[str, tuple[int, ...]]]) -> list[dict[str, int]]:
    """Return every combination of the sizes that were given, the last dimension quickest."""
    if not dims:
        return [{}]
    from paleo.net.edit import MAX_SERIES

    mistakes = Mistakes()
    for name, count in Counter(name for name, _ in dims).items():
        if count > 1:
            mistakes.add(
                f"--dim: {name} is given {count} times: --dim={name}=SIZE,SIZE for a series"
            )
    found = math.prod(len(sizes) for _, sizes in dims)
    if found > MAX_SERIES:
        mistakes.add(f"--dim: {found} nets are more than {MAX_SERIES}")
    mistakes.raise_as(SettingError)
    names = [name for name, _ in dims]
    return [dict(zip(names, each, strict=True)) for each in product(*(s for _, s in dims))]


def _check_use(importers: set[str | None]) -> None:
    """Raise SettingError for options that nobody would look at."""
    mistakes = Mistakes()
    for option in LOOKED_AT:
        if is_given(option) and (what := not_looked_at(option, importers)):
            mistakes.add(f"--{option}: none of the nets is {what}")
    mistakes.raise_as(SettingError)
