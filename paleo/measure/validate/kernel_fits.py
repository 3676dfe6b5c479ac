"""Constants of named kernels, fitted to rows of operator tables that those kernels computed.

A constant whose own value makes little difference is left out: then it has the value that any
kernel without a file has. What a fit is worth is said by rows and systems that it has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np
from paleo.costs.tiled.kernel_files import KernelFiles
from paleo.measure.validate.cases import Cases, predict
from paleo.measure.validate.least_squares import solve

#: The mean error, as a share, by which a fit may be worse without a constant of its own.
WORTH = 0.002
#: Constants that limit nothing at the value of a kernel without a file.
_LIMITS = ("clocked", "drawn")
#: Significant digits that are kept.
_DIGITS = 3


class KernelFit(NamedTuple):
    """Constants of a kernel on an architecture, and its mean error on the rows it was fitted to."""

    kernel: str
    architecture: str
    constants: Mapping[str, float]
    error: float


def sample(cases: Cases, most: int, seed: int = 0) -> tuple[Cases, Cases]:
    """Return so many of the cases at random, always the same for a `seed`, and the others."""
    order = np.random.default_rng(seed).permutation(len(cases))
    return cases.select(np.sort(order[:most])), cases.select(np.sort(order[most:]))


def _error(predicted: Array, measured: Array) -> float:
    return float(np.mean(np.abs(predicted / measured - 1.0)))


def fit_kernel(
    files: KernelFiles, name: str, architecture: str, cases: Cases, free: Sequence[str],
    *, worth: float = WORTH,
) -> KernelFit:  # fmt: skip
    """Return the constants of a kernel that fit cases best, of those that are `free`.

    They are fitted together by least squares of logarithms, from the values that a kernel without a
    file has; then, one by one, those are left out without which the mean error grows by less than
    `worth`, those that matter least first, and the others are fitted again.
    """
    plain = {key: files.constants[key].value for key in free}
    # Where a constant limits nothing, a fit has no slope to follow.
    plain.update({key: files.constants[key].high / 8 for key in free if key in _LIMITS})

    def tried(names: Sequence[str]) -> tuple[dict[str, float], float]:
        def seconds(values: Mapping[str, Array]) -> Array:
            trials = zip(*(np.atleast_1d(values[key]).tolist() for key in names), strict=True)
            return np.array([predicted(dict(zip(names, trial, strict=True))) for trial in trials])

        found = solve(
            seconds, cases.measured, [{key: plain[key] for key in names}], files.constants
        )
        rounded = {key: float(f"{value:.{_DIGITS}g}") for key, value in found.items()}
        return rounded, _error(predicted(rounded), cases.measured)

    def predicted(values: Mapping[str, float]) -> Array:
        with files.trying(name, architecture, values):
            return predict(cases, "tiled")

    names = list(free)
    constants, error = tried(names)
    best = error
    while len(names) > 1:
        without = {
            key: _error(predicted({k: v for k, v in constants.items() if k != key}), cases.measured)
            for key in names
        }
        key = min(without, key=lambda each: without[each])
        fewer = [each for each in names if each != key]
        simpler, simpler_error = tried(fewer)
        if simpler_error > best + worth:
            break
        names, constants, error = fewer, simpler, simpler_error
    return KernelFit(name, architecture, constants, error)
