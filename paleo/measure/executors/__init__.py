"""Executors: frameworks that run nets, to be measured beside what is predicted."""

from __future__ import annotations

from paleo.executors.base import Executor, LayerRun, NetRun, Timing, measure

__all__ = ["EXECUTORS", "Executor", "LayerRun", "NetRun", "Timing", "find_executor", "measure"]

#: The module and the class of each, imported on use.
EXECUTORS = {
    "torch": ("paleo.executors.pytorch", "PyTorch"),
    "tensorflow": ("paleo.executors.tensorflow", "TensorFlow"),
    "cudnn": ("paleo.executors.cudnn", "Cudnn"),
}


def find_executor(name: str, place: str | None = None, dtype: str = "fp32") -> Executor:
    """Return an executor by its name in EXECUTORS.

    Raises UnknownNameError, or SettingError as `Executor` says.
    """
    from importlib import import_module

    from paleo.registry import unknown

    if name not in EXECUTORS:
        raise unknown("executor", name, list(EXECUTORS))
    module, of = EXECUTORS[name]
    found: Executor = getattr(import_module(module), of)(place, dtype)
    return found
