"""Which operators of an ONNX graph compute with few bits: with int8 or fp8 numbers.

A quantized file has operators of integers (QLinearConv, MatMulInteger), or says before an operator
what its inputs are stored as (DequantizeLinear): a device then multiplies the stored numbers. What
else is done to numbers that are stored so before or after is done as they are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from paleo.net.importers.onnx.node import Node

#: Operators that multiply, whatever their inputs are stored as.
_PLAIN = frozenset(
    {"Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul"}
)
#: Operators that multiply integers of 8 bits.
_INTEGER = frozenset({
    "ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QAttention",
    "QGemm", "QLinearConv", "QLinearMatMul",
})  # fmt: skip
#: Paleo's element types, by TensorProto's numbers of those that are stored.
_TYPES = {2: "int8", 3: "int8", 17: "fp8", 18: "fp8", 19: "fp8", 20: "fp8"}


def product_type(node: Node) -> str | None:
    """Return the element type of few bits that an operator multiplies.

    It is "" for any other product, and None for what is none.
    """
    if node.op in _INTEGER:
        return "int8"
    if node.op not in _PLAIN:
        return None
    stored = {_TYPES.get(each.stored or 0, "") for each in node.inputs[:2] if each is not None}
    return stored.pop() if len(stored) == 1 else ""


def element_type(node: Node, stored_after: Mapping[str, int]) -> str:
    """Return the element type of few bits that an operator computes in, "" if it is none.

    `stored_after` says as what number of TensorProto tensors are stored that nothing else reads.
    """
    product = product_type(node)
    if product is not None:
        return product
    if node.domain and node.op.startswith("QLinear"):
        return "int8"
    made = [each for each in node.inputs if each is not None and each.made is not None]
    stored = {_TYPES.get(each.stored or 0, "") for each in made}
    if len(stored) == 1 and all(stored):
        return stored.pop()
    return _TYPES.get(stored_after.get(node.proto.output[0], 0), "")


def note(products: Counter[str]) -> str:
    """Return what a net says of its products, "" if all of them are of ordinary numbers."""
    few = {kind: number for kind, number in products.items() if kind}
    if not few:
        return ""
    kind = max(few, key=lambda each: few[each])
    return (
        f"it is quantized: {few[kind]} of its {products.total()} products are of {kind} numbers, "
        "forward"
    )
