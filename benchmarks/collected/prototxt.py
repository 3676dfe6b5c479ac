"""What a Caffe net has and does, counted from its text alone: parameters and multiply-adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from collected.blobs import ENDS, PLAIN, RULES, CannotCountError, Counted, Layer, Shape
from collected.text_format import Fields, parsed


def count(text: str, inputs: Mapping[str, Shape], phase: str, proposals: int) -> tuple[int, int]:
    """Return the parameters of a net and its multiply-adds; `inputs` has the shapes of what is fed.

    Raises CannotCountError for a type that it does not know.
    """
    net = parsed(text)
    blobs: dict[str, Shape] = dict(inputs)
    padding: dict[str, tuple[str, int]] = {}
    counted = Counted(proposals, next(iter(inputs.values()), (1,))[0])
    for fields in net.get("layer", net.get("layers", [])):
        if "layer" in fields:
            fields = _of_the_oldest(fields, padding)
        if not fields or not _is_there(fields, net, phase):
            continue
        kind = str(fields.get("type", [""])[-1]).replace("_", "").lower()
        if kind == "python":
            kind += "." + str(fields["python_param"][-1].get("layer", [""])[-1]).lower()
        bottoms, tops = fields.get("bottom", []), fields.get("top", [])
        if not bottoms and kind != "parameter":
            continue  # it is fed, or nothing
        known = [blobs[name] for name in bottoms if name in blobs]
        if kind == "detectnettransformation":
            continue  # it is fed
        has_weights = re.search(r"'(num_output|\w*filler|blobs_lr)'", str(fields))
        is_known = kind in (*ENDS.split(), *PLAIN.split(), *RULES)
        if bottoms and bottoms[0] not in blobs:
            arranges = (*ENDS.split(), "slice", "split", "reshape", "flatten")
            if kind in arranges or not (is_known or has_weights):
                continue  # of labels; a product of what comes of them cannot be counted
            raise CannotCountError(f"{bottoms[0]}, which {kind} reads, is not counted")
        layer = Layer(kind, fields, known, len(tops), counted)
        if kind in ENDS.split():
            given: Sequence[Shape] = [(1,)] * len(tops)
        elif kind in PLAIN.split():
            given = known[:1]
        elif kind in RULES:
            given = RULES[kind](layer)
        elif has_weights:
            raise CannotCountError(f"{kind} is not counted")
        else:
            given = ()  # whoever reads it cannot be counted
        blobs.update(zip(tops, given, strict=False))
    return sum(counted.weights.values()), counted.multiply_adds


def _of_the_oldest(outer: Fields, padding: dict[str, tuple[str, int]]) -> Fields:
    """Return a layer of the oldest form in today's; {} for padding, which the next one does."""
    old = outer["layer"][-1]
    kind, bottoms = old["type"][-1], list(outer.get("bottom", []))
    if kind == "padding":
        padding[outer["top"][0]] = (bottoms[0], int(old["pad"][-1]))
        return {}
    names = {"kernelsize": "kernel_size", "biasterm": "bias_term"}
    param = {names.get(name, name): values for name, values in old.items()}
    if bottoms and bottoms[0] in padding:
        bottoms[0], pad = padding[bottoms[0]]
        param["pad"] = [pad]
    kind = {"conv": "convolution", "pool": "pooling"}.get(kind, kind)
    holder = {"innerproduct": "inner_product"}.get(kind, kind) + "_param"
    return {**outer, "type": [kind], "bottom": bottoms, holder: [param]}


def _is_there(layer: Fields, net: Fields, phase: str) -> bool:
    """Tell whether a layer is in the net in a phase, as `NetStateRule` has it."""
    state = net.get("state", [{}])[-1]
    stages = set(state.get("stage", [])) or {phase, *(["val"] if phase == "test" else [])}

    def meets(rule: Fields) -> bool:
        return (
            rule.get("phase", [phase.upper()])[-1] in (phase.upper(), int(phase == "test"))
            and stages.issuperset(rule.get("stage", []))
            and stages.isdisjoint(rule.get("not_stage", []))
        )

    if "include" in layer:
        return any(map(meets, layer["include"]))
    return not any(map(meets, layer.get("exclude", [])))
