"""Quantized modules of PyTorch as the modules of ordinary numbers that they stand for.

Their weights are packed for one processor's library, so that nothing can be seen through them. What
they multiply is the same, of int8 numbers.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

torch: Any = importlib.import_module("torch")
nn = torch.nn

#: Where PyTorch has its quantized modules, by the end of the package's name.
_PACKAGES = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
#: What follows the product in modules that do both, by the end of their names.
_FOLLOWING: Mapping[str, Callable[[], Any]] = {
    "LinearLeakyReLU": nn.LeakyReLU,
    "LinearTanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "ReLU1d": nn.ReLU,
    "ReLU2d": nn.ReLU,
    "ReLU3d": nn.ReLU,
}
_CONVOLVED = "in_channels out_channels kernel_size stride padding dilation groups"
_RECURRENT = "input_size hidden_size num_layers batch_first bidirectional"
#: Modules of products, by the beginning of their names, and what they are made with besides a bias.
_PRODUCTS = {
    "ConvTranspose": f"{_CONVOLVED} output_padding",
    "Conv": _CONVOLVED,
    "Linear": "in_features out_features",
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "Embedding": "num_embeddings embedding_dim",
}


def plain(module: Any) -> tuple[Any, str, frozenset[str]]:
    """Return a module without quantized parts, what is to be said of it, and which parts were.

    Without any it is the module itself. Parts are those of integers, by their names in the module.

    Raises TypeError for a quantized module that is no known one.
    """
    parts = list(module.modules())
    names = frozenset(name for name, part in module.named_modules() if _is_quantized(part))
    if not names:
        return module, "", names
    products = Counter(
        "int8" if _is_quantized(part) else "" for part in parts if _product_of(type(part))
    )
    few, every = products["int8"], products.total()
    note = f"it is quantized: {few} of its {every} products are of int8 numbers, forward"
    return _replaced(module), note if few else "", names


def _is_quantized(part: Any) -> bool:
    return type(part).__module__.startswith(_PACKAGES)


def _product_of(kind: type) -> tuple[str, str] | None:
    """Return the class of `torch.nn` whose product a class computes, and what makes one, if any."""
    for each in kind.__mro__:
        for begin, sizes in _PRODUCTS.items():
            if each.__name__.startswith(begin) and hasattr(nn, each.__name__):
                return each.__name__, sizes
    return None


def _replaced(part: Any) -> Any:
    """Return a module with ordinary ones in the place of all quantized ones."""
    if _is_quantized(part):
        return _ordinary(part).train(part.training)
    copy: Any = object.__new__(type(part))
    copy.__dict__ = dict(part.__dict__)
    copy._modules = {
        name: child if child is None else _replaced(child) for name, child in part._modules.items()
    }
    return copy


def _ordinary(part: Any) -> Any:
    """Return what a quantized module stands for."""
    kind = type(part)
    if kind.__name__ in ("Quantize", "DeQuantize"):
        return nn.Identity()
    if kind.__name__ in ("QFunctional", "FXFloatFunctional", "FloatFunctional"):
        return importlib.import_module("torch.ao.nn.quantized").FloatFunctional()
    product = _product_of(kind)
    if product:
        name, keys = product
        sizes = {key: getattr(part, key) for key in keys.split() if hasattr(part, key)}
        if not name.startswith("Embedding"):
            bias = part.bias() if callable(part.bias) else part.bias
            sizes["bias"] = bias is not None and bias is not False
        with torch.device("meta"):
            made = getattr(nn, name)(**sizes)
        following = next((f for end, f in _FOLLOWING.items() if kind.__name__.endswith(end)), None)
        return made if following is None else nn.Sequential(made, following())
    base = next((each for each in kind.__mro__ if each.__module__.startswith("torch.nn.mod")), None)
    if base in (None, nn.Module):
        raise TypeError(f"{kind.__name__} is quantized in a way that is not understood")
    copy: Any = object.__new__(base)
    copy.__dict__ = dict(part.__dict__)
    return copy
