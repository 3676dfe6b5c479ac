"""Memory that a step of a net takes in PyTorch on the CPU, measured by PyTorch's own tools.

Two figures, of steps that begin in the state that every later one finds again:

- `tensors`: the most bytes of tensors that are alive at one time, by
  `torch.distributed._tools.mem_tracker.MemTracker`, which follows the storages of all tensors
  that operators return. While it does, PyTorch adds up gradients into new tensors, where it
  else adds to the one that it has (`can_accumulate_inplace` asks for tensors that nobody
  follows).
- `allocated`: the most bytes that PyTorch's allocator has given out at one time, by the memory
  events of `torch.profiler`. To the tensors this adds what operators take and give back inside;
  on the CPU that is mostly oneDNN's: copies of inputs and weights in its own layouts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

__all__ = ["OPTIMIZERS", "Peak", "in_place", "inference", "loss", "training"]

#: PyTorch's optimizers by Paleo's names.
OPTIMIZERS: dict[str, Callable[[Iterable[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-3),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, lr=1e-3),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=1e-3),
    "adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-3),
}


class Peak(NamedTuple):
    """Bytes at the peak of a step."""

    tensors: int
    allocated: int


def loss(scores: Tensor) -> Tensor:
    """Return the cross entropy of probabilities, the second dimension or the last the classes."""
    if scores.shape[1] == 1:
        return functional.binary_cross_entropy(scores, torch.ones_like(scores))
    if scores.dim() == 3:
        scores = scores.flatten(0, 1)
    labels = torch.zeros((scores.shape[0], *scores.shape[2:]), dtype=torch.int64)
    return functional.nll_loss(scores.log(), labels)


def in_place(net: nn.Module) -> nn.Module:
    """Let each ReLU that follows a convolution work in its memory, as `activation_fn` says."""
    for module in net.modules():
        before: nn.Module | None = None
        for child in module.children():
            if isinstance(child, nn.ReLU) and isinstance(before, nn.Conv2d):
                child.inplace = True
            before = child
    return net


def training(
    net: nn.Module,
    x: Tensor,
    optimizer: str = "sgd",
    loss_of: Callable[[Tensor], Tensor] = loss,
) -> Peak:
    """Measure a training step after the first: forward, loss, backward, update."""
    net.train()
    update = OPTIMIZERS[optimizer](net.parameters())

    def step() -> None:
        update.zero_grad(set_to_none=True)
        scores = net(x)
        loss_of(scores).backward()
        update.step()

    def state() -> list[Tensor]:
        # The step before leaves its gradients: the next begins by giving them back.
        update.zero_grad(set_to_none=True)
        values = [value for each in update.state.values() for value in each.values()]
        return [*net.parameters(), *net.buffers(), *filter(torch.is_tensor, values)]

    return _measured(net, x, step, state, update)


def inference(net: nn.Module, x: Tensor) -> Peak:
    """Measure a forward pass without gradients, in evaluation mode."""
    net.eval()

    def step() -> None:
        with torch.no_grad():
            scores = net(x)
        del scores

    return _measured(net, x, step, lambda: [*net.parameters(), *net.buffers()])


def _measured(
    net: nn.Module,
    x: Tensor,
    step: Callable[[], None],
    state: Callable[[], list[Tensor]],
    *tracked: Any,
) -> Peak:
    """Run three steps, of which the first makes what stays, such as momenta; measure the others."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(2, threads))  # with one, convolutions take another way
    tracker = MemTracker()
    tracker.track_external(net, x, *tracked)
    try:
        with tracker:
            step()
            tracker.reset_mod_stats()
            step()
        gc.collect()
        before = _bytes([x, *state()])
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            step()
    finally:
        torch.set_num_threads(threads)
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return Peak(snapshot["Total"], _most_allocated(profiled, before))


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of storages, each counted once."""
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def _most_allocated(profiled: profile, before: int) -> int:
    """Return the largest running sum of what was allocated and given back."""
    assert profiled.profiler is not None
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), i, e.nbytes()) for i, e in enumerate(events) if _is_memory(e))
    most = now = before
    for _, _, change in changes:
        now += change
        most = max(most, now)
    return most


def _is_memory(event: Any) -> bool:
    return bool(event.name() == "[memory]")
