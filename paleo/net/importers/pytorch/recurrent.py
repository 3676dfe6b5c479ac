"""ATen operators of recurrent layers, and those that a net's training begins with: losses.

See `operators.py`, whose table these join.
"""

from __future__ import annotations

from typing import Any

from paleo.net.importers.base import OperatorError, by_word
from paleo.net.importers.builder.layers import make
from paleo.net.importers.pytorch.names import leaves_of
from paleo.net.importers.pytorch.operators import Call, Shape, elementwise, once, operator

__all__: list[str] = []

#: The layer of each, and how many of its outputs' size its matrices have rows for.
_KINDS = {"lstm": ("LSTM", 4), "gru": ("GRU", 3), "rnn_tanh": ("RNN", 1), "rnn_relu": ("RNN", 1)}


@operator(*_KINDS)
def _recurrent(call: Call) -> Any:
    if call.overload != "input":
        raise OperatorError("packed sequences, whose lengths are data")
    x, states, weights = call["input"], leaves_of(call["hx"]), call["params"]
    if not all(weight.is_parameter for weight in weights):
        raise OperatorError("its weights are computed")
    kind, gates = _KINDS[call.operator]
    hidden, width = weights[1].shape[0] // gates, states[0].shape[-1]
    for i, state in enumerate(states, 1):
        if not state.is_constant:
            x = _joined_by(call, f"state_{i}", x, state)
    layer = make(
        kind,
        num_outputs=hidden,
        num_layers=call["num_layers"],
        bidirectional=call["bidirectional"],
        num_biases=2 if call["has_biases"] else 0,
        projection=width if width != hidden else None,
    )
    y = call.builder.recurrent(call.name, layer, x, weights, batch_first=call["batch_first"])
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
    last = b.pad(call.part("cell"), last, [(0, 0), (0, 0), (0, width - last.shape[-1])])
    return b.concat(call.part("states"), [last] * (stacked // directions), 0)


@operator("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(call: Call) -> Any:
    b, x, state = call.builder, call["input"], call["hx"]
    h, c = state if call.operator == "lstm_cell" else (state, None)
    own = b.linear(call.part("input"), x, call["w_ih"], call.get("b_ih"))
    past = b.linear(call.part("hidden"), once(call, h), call["w_hh"], call.get("b_hh"))
    size = h.shape[-1]

    def parts(name: str, value: Any, count: int) -> list[Any]:
        names = [call.part(f"{name}_{i}") for i in range(1, count + 1)]
        return list(b.split(names, value, 1, [size] * count))

    if call.operator == "gru_cell":
        sizes = [2 * size, size]
        names = [call.part("input_gates"), call.part("input_new")]
        own_gates, own_new = b.split(names, own, 1, sizes)
        names = [call.part("hidden_gates"), call.part("hidden_new")]
        gates, past_new = b.split(names, past, 1, sizes)
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

#: The operators of each loss.
_LOSSES = by_word(
    {
        "softmax_cross_entropy": "cross_entropy_loss",
        "cross_entropy": """nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward
        kl_div binary_cross_entropy""",
        "sigmoid_cross_entropy": "binary_cross_entropy_with_logits",
        "squared_error": "mse_loss",
        "absolute_error": "l1_loss",
        "smooth_absolute_error": "smooth_l1_loss huber_loss",
        "hinge": """multi_margin_loss multilabel_margin_loss hinge_embedding_loss
            margin_ranking_loss""",
        "contrastive": "cosine_embedding_loss triplet_margin_loss",
        "other": "poisson_nll_loss soft_margin_loss",
    }
)


@operator(*_LOSSES)
def _loss(call: Call) -> Any:
    scores, labels = call.leading(2)
    # One number for each sample: PyTorch's mean of them all is for the backward pass to start at.
    return call.builder.loss(call.name, _LOSSES[call.operator], scores, labels)
