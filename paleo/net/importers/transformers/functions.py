"""Activation functions by the names that transformers has for them (transformers.activations)."""

from __future__ import annotations

from paleo.core.checks import shown
from paleo.net.importers.transformers.config import Config

#: GELU that a model's own code composes: NewGELUActivation and the like.
OWN_GELU = "gelu_new"
#: transformers' names, and the function of a layer.
_FUNCTIONS = {
    "gelu": "gelu",
    "gelu_10": "gelu",
    "gelu_accurate": OWN_GELU,
    "gelu_fast": OWN_GELU,
    "gelu_new": OWN_GELU,
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


def plain(name: str) -> str:
    """Return the function of the format, whoever's code it is."""
    return "gelu" if name == OWN_GELU else name
