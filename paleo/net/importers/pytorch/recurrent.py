"""ATen operators of recurrent layers, and those that a net's training begins with: losses.

See `aten.py`, whose table these join.
"""

from __future__ import annotations

from typing import Any

from paleo.importers.base import OperatorError
from paleo.importers.pytorch.aten import Call, Shape, elementwise, once, operator

__all__: list[str] = []

_KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


@operator("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(call: Call) -> Any:
    if call.overload != "input":
        raise OperatorError("packed sequences, whose lengths are data")
    x, states, weights = call["input"], call["hx"], call["params"]
    first = states[0] if isinstance(states, list | tuple) else states
    directions = 2 if call["bidirectional"] else 1
    layers, batch_first = call["num_layers"], call["batch_first"]
    hidden = weights[1].shape[0] // {"LSTM": 4, "GRU": 3, "RNN": 1}[_KINDS[call.operator]]
    projected = first.shape[-1] if first.shape[-1] != hidden else 0
    for i, state in enumerate(states if isinstance(states, list | tuple) else [states], 1):
        if not state.is_constant:
            x = _joined_by(call, f"state_{i}", x, state)
    y = call.builder.recurrent(
        call.name,
        _KINDS[call.operator],
        x,
        list(weights),
        hidden=hidden,
        layers=layers,
        bidirectional=directions == 2,
        biases=2 if call["has_biases"] else 0,
        batch_first=batch_first,
        projection=projected,
    )
    outputs = [y]
    for i, shape in enumerate(call.shapes[1:], 1):
        assert shape is not None
        outputs.append(_last_state(call, y, shape) if i in call.used else None)
    return tuple(outputs)


def _joined_by(call: Call, name: str, x: Any, state: Any) -> Any:
    """Return a sequence that also depends on the state that its layer begins with.

    A recurrent layer has one parent; one number for each sample carries the dependency.
    """
    b = call.builder
    one = b.reduce(call.part(f"{name}/reduce"), "mean", state, [0, 2], True)
    if call["batch_first"]:
        one = b.transpose(call.part(f"{name}/transpose"), one, [1, 0, 2])
    return elementwise(call, call.part(f"{name}/sum"), "sum", [x, one])


def _last_state(call: Call, y: Any, shape: Shape) -> Any:
    """Return the state of every layer after the last step, in the shape that PyTorch gives it.

    What is built has that shape and depends on the recurrent layer. The last layer's states are
    its outputs; those of the layers below stand for themselves by the same numbers.
    """
    b, (stacked, batch, width) = call.builder, shape
    step_axis = 1 if call["batch_first"] else 0
    last = b.select(call.part("last"), y, step_axis, y.shape[step_axis] - 1)
    directions = 2 if call["bidirectional"] else 1
    if directions == 2:
        last = b.reshape(call.part("directions"), last, (batch, 2, last.shape[-1] // 2))
        last = b.transpose(call.part("transpose"), last, [1, 0, 2])
    else:
        last = b.unsqueeze(call.part("state"), last, [0])
    if last.shape[-1] != width:
        pads = [(0, 0), (0, 0), (0, width - last.shape[-1])]
        last = b.pad(call.part("cell"), last, pads)
    copies = stacked // directions
    return last if copies == 1 else b.concat(call.part("states"), [last] * copies, 0)


@operator("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(call: Call) -> Any:
    b, x, state = call.builder, call["input"], call["hx"]
    h, c = state if call.operator == "lstm_cell" else (state, None)
    own = b.linear(call.part("input"), x, call["w_ih"], call.get("b_ih"))
    past = b.linear(call.part("hidden"), once(call, h)[0], call["w_hh"], call.get("b_hh"))
    size = h.shape[-1]

    def parts(name: str, value: Any, count: int) -> list[Any]:
        names = [call.part(f"{name}_{i}") for i in range(1, count + 1)]
        return list(b.split(names, value, 1, [size] * count))

    if call.operator == "gru_cell":
        own_gates, own_new = b.split(
            [call.part("input_gates"), call.part("input_new")], own, 1, [2 * size, size]
        )
        gates, past_new = b.split(
            [call.part("hidden_gates"), call.part("hidden_new")], past, 1, [2 * size, size]
        )
        gates = elementwise(call, call.part("sum"), "sum", [own_gates, gates])
        reset, update = parts("gate", b.activation(call.part("gates"), "sigmoid", gates), 2)
        past_new = elementwise(call, call.part("reset"), "product", [reset, past_new])
        new = elementwise(call, call.part("new_sum"), "sum", [own_new, past_new])
        new = b.activation(call.part("new"), "tanh", new)
        return elementwise(call, call.part("state"), "sum", [h, update, new])
    gates = elementwise(call, call.part("sum"), "sum", [own, past])
    if call.operator != "lstm_cell":
        return b.activation(call.part("state"), call.operator.split("_")[1], gates)
    gates = b.activation(call.part("gates"), "sigmoid", gates)
    enter, forget, new, out = parts("gate", gates, 4)
    kept = elementwise(call, call.part("forget"), "product", [forget, c])
    entered = elementwise(call, call.part("enter"), "product", [enter, new])
    c = elementwise(call, call.part("cell"), "sum", [kept, entered])
    shown = b.activation(call.part("tanh"), "tanh", c)
    return elementwise(call, call.part("state"), "product", [out, shown]), c


# ---- Losses ----------------------------------------------------------------------------------

_LOSSES = {
    "cross_entropy_loss": "softmax_cross_entropy",
    "nll_loss": "cross_entropy",
    "nll_loss_nd": "cross_entropy",
    "nll_loss2d": "cross_entropy",
    "nll_loss_forward": "cross_entropy",
    "nll_loss2d_forward": "cross_entropy",
    "kl_div": "cross_entropy",
    "binary_cross_entropy": "cross_entropy",
    "binary_cross_entropy_with_logits": "sigmoid_cross_entropy",
    "mse_loss": "squared_error",
    "l1_loss": "absolute_error",
    "smooth_l1_loss": "smooth_absolute_error",
    "huber_loss": "smooth_absolute_error",
    "multi_margin_loss": "hinge",
    "multilabel_margin_loss": "hinge",
    "hinge_embedding_loss": "hinge",
    "margin_ranking_loss": "hinge",
    "cosine_embedding_loss": "contrastive",
    "triplet_margin_loss": "contrastive",
    "poisson_nll_loss": "other",
    "soft_margin_loss": "other",
}


@operator(*_LOSSES)
def _loss(call: Call) -> Any:
    scores, labels = list(call.arguments.values())[:2]
    # One number for each sample: PyTorch's mean of them all is for the backward pass to start at.
    return call.builder.loss(call.name, _LOSSES[call.operator], scores, labels)
