"""What is summed up over the layers of a net, from the last to the first.

A `Sum` is one number. Times on a device that waits for its host are not: the host hands kernels
over in the order of layers, forward and then backward, and the device begins each when it has been
handed over and the one before has ended (paleo.costs.host). That is a longest way: in the algebra
of maximum and sum each layer is a matrix, and those of all layers are multiplied (F. Baccelli et
al., Synchronization and Linearity, 1992). With the layers from some place on done forward and then
backward, a device that comes there at `end`, and a host at `issued`, leave them at

    max(end + device, issued + path)   and   issued + host

so `device`, `path` and `host` are all there is to know of these layers, each the better the less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np

Columns = tuple[Array, ...]


class Term(ABC):
    """A quantity of nets as numbers for layers from some place on: its `columns`."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """What each situation adds at least, and exactly where nothing waits; 0 at the end."""

    @abstractmethod
    def end(self) -> Columns:
        """Return the columns behind the last layer, of one point."""

    @abstractmethod
    def before(self, columns: Columns, situation: int) -> Columns:
        """Return the columns with a layer before."""

    @abstractmethod
    def total(self, columns: Columns) -> Array:
        """Return the quantity of whole nets."""

    @property
    @abstractmethod
    def constant(self) -> float:
        """What every net has at least, besides its layers."""

    def least(self, columns: Columns) -> Array:
        """Return what these layers and the constant are at least, whatever is before."""
        found: Array = columns[0] + self.constant if self.constant else columns[0]
        return found

    def within(self, columns: Columns, layer: int, state: int) -> Columns:
        """Return columns that say the same of every net with this state before a layer."""
        return columns


@dataclass(frozen=True, eq=False)
class Sum(Term):
    """A sum over layers, besides what is `at_least` there.

    `of` has a number for each situation, and behind the last a 0.
    """

    of: Array
    at_least: float = 0

    @property
    def constant(self) -> float:
        return self.at_least

    @property
    def values(self) -> Array:
        return self.of

    def end(self) -> Columns:
        return (np.zeros(1, self.of.dtype),)

    def before(self, columns: Columns, situation: int) -> Columns:
        return (columns[0] + self.of[situation],)

    def total(self, columns: Columns) -> Array:
        return self.least(columns)


@dataclass(frozen=True)
class Passes:
    """Seconds of both passes in each situation, and kernels that the host hands over for them.

    Behind the last is a 0. `backward` is of zeros for inference. `others` are seconds that no host
    delays, such as those of the update.
    """

    forward: Array
    forward_kernels: Array
    backward: Array
    backward_kernels: Array
    others: Array
    host: float

    @property
    def seconds(self) -> Array:
        """Seconds of the device."""
        found: Array = self.forward + self.backward + self.others
        return found


class Queue(Term):
    """Seconds of passes on a device that waits for its host, with a `constant` behind.

    `lead` is, by layer and state, by how much the device comes there after the host at least, and
    `kernels` how many are handed over backward before it at most. Paths that cannot decide are
    taken as long as the device's own, so that points are told apart by what matters alone.
    """

    def __init__(
        self,
        passes: Passes,
        constant: float,
        lead: Sequence[Array],
        kernels: Sequence[Array],
    ) -> None:
        self.passes, self.at_least = passes, constant
        self.lead, self.kernels = lead, kernels

    @property
    def constant(self) -> float:
        return self.at_least

    @property
    def values(self) -> Array:
        return self.passes.seconds

    def end(self) -> Columns:
        return tuple(np.array([value]) for value in (0.0, -np.inf, 0.0))

    def before(self, columns: Columns, situation: int) -> Columns:
        device, path, host = columns
        each = self.passes
        if situation < 0:
            return columns
        seconds, kernels = each.forward[situation], each.forward_kernels[situation]
        if kernels:
            handed = kernels * each.host
            path = np.maximum(each.host + seconds + device, handed + np.maximum(device, path))
            host = host + handed
        device = device + seconds
        seconds, kernels = each.backward[situation], each.backward_kernels[situation]
        path, device = path + seconds, device + seconds
        if kernels:
            handed = kernels * each.host
            path = np.maximum(path, host + max(each.host + seconds, handed))
            host = host + handed
        others = each.others[situation]
        return device + others, path + others, host + others

    def within(self, columns: Columns, layer: int, state: int) -> Columns:
        device, path, host = columns
        path = np.maximum(path, device + self.lead[layer][state])
        # Whoever is so far behind the host does not wait for it any more.
        far = path - host >= self.kernels[layer][state] * self.passes.host
        return device, path, np.where(far, -np.inf, host)

    def total(self, columns: Columns) -> Array:
        device, path, _ = columns
        found: Array = np.maximum(device, path) + self.constant
        return found


class Updated(Term):
    """Seconds of passes, and of an update that is no multiple of the parameters it updates.

    `update` returns the seconds of arrays of parameters, more of more; no net has fewer than
    `fewest`.
    """

    def __init__(
        self, passes: Term, params: Sum, update: Callable[[Array], Array], fewest: int
    ) -> None:
        self.passes, self.params, self.update = passes, params, update
        self.at_least = passes.constant + float(update(np.array([fewest]))[0])

    @property
    def constant(self) -> float:
        return self.at_least

    @property
    def values(self) -> Array:
        return self.passes.values

    def end(self) -> Columns:
        return (*self.passes.end(), *self.params.end())

    def before(self, columns: Columns, situation: int) -> Columns:
        *of_passes, params = columns
        moved = self.passes.before(tuple(of_passes), situation)
        return (*moved, *self.params.before((params,), situation))

    def within(self, columns: Columns, layer: int, state: int) -> Columns:
        *of_passes, params = columns
        return (*self.passes.within(tuple(of_passes), layer, state), params)

    def total(self, columns: Columns) -> Array:
        *of_passes, params = columns
        found: Array = self.passes.total(tuple(of_passes)) + self.update(params)
        return found


def lead_behind(passes: Passes, lead: Array, situations: Array) -> Array:
    """Return by how much the device is behind its host after forward passes, from `lead` before."""
    seconds, kernels = passes.forward[situations], passes.forward_kernels[situations]
    handed = kernels * passes.host
    waiting = np.maximum(seconds + np.maximum(0.0, passes.host - lead), handed - lead)
    found: Array = lead + np.where(kernels > 0, waiting - handed, seconds)
    return found
