"""The options that say where a net runs and how: those that several commands share.

Each is a decorator of its own, so that a command takes what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from paleo.cli.options import Names, number, verbose
from paleo.collectives import COLLECTIVES, Collective
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.costs.convolutions import LIBRARIES
from paleo.estimate import link_bandwidth
from paleo.hardware import find_device, find_network
from paleo.load import net_source
from paleo.parallelism import SCALINGS
from paleo.tensor import PRECISIONS, find_precision

__all__ = [
    "CONV_LIBRARY_HELP",
    "DTYPE_HELP",
    "SCHEMES_HELP",
    "batch_size_option",
    "conv_library_option",
    "convolution_options",
    "cost_model_option",
    "dtype_option",
    "fuse_option",
    "hybrid_workers_option",
    "num_workers_option",
    "one_of",
    "ppp_comm_option",
    "ppp_comp_option",
    "say_no_effect",
    "say_what_has_no_effect",
    "say_what_is_used",
    "scalings_option",
    "use_only_gemm_option",
    "use_pipeline_option",
    "workspace_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])


def _described(things: Iterable[CostModel | Collective]) -> str:
    return "; ".join(f"{thing.name} ({thing.summary})" for thing in things) + "."


SCHEMES_HELP = _described(COLLECTIVES.values())

batch_size_option = click.option(
    "--batch_size",
    type=int,
    default=128,
    show_default=True,
    help="Samples in a batch: each worker's in weak scaling, all workers' in strong scaling.",
)
ppp_comp_option = click.option(
    "--ppp_comp",
    type=float,
    default=1.0,
    show_default=True,
    help="Share of the device's peak that is reached, above 0, up to 1.",
)
ppp_comm_option = click.option(
    "--ppp_comm",
    type=float,
    default=1.0,
    show_default=True,
    help="Share of the network's bandwidth that is reached, above 0, up to 1.",
)
scalings_option = click.option(
    "--scaling",
    type=Names(SCALINGS),
    default="weak,strong",
    show_default=True,
    metavar="SCALING,...",
    help="weak: a batch for every worker; strong: one batch divided among them.",
)
hybrid_workers_option = click.option(
    "--hybrid_workers",
    type=int,
    default=1,
    show_default=True,
    help="Number of workers, with --parallel=hybrid.",
)
DTYPE_HELP = (
    "of the elements of all tensors. mixed_fp16 and mixed_bf16 compute in 2 bytes; parameters, "
    "their gradients between workers and the update stay fp32."
)
dtype_option = click.option(
    "--dtype",
    default="fp32",
    show_default=True,
    shell_complete=Names(PRECISIONS).shell_complete,
    metavar="[" + "|".join(PRECISIONS) + "]",
    help="Type " + DTYPE_HELP,
)
fuse_option = click.option(
    "--fuse",
    is_flag=True,
    help="Let biases, activations and other pointwise operations run in the kernel before them, "
    "as in a compiled net.",
)
use_pipeline_option = click.option(
    "--use_pipeline", is_flag=True, help="Let a layer's computation and memory traffic overlap."
)
cost_model_option = click.option(
    "--cost_model",
    shell_complete=Names(COST_MODELS).shell_complete,
    default=DEFAULT_COST_MODEL,
    show_default=True,
    metavar="[" + "|".join(COST_MODELS) + "]",
    help=_described(COST_MODELS.values()),
)
CONV_LIBRARY_HELP = (
    "Library whose quickest algorithm is taken for each convolution: cudnn2 to cudnn9, onednn (on "
    "CPUs), any (every algorithm), or cudnn, which asks the cuDNN of this machine.  [default: the "
    "device's own in tiled, a matrix product in the other cost models]"
)
conv_library_option = click.option(
    "--conv_library",
    metavar="NAME",
    shell_complete=Names(LIBRARIES).shell_complete,
    help=CONV_LIBRARY_HELP,
)


class _Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes: a number, or a text that the API reads."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return number(value) if isinstance(value, str) else value


workspace_option = click.option(
    "--workspace",
    type=_Size(),
    metavar="SIZE",
    help="The most that an algorithm for a convolution may need besides its operands, such as "
    "4GiB.  [default: no limit]",
)
use_only_gemm_option = click.option(
    "--use_only_gemm",
    is_flag=True,
    help="Compute every convolution as a matrix multiplication, the quickest of the library's.",
)


def convolution_options(function: _F) -> _F:
    """Add the options that say by which algorithm convolutions are computed."""
    return conv_library_option(workspace_option(use_only_gemm_option(function)))


def one_of(names: Any) -> dict[str, Any]:
    """Return what an option says and completes that takes one name."""
    return {
        "metavar": "[" + "|".join(names) + "]",
        "shell_complete": Names(names).shell_complete,
    }


def num_workers_option(default: Sequence[int]) -> Callable[[_F], _F]:
    """Return the option for worker counts, with these unless told otherwise."""
    return click.option(
        "--num_workers",
        type=Names(()),
        default=",".join(map(str, default)),
        show_default=True,
        metavar="N,N,...",
        help="Numbers of data-parallel workers.",
    )


def say_what_is_used(
    nets: Sequence[str],
    device_name: str | None,
    network_name: str | None,
    cost_model: str,
    dtype: str = "fp32",
) -> None:
    """Print where the nets are and which figures count, for --verbose; None has none."""
    for net in nets:
        verbose(f"net {net}: {net_source(net)}")
    model = find_cost_model(cost_model)
    whose = "the 2017 model's" if model.uses_2017_figures else "the data sheet's"
    if device_name is not None:
        device = find_device(device_name)
        for name, value, unit in model.rates(device, find_precision(dtype).computing):
            verbose(f"{device.name}: {name} {value:g} {unit}, {whose}")
    if network_name is not None:
        network = find_network(network_name)
        bandwidth = link_bandwidth(network, model)
        verbose(f"{network.name}: bandwidth {bandwidth:g} bytes/s, {whose}")


def say_what_has_no_effect(parallel: str, only_for: Mapping[str, str]) -> None:
    """Print a note for each option that was given and is for another kind of parallelism."""
    for option, kind in only_for.items():
        if kind != parallel:
            say_no_effect(option, f"--parallel={kind}")


def say_no_effect(option: str, only_for: str) -> None:
    """Print a note if an option was given that only another one gives something to do."""
    source = click.get_current_context().get_parameter_source(option)
    if source is not ParameterSource.DEFAULT:
        click.echo(f"paleo: note: --{option} is for {only_for}, it has no effect here", err=True)
