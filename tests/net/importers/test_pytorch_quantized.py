"""Quantized modules of PyTorch: what they multiply, their parameters, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch_import import Net, imported  # noqa: E402

import paleo  # noqa: E402
from paleo.core.errors import NetSpecError  # noqa: E402

nn = torch.nn
quantized: Any = pytest.importorskip("torch.ao.nn.quantized")
intrinsic: Any = pytest.importorskip("torch.ao.nn.intrinsic.quantized")

pytestmark = pytest.mark.skipif(
    torch.backends.quantized.engine == "none", reason="PyTorch has no quantized kernels here"
)

PRODUCTS = ("Convolution", "InnerProduct")


def test_a_net_that_was_converted() -> None:
    """A convolution with a rectifier, a sum, an activation and a product, between two borders."""

    def forward(m: Any, x: Any) -> Any:
        x = m.conv(m.begin(x))
        x = m.swish(m.sum.add(x, m.conv_2(x)))
        return m.end(m.fc(x.mean((2, 3))))

    def make() -> Any:
        return Net(
            forward,
            begin=quantized.Quantize(1.0, 0, torch.quint8),
            conv=intrinsic.ConvReLU2d(3, 8, 3, padding=1, stride=2),
            conv_2=quantized.Conv2d(8, 8, 3, padding=1, groups=4, bias=False),
            sum=quantized.QFunctional(),
            swish=quantized.Hardswish(1.0, 0),
            fc=quantized.Linear(8, 5),
            end=quantized.DeQuantize(),
        )

    net = imported(make, (2, 3, 12, 12), phase="test")
    layers = {layer.name: layer for layer in paleo.summarize(net, batch_size=2).layers}
    places = 6 * 6
    products = {
        name: layer.forward_flops for name, layer in layers.items() if layer.type_name in PRODUCTS
    }
    assert sorted(products.values()) == sorted(
        [2 * 2 * 27 * 8 * places, 2 * 2 * 9 * 2 * 8 * places, 2 * 2 * 8 * 5]
    )
    assert sum(layer.type_name == "Activation" for layer in layers.values()) == 2
    params = (27 * 8 + 8) + 9 * 2 * 8 + (8 * 5 + 5)
    assert paleo.summarize(net).num_params == params
    assert {spec.dtype for spec in net.layers if spec.layer.type_name in PRODUCTS} == {"int8"}
    (mean,) = [spec for spec in net.layers if "mean" in spec.name]
    assert mean.dtype == ""
    (note,) = net.notes
    assert note == ("it is quantized: 3 of its 3 products are of int8 numbers, forward")


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_quantized_as_they_are_used() -> None:
    """A product and a recurrent layer: 4 (16 + 16) 16 weights and 8 x 16 biases."""

    def make() -> Any:
        float_net = Net(lambda m, x: m.fc(m.rnn(x)[0]), rnn=nn.LSTM(16, 16, batch_first=True),
                        fc=nn.Linear(16, 4))  # fmt: skip
        return torch.ao.quantization.quantize_dynamic(float_net, {nn.Linear, nn.LSTM})

    net = imported(make, (2, 6, 16))
    params = 4 * (16 + 16) * 16 + 8 * 16 + 16 * 4 + 4
    assert paleo.summarize(net).num_params == params
    assert "2 of its 2 products are of int8 numbers" in net.notes[0]


def test_a_quantized_module_that_is_not_known() -> None:
    class Odd(nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x

    Odd.__module__ = "torch.ao.nn.quantized.modules.odd"
    with pytest.raises(NetSpecError, match="Odd is quantized in a way that is not understood"):
        imported(lambda: nn.Sequential(nn.Linear(4, 4), Odd()), (2, 4))
