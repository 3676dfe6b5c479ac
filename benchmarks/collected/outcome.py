"""What became of one net of a collection, and what PyTorch's own counter says of a module."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paleo

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from products import counts

VERDICTS = ("exact", "refused", "wrong")
#: How far FLOPs of products and convolutions may be from the framework's own counter.
WITHIN = 0.01


@dataclass(frozen=True)
class Outcome:
    """One net, read: its verdict and why.

    "exact" has the parameters and, within 1 %, the FLOPs that its framework counts. "refused" is
    one true line. "wrong" is all else: other counts, an untrue message, a traceback. `seconds` is
    the whole import, `ours` the part that is not the framework's export or parser.
    """

    verdict: str
    detail: str
    seconds: float
    ours: float


class Clock:
    """Adds up the time spent in the framework's own functions while a net is read."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Count a time, once where one is within another."""
        begun = time.perf_counter()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.perf_counter() - begun

    @contextlib.contextmanager
    def around(self, *functions: tuple[Any, str]) -> Iterator[None]:
        """Count the time in functions, each said as its owner and its name."""
        with contextlib.ExitStack() as undo:
            for owner, name in functions:
                before = getattr(owner, name)
                setattr(owner, name, self._timed(before))
                undo.callback(setattr, owner, name, before)
            yield

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.inside():
                return function(*args, **kwargs)

        return timed


def outcome(
    load: Callable[[], paleo.NetSpec],
    difference: Callable[[paleo.NetSpec], str],
    framework: Sequence[tuple[Any, str]] = (),
) -> Outcome:
    """Return what becomes of a net that `load` reads.

    `difference` says in what it is not as its framework has it, "" if in nothing. The time in the
    functions of `framework`, each said as its owner and its name, is not ours.
    """
    clock, begun = Clock(), time.perf_counter()
    verdict = detail = ""
    net = None
    try:
        with clock.around(*framework):
            net = load()
    except paleo.PaleoError as error:
        verdict, detail = "refused", str(error).replace("\n", " | ")
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a verdict
        verdict, detail = "wrong", f"a traceback: {type(error).__name__}: {error}"
    seconds = time.perf_counter() - begun
    if net is not None:
        detail = difference(net)
        verdict = "wrong" if detail else "exact"
    return Outcome(verdict, detail, seconds, seconds - clock.seconds)


# ---- PyTorch -----------------------------------------------------------------------------------


def module_outcome(
    load: Callable[[], paleo.NetSpec],
    module: Any,
    inputs: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    batch: int,
    training: bool = True,
) -> Outcome:
    """Return what becomes of a PyTorch module that `load` reads.

    `inputs` and `keywords` are its arguments with a batch of this many samples. They and the
    module may be on the meta device: neither needs data.
    """
    import torch

    def difference(net: paleo.NetSpec) -> str:
        expected = module_counts(module, inputs, keywords or {}, training)
        return counts_differ(net, expected, batch)

    return outcome(load, difference, [(torch.export, "export")])


def counts_differ(net: paleo.NetSpec, expected: tuple[int, int], batch: int) -> str:
    """Return in what a net is not as expected, parameters and FLOPs; "" if in nothing."""
    params, flops, _ = counts(net, batch)
    said = []
    if params != expected[0]:
        said.append(f"{params - expected[0]:+,} parameters of {expected[0]:,}")
    if abs(flops - expected[1]) > WITHIN * expected[1]:
        share = flops / expected[1] - 1 if expected[1] else float("inf")
        said.append(f"{share:+.2%} FLOPs of {expected[1]:,}")
    return ", ".join(said)


def module_counts(
    module: Any, inputs: Sequence[Any], keywords: Mapping[str, Any], training: bool = True
) -> tuple[int, int]:
    """Return the parameters that a module's forward pass reads, and FlopCounterMode's FLOPs.

    It runs on tensors without data. Parameters that no operator reads are left out, as in Paleo.
    Attention and recurrent layers run as the products that they are made of: their fused kernels
    have no formula on a CPU.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Any] = {}
    read: set[int] = set()

    def fake_of(tensor: Any) -> Any:
        if id(tensor) not in fakes:
            with mode:
                fake = torch.empty_strided(
                    tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cpu"
                )
            if isinstance(tensor, torch.nn.Parameter):
                fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
            fakes[id(tensor)] = fake
        return fakes[id(tensor)]

    class Reads(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            read.update(map(id, pytree.tree_leaves((args, kwargs))))
            return func(*args, **(kwargs or {}))

    held = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    faked = {name: fake_of(tensor) for name, tensor in held}
    given = pytree.tree_map_only(torch.Tensor, fake_of, (tuple(inputs), dict(keywords)))
    was = {part: part.training for part in module.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    counter = FlopCounterMode(display=False)
    try:
        module.train(training)
        torch.backends.mha.set_fastpath_enabled(False)
        with (
            warnings.catch_warnings(action="ignore"), torch.backends.mkldnn.flags(enabled=False),
            sdpa_kernel(SDPBackend.MATH), mode, counter, Reads(),
        ):  # fmt: skip
            torch.func.functional_call(module, faked, *given)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for part, training_before in was.items():
            part.training = training_before
    parameters = {id(faked[name]): faked[name] for name, _ in module.named_parameters()}
    params = sum(tensor.numel() for key, tensor in parameters.items() if key in read)
    return params, counter.get_total_flops()
