"""Files of kernels' constants: by architecture, each with its source, within its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from paleo.cluster.figures import FileReader
from paleo.core.errors import HardwareError, Mistakes, near_or_known
from paleo.core.frozen import NamedTuple

_ARCHITECTURES = ("Ampere", "Ada", "Hopper", "Blackwell", "Blackwell RTX")

#: Constants by name, by the architecture that they are for.
ByArchitecture: TypeAlias = Mapping[str, Mapping[str, float]]


_NONE: Mapping[str, ByArchitecture] = MappingProxyType({})


class Constant(NamedTuple):
    """What a constant of a kernel means, its bounds, and its value where a file has none."""

    meaning: str
    low: float
    high: float
    value: float


class KernelFiles:
    """The files of one kind of kernels, read once: `files(name)` are a kernel's constants."""

    def __init__(self, folder: Path, constants: Mapping[str, Constant]) -> None:
        self.folder, self.constants = folder, constants
        self._known: dict[str, ByArchitecture] = {}
        self._tried: ContextVar[Mapping[str, ByArchitecture]] = ContextVar("tried", default=_NONE)

    def __call__(self, name: str) -> ByArchitecture:
        tried = self._tried.get()
        if name in tried:
            return {**self._of(name), **tried[name]}
        return self._of(name)

    def _of(self, name: str) -> ByArchitecture:
        if name not in self._known:
            self._known[name] = read_kernel(self.folder / f"{name}.toml", name, self.constants)
        return self._known[name]

    def given(self, name: str) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the constants that a kernel's file states, by architecture."""
        root = FileReader(self.folder / f"{name}.toml", ("name", "sources", *_ARCHITECTURES))
        return {each: tuple(root.table(each).constants()) for each in _ARCHITECTURES}

    @contextmanager
    def trying(self, name: str, architecture: str, values: Mapping[str, float]) -> Iterator[None]:
        """Have a kernel other constants on an architecture; those not given as without a file."""
        plain = {key: each.value for key, each in self.constants.items()}
        before = self._tried.get()
        token = self._tried.set({**before, name: {architecture: {**plain, **values}}})
        try:
            yield
        finally:
            self._tried.reset(token)


def read_kernel(path: Path, name: str, constants: Mapping[str, Constant]) -> ByArchitecture:
    """Return the constants of the kernel `name`; raises HardwareError with every mistake."""
    root = FileReader(path, ("name", "sources", *_ARCHITECTURES))
    root.text("name", name)
    found: dict[str, dict[str, float]] = {}
    mistakes = Mistakes(path.name)
    for architecture in _ARCHITECTURES:
        given = {
            key: float(figure.value) for key, figure in root.table(architecture).constants().items()
        }
        for key, value in given.items():
            constant = constants.get(key)
            place = f"{architecture}.{key}"
            if constant is None:
                mistakes.add(f"unknown constant{near_or_known(key, constants)}", key=place)
            elif not constant.low <= value <= constant.high:
                limits = f"{constant.low:g} to {constant.high:g}"
                mistakes.add(f"expected {limits} ({constant.meaning}), got {value:g}", key=place)
        if given:
            known = {key: each.value for key, each in constants.items()}
            found[architecture] = {**known, **given}
    root.finish()
    mistakes.raise_as(HardwareError)
    return found
