"""Activation functions by the names that transformers has for them (transformers.activations)."""

from __future__ import annotations

from paleo.core.checks import shown
from paleo.net.importers.transformers.config import Config

#: transformers' names, and the function of a layer.
_FUNCTIONS = {
    "gelu": "gelu",
    "gelu_10": "gelu",
    "gelu_accurate": "gelu",
    "gelu_fast": "gelu",
    "gelu_new": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "quick_gelu": "quick_gelu",
    "leaky_relu": "leaky_relu",
    "linear": "affine",
    "mish": "mish",
    "relu": "relu",
    "relu2": "relu_squared",
    "relu6": "relu6",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def function(c: Config, key: str, named: str = "") -> str:
    """Return the function that a key names ("$key"), or that a text is itself.

    What a key has may be more than the name, which is given then. One that is not known is a
    mistake, or "other" where such are not to be one.
    """
    name = named or (c.text(key[1:]) if key.startswith("$") else key)
    if name in _FUNCTIONS or not name:
        return _FUNCTIONS.get(name, "silu")
    if c.unknown == "zero":
        return "other"
    hint = c.mistakes.near(name, _FUNCTIONS)
    c.wrong(key.removeprefix("$"), f"unknown function {shown(name)}{hint}")
    return "silu"
