"""Nets of configurations beside the models that transformers makes of them, on no device.

Parameters are equal to the last one. FLOPs are those that PyTorch counts of a forward pass.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from model_configurations import PUBLISHED, SMALL

import paleo
from paleo.core.operations import Pass
from paleo.net.importers.base import ImportOptions
from paleo.net.importers.transformers import net_text

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
transformers.logging.set_verbosity_error()

#: transformers computes all experts of Llama 4, scans as products, and a delta rule in chunks of 64
#: positions however few there are; each counts its own.
COUNTED_OTHERWISE = (
    "llama4", "llama4_text", "gemma3", "mamba", "mamba2", "jamba", "qwen3_5_text",
    "qwen3_5_moe_text",
)  # fmt: skip
POSITIONS = 16


def net_of(config: dict[str, Any]) -> paleo.NetSpec:
    return paleo.loads(net_text(json.dumps(config).encode(), "config.json", ImportOptions()))


def model_of(config: dict[str, Any], device: str, **more: Any) -> Any:
    """Return the model of the architecture that is named, else the one that predicts words."""
    said = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **said)
    for key, value in more.items():
        setattr(made, f"_{key}", value)
    named = config.get("architectures")
    with torch.device(device):
        if named:
            return getattr(transformers, named[0])(made)
        return transformers.AutoModelForCausalLM.from_config(made, **more)


#: Those that are no model of transformers: hyper-parameters, heads of a size of their own in an
#: architecture that has none there, and a name of its own for DeepSeek-V3's architecture.
OTHERS = ("megatron", "turing", "palm", "gpt3_13b", "kimi_k2")
CONFIGURATIONS = SMALL | {
    name: model["config"] for name, model in PUBLISHED.items() if not name.startswith(OTHERS)
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parameters_are_those_of_transformers(name: str) -> None:
    config = CONFIGURATIONS[name]
    model = model_of(config, "meta")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert paleo.build(net_of(config)).num_params == parameters


def inputs_of(net: paleo.NetSpec) -> dict[str, Any]:
    """Return what a model takes by the names of the net's inputs; ours has channels last."""
    found = {}
    for spec in net.layers:
        if spec.layer.is_input:
            shape = spec.layer.infer_shape(())
            if spec.name.endswith("_ids"):
                found[spec.name] = torch.zeros(shape, dtype=torch.long)
            elif len(shape) == 4:
                found[spec.name] = torch.zeros(shape).movedim(-1, 1)
            else:
                found[spec.name] = torch.zeros(shape).movedim(-1, -2)
    return found


@pytest.mark.parametrize(
    "name", [name for name in SMALL if name.split()[0] not in COUNTED_OTHERWISE]
)
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config, net = SMALL[name], net_of(SMALL[name])
    if "seq" in net.dims:
        net = net.with_dims(seq=POSITIONS)
    # Attention as products, which it counts on a processor, and experts one by one.
    model = model_of(config, "cpu", attn_implementation="eager", experts_implementation="eager")
    with FlopCounterMode(display=False) as counter:
        model.eval()(**inputs_of(net))
    graph = paleo.build(net)
    flops = sum(op.flops for node in graph.nodes for op in graph.operations(node, Pass.FORWARD))
    assert flops == pytest.approx(counter.get_total_flops(), rel=0.01)
