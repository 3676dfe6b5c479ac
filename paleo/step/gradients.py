"""What workers send of their gradients: all of each, in other types, one bit, or the largest alone.

Kernels before an exchange pack what is sent, others after it unpack what has come; a cost model
prices both as passes over memory. What is left out is added to the gradients of the next step
(error feedback): a residual of the gradients' size, which is kept. How well a net learns from such
gradients is not modelled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from paleo.cluster.collectives.base import Operation
from paleo.core.checks import number, shown
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.kinds import Kind, Pass
from paleo.core.operations import Stream
from paleo.core.quantity import Quantity, ceil_div, minimum, total
from paleo.core.tensor import element_size

#: The types in which gradients can be sent.
SENT_DTYPES = ("fp32", "fp16", "bf16", "fp8")
#: The share of gradients that top-k sends unless told (A. Aji, K. Heafield, "Sparse communication
#: for distributed gradient descent", EMNLP 2017, drop 99 %).
TOPK_SHARE = 0.01
#: Bytes of the index of a gradient that is sent alone.
_INDEX = 4
#: Bits of a digit of PyTorch's selection, which goes over all elements once for each digit
#: (aten/src/ATen/native/cuda/TensorTopK.cu, mbtopk, RADIX_BITS).
_DIGIT = 8
#: Bytes of a sector, which is what memory moves for an element alone.
_SECTOR = 32


def _kernel(label: str, reads: tuple[Quantity, ...], writes: tuple[Quantity, ...]) -> Stream:
    return Stream(Kind.ELEMENTWISE, reads, writes, direction=Pass.UPDATE, label=label)


@dataclass(frozen=True)
class Encoding(ABC):
    """How gradients of type `made` are sent, in type `sent`.

    `operations` are what workers do with messages, one after another.
    """

    made: str
    sent: str
    operations: ClassVar[tuple[Operation, ...]] = (Operation.ALL_REDUCE,)

    @property
    def size(self) -> int:
        """Bytes of a gradient as the backward pass gives it."""
        return element_size(self.made)

    @property
    def is_plain(self) -> bool:
        """Whether gradients are sent as they are, so that no kernel is needed."""
        return not self.packing(1)

    @abstractmethod
    def message(self, operation: Operation, elements: Quantity, workers: Quantity) -> Quantity:
        """Return the bytes of so many gradients, counted as the operation does."""

    def carried(self, num_bytes: Quantity, workers: Quantity) -> Quantity:
        """Return of how many bytes an all-reduce loads links as much as so many gradients do.

        An all-to-all or an all-gather moves a message over links once, an all-reduce twice.
        """
        return total(
            self.message(operation, num_bytes // self.size, workers)
            / (1 if operation is Operation.ALL_REDUCE else 2)
            for operation in self.operations
        )

    @abstractmethod
    def packing(self, elements: int) -> tuple[Stream, ...]:
        """Return the kernels that make a message of so many gradients."""

    @abstractmethod
    def unpacking(self, elements: int, workers: Quantity) -> tuple[Stream, ...]:
        """Return those that make gradients of the messages of all workers."""


class Cast(Encoding):
    """All gradients in one type; kernels cast where that is not the one in which they are made.

    As PyTorch's fp16_compress_hook and bf16_compress_hook do
    (torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py). fp8 takes a scale, for which
    another kernel looks for the largest (H. Peng et al., "FP8-LM: training FP8 large language
    models", arXiv:2310.18313, 2023, section 2.1).
    """

    def message(self, operation: Operation, elements: Quantity, workers: Quantity) -> Quantity:
        return element_size(self.sent) * elements

    def packing(self, elements: int) -> tuple[Stream, ...]:
        if self.sent == self.made:
            return ()
        full, cast = self.size * elements, element_size(self.sent) * elements
        scaled = (_kernel("largest gradient", (full,), ()),) if self.sent == "fp8" else ()
        return (*scaled, _kernel("gradients packed", (full,), (cast,)))

    def unpacking(self, elements: int, workers: Quantity) -> tuple[Stream, ...]:
        if self.sent == self.made:
            return ()
        full, cast = self.size * elements, element_size(self.sent) * elements
        return (_kernel("gradients unpacked", (cast,), (full,)),)


class OneBit(Encoding):
    """The sign of each gradient, and two floats by which it is read again.

    F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
    distributed training of speech DNNs", Interspeech 2014: the values are the means of what is
    above and below zero. There each column has two, 1 to 3 % more bytes; here each message has, as
    in H. Tang et al., "1-bit Adam", ICML 2021. Each worker sums up a share of all gradients and
    sends it to all as signs again, with a residual of its own: an all-to-all and an all-gather.
    """

    operations = (Operation.ALL_TO_ALL, Operation.ALL_GATHER)

    def message(self, operation: Operation, elements: Quantity, workers: Quantity) -> Quantity:
        parts = workers if operation is Operation.ALL_GATHER else 1
        return _bits(elements) + 8 * parts

    def packing(self, elements: int) -> tuple[Stream, ...]:
        return self._signs(elements)

    def unpacking(self, elements: int, workers: Quantity) -> tuple[Stream, ...]:
        share, bits = ceil_div(elements, workers), _bits(elements)
        return (
            # A share of the gradients of each worker: as many bits as all gradients of one.
            _kernel("signs summed", (bits,), (self.size * share,)),
            *self._signs(share),
            _kernel("signs unpacked", (bits,), (self.size * elements,)),
        )

    def _signs(self, elements: Quantity) -> tuple[Stream, ...]:
        """Return what adds the residual, finds both means, and keeps what signs do not say."""
        full = self.size * elements
        return (
            _kernel("residual added", (full, full), (full,)),
            _kernel("signs packed", (full,), (_bits(elements), full)),
        )


def _bits(elements: Quantity) -> Quantity:
    """Return the bytes of one bit each."""
    return ceil_div(elements, 8)


@dataclass(frozen=True)
class TopK(Encoding):
    """The `share` of gradients that is largest, each with its index, gathered from all workers.

    A. Aji, K. Heafield, EMNLP 2017; Y. Lin et al., "Deep gradient compression", ICLR 2018. Workers
    choose different ones, so their messages are gathered, not summed on the way. What is largest is
    found digit by digit; what has come is added where it belongs, each time a sector of memory.
    """

    share: float = TOPK_SHARE
    operations = (Operation.ALL_GATHER,)

    def _chosen(self, elements: Quantity) -> Quantity:
        return ceil_div(self.share * elements, 1)

    def _one(self, elements: Quantity) -> Quantity:
        """Return the bytes of one worker's message."""
        return (element_size(self.sent) + _INDEX) * self._chosen(elements)

    def _touched(self, elements: int, count: Quantity) -> Quantity:
        """Return the bytes that move where so many gradients are read or written alone."""
        return minimum(_SECTOR * count, self.size * elements)

    def message(self, operation: Operation, elements: Quantity, workers: Quantity) -> Quantity:
        return workers * self._one(elements)

    def packing(self, elements: int) -> tuple[Stream, ...]:
        full, digits = self.size * elements, 8 * self.size // _DIGIT
        return (
            _kernel("residual added", (full, full), (full,)),
            *(_kernel("digits counted", (full,), ()),) * digits,
            _kernel("largest gathered", (full,), (self._one(elements),)),
            _kernel("residual cleared", (), (self._touched(elements, self._chosen(elements)),)),
        )

    def unpacking(self, elements: int, workers: Quantity) -> tuple[Stream, ...]:
        come = workers * self._one(elements)
        touched = self._touched(elements, workers * self._chosen(elements))
        return (
            _kernel("gradients set to zero", (), (self.size * elements,)),
            _kernel("largest added", (come, touched), (touched,)),
        )


@dataclass(frozen=True)
class Compression:
    """How gradients are compressed: by a name of COMPRESSIONS, of top-k with the `share` sent."""

    name: str
    share: float | None = None

    def __str__(self) -> str:
        return self.name if self.share is None else f"{self.name}:{self.share:g}"

    def encoding(self, made: str, sent: str) -> Encoding:
        """Return how gradients of type `made` are sent, those that stay numbers in type `sent`."""
        if self.share is None:
            return OneBit(made, sent)
        return TopK(made, sent, self.share)


#: What is said of each.
COMPRESSIONS = {
    "onebit": "the sign of each, with error feedback",
    "topk:SHARE": f"the largest alone with their indices, such as topk:{TOPK_SHARE}",
}


def find_compression(given: Any) -> Compression | None:
    """Return what a text means, "onebit", "topk" or "topk:0.01"; None for None.

    Raises SettingError.
    """
    if given is None or isinstance(given, Compression):
        return given
    if given == "onebit":
        return Compression("onebit")
    name, colon, share = given.partition(":") if isinstance(given, str) else ("", "", "")
    if name != "topk":
        raise SettingError(f"compress: expected onebit or topk:SHARE, got {shown(given)}")
    value = number(share) if colon else TOPK_SHARE
    if isinstance(value, str) or not 0 < value <= 1:
        raise SettingError(
            f"compress: expected a share above 0, up to 1, such as topk:{TOPK_SHARE}, "
            f"got {shown(given)}"
        )
    return Compression("topk", float(value))
