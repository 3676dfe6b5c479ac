"""The most bytes of tensors that are alive at one time in a process, as its storages come and go.

Every operator that this thread runs is followed, of tensors that are divided among processes the
ones that this process has, and every storage that is made longer or shorter, as FSDP does. Buffers
of a library outside of PyTorch's dispatcher, such as gloo's, are not tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
    transform_subclass,
)
from torch.utils._pytree import tree_leaves

__all__ = ["Alive"]

#: Tensors that are made of others.
_DIVIDED = (DTensor, AsyncCollectiveTensor)


class Alive(TorchDispatchMode):
    """Follows tensors while it is in force: `most` are the most bytes since `begin`."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[int, int] = {}
        self.now = self.most = 0

    def begin(self) -> None:
        """Begin anew with what there is."""
        self.most = self.now

    def add(self, tensors: Iterable[Any]) -> None:
        """Follow tensors that are there."""
        for tensor in tensors:
            if is_traceable_wrapper_subclass(tensor):
                transform_subclass(tensor, self._add_inner)
            elif isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor):
                self._add(tensor.untyped_storage())

    def _add_inner(self, _: str, inner: Any) -> Any:
        self.add([inner])
        return inner

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)  # PyTorch keeps one object for each storage, as long as that lives
        if key not in self._sizes:
            weakref.finalize(storage, self._resize, key, None)
        self._resize(key, storage.nbytes())

    def _resize(self, key: int, size: int | None) -> None:
        self.now += (size or 0) - self._sizes.pop(key, 0)
        if size is not None:
            self._sizes[key] = size
        self.most = max(self.most, self.now)

    def __enter__(self) -> Any:
        resize = torch.UntypedStorage.resize_
        self._before = resize

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            found = resize(storage, size)
            self._add(storage)
            return found

        torch.UntypedStorage.resize_ = resized
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch.UntypedStorage.resize_ = self._before
        super().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, _DIVIDED) for kind in types):
            return NotImplemented  # what a tensor of several processes does comes here after it
        found = func(*args, **kwargs or {})
        self.add(tree_leaves(found))
        return found
