"""Executors: frameworks that run nets, to be measured beside what is predicted."""

from __future__ import annotations

from importlib import import_module

from paleo.core.registry import unknown
from paleo.measure.executors.executor import Executor, LayerRun, NetRun, Timing, measure

__all__ = ["EXECUTORS", "Executor", "LayerRun", "NetRun", "Timing", "find_executor", "measure"]

#: The module and the class of each, imported on use.
EXECUTORS = {
    "torch": ("paleo.measure.executors.torch.executor", "PyTorch"),
    "tensorflow": ("paleo.measure.executors.tensorflow.executor", "TensorFlow"),
    "cudnn": ("paleo.measure.executors.cudnn", "Cudnn"),
}


def find_executor(name: str, place: str | None = None, dtype: str = "fp32") -> Executor:
    """Return an executor by its name in EXECUTORS.

    Raises UnknownNameError, or SettingError as `Executor` says.
    """
    if name not in EXECUTORS:
        raise unknown("executor", name, list(EXECUTORS))
    module, executor = EXECUTORS[name]
    made: Executor = getattr(import_module(module), executor)(place, dtype)
    return made
