"""Synchronous workers wait for the slowest of them.

A worker's step takes now longer and now shorter: clocks follow heat and power, hosts do other work,
batches come late from an input pipeline, links are shared. Workers that exchange gradients in every
step all end when the last of them does, so a step of n workers takes the mean of the largest of n
draws, not the mean of one (J. Chen et al., "Revisiting Distributed Synchronous SGD", 2016, section
2: stragglers; J. Dean, L. A. Barroso, "The Tail at Scale", CACM 56, 2013). Draws are normal here,
independent of each other: `jitter` is their standard deviation, as a share of the mean.
"""

from __future__ import annotations

import functools
import math

from paleo.core.checks import is_number, shown
from paleo.core.errors import SettingError
from paleo.core.quantity import Array, Quantity, is_array, largest, np, smallest
from paleo.step.declarations import checked_workers

#: What measured steps of 2 to 8 GPUs of one node show on the whole (tf_cnn_benchmarks, dlperf,
#: nvidia_dle, lambda), within 0.015 to 0.05. 0.015 of it is how far GPUs of one kind differ: 8 % of
#: the median between the whiskers of their distribution, which are 5.4 standard deviations apart if
#: it is normal (P. Sinha et al., "Not all GPUs are created equal", SC 2022). The rest is of hosts
#: and input pipelines.
TYPICAL = 0.03
#: Where the density of the largest is taken, in standard deviations: of a billion draws it is
#: below 7.5 for all but 1 in 10,000 billion. The integrand is smooth and zero at both ends, so that
#: sums at equal distances converge faster than any power of them (L. N. Trefethen, J. A. C.
#: Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56, 2014).
_FROM, _TO, _APART = -9.0, 12.0, 0.05


def checked_jitter(jitter: Quantity, name: str = "jitter") -> Quantity:
    """Return a jitter, or an array of them; raises SettingError unless it is from 0 to 1."""
    is_known = is_array(jitter) or is_number(jitter)
    if is_known and smallest(jitter) >= 0 and largest(jitter) <= 1:  # false for NaN
        return jitter
    raise SettingError(f"{name}: expected a number from 0 to 1, got {shown(jitter)}")


def expected_slowest(workers: Quantity, jitter: Quantity) -> Quantity:
    """Return what the slowest of so many workers takes, as a multiple of what one takes on average.

    It is 1 + jitter x E[largest of n standard normal draws]: 1 of one worker, 1 + jitter / sqrt(pi)
    of two, 1 + 1.42 jitter of 8, 1 + 2.34 jitter of 64, about 1 + jitter sqrt(2 ln n) of very many.
    Both may be arrays. Raises SettingError.
    """
    counts, share = checked_workers(workers, "workers"), checked_jitter(jitter)
    if not is_array(counts):
        return 1 + share * _largest(int(counts))
    known, places = np.unique(counts, return_inverse=True)
    means = np.array([_largest(count) for count in known.tolist()])
    return 1 + share * means[places].reshape(np.shape(counts))


@functools.lru_cache(maxsize=4096)
def _largest(count: int) -> float:
    """Return the mean of the largest of so many standard normal draws.

    The integral of x n phi(x) Phi(x)^(n - 1) (H. A. David, H. N. Nagaraja, Order Statistics, 3rd
    ed., 2003, section 3.1), to 1e-9.
    """
    at, log_density, log_below = _normal()
    density = np.exp(math.log(count) + log_density + (count - 1) * log_below)
    return float(density @ at) * _APART


@functools.cache
def _normal() -> tuple[Array, Array, Array]:
    """Return places, and the logarithms of the normal density and distribution there."""
    at = np.arange(_FROM, _TO + _APART / 2, _APART)
    # Each side from its own tail, where 1 less the other would round.
    tails = [math.erfc(abs(x) / math.sqrt(2)) / 2 for x in at.tolist()]
    below = [math.log(p) if x < 0 else math.log1p(-p) for x, p in zip(at, tails, strict=True)]
    return at, -at * at / 2 - math.log(2 * math.pi) / 2, np.array(below)
