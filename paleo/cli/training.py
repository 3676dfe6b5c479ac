"""The options that say how long a net is trained, by which rule, at what price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from paleo.cli.plan import one_of
from paleo.datasets import DATASETS
from paleo.memory import OPTIMIZERS

__all__ = ["optimizer_option", "price_option", "schedule_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

optimizer_option = click.option(
    "--optimizer",
    default="sgd",
    show_default=True,
    help="Rule of the update, for the memory that it takes.",
    **one_of(OPTIMIZERS),
)
price_option = click.option(
    "--price",
    help="Price of one device for an hour: dollars, or a text such as '0.90 EUR/h'.  [default: "
    "the newest of the device's file]",
)


def schedule_options(function: _F) -> _F:
    """Add the options of a training's length."""
    epochs = click.option(
        "--epochs", type=float, help="How often training goes through the dataset."
    )
    dataset = click.option("--dataset", help="Dataset of the training.", **one_of(DATASETS))
    size = click.option(
        "--dataset_size", type=int, help="Samples in the dataset, where it is another."
    )
    return epochs(dataset(size(function)))
