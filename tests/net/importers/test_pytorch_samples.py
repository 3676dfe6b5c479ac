"""Modules whose samples cannot be told apart in a batch: one of them is read, and stands for all.

It does only where a batch is as much work as its samples.
"""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch_import import Net, imported  # noqa: E402

import paleo  # noqa: E402
from paleo.core.errors import NetSpecError  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("batch", [1, 4])
def test_a_view_that_mixes_samples_is_read_sample_by_sample(batch: int) -> None:
    """Windows of all samples side by side: the product is of 6 x 8 by 8 x 4 a sample."""

    def windows(m: Any, x: Any) -> Any:
        return m.fc(x.reshape(-1, 2, 8).permute(1, 0, 2).reshape(3, -1, 8))

    net = imported(lambda: Net(windows, fc=nn.Linear(8, 4)), (batch, 6, 8))
    assert paleo.build(net).batch_size == batch
    for size in (batch, 7):
        found = paleo.summarize(net, batch_size=size)
        product = next(layer for layer in found.layers if layer.type_name == "InnerProduct")
        assert product.forward_flops == 2 * 6 * 8 * 4 * size
        assert found.num_params == 8 * 4 + 4
    (note,) = net.notes
    assert note.startswith('each sample is read by itself, for layer "reshape')
    assert "mixes" in note


def test_a_softmax_over_the_batch_is_read_sample_by_sample() -> None:
    net = imported(lambda: Net(lambda m, x: m.fc(x.softmax(0)), fc=nn.Linear(8, 4)), (4, 8))
    assert paleo.summarize(net).layers[-1].forward_flops == 2 * 8 * 4 * 4
    assert "a softmax over the samples" in net.notes[0]


def test_work_that_grows_with_the_square_of_the_batch_is_not_that_of_its_samples() -> None:
    """Differences of all pairs, and a product of each pair: neither is a sample's work."""

    def differences(m: Any, x: Any) -> Any:
        y = m.fc(x)
        return (y[:, None] - y[None, :]).abs().sum(-1)

    def products(m: Any, x: Any) -> Any:
        return m.fc(x[:, None] + x[None, :])

    for function in (differences, products):
        with pytest.raises(NetSpecError, match="batch"):
            imported(lambda function=function: Net(function, fc=nn.Linear(8, 16)), (4, 8))


def test_a_part_of_the_batch_is_refused() -> None:
    """Half of a batch is less work than its samples, and half of one sample is none."""
    with pytest.raises(NetSpecError, match=r'layer "slice.*takes some samples out of the batch'):
        imported(lambda: Net(lambda m, x: m.fc(x[: len(x) // 2]), fc=nn.Linear(8, 4)), (4, 8))


def test_what_is_not_the_fault_of_the_batch_is_said() -> None:
    """Both readings fail at the decomposition; only one of them at the view."""

    def both(m: Any, x: Any) -> Any:
        y = m.fc(x.reshape(-1, 2, 8).permute(1, 0, 2).reshape(3, -1, 8))
        return torch.linalg.svd(x)[1], y

    with pytest.raises(NetSpecError) as caught:
        imported(lambda: Net(both, fc=nn.Linear(8, 4)), (4, 6, 8))
    assert [str(m).count("svd") > 0 for m in caught.value.mistakes] == [True]


def test_with_unknown_zero_mixing_is_no_unknown_operator() -> None:
    """What is not understood costs nothing; what mixes samples is counted all the same."""

    def both(m: Any, x: Any) -> Any:
        y = m.fc(x.reshape(-1, 2, 8).permute(1, 0, 2).reshape(3, -1, 8))
        return torch.linalg.svd(x)[1], y

    net = imported(lambda: Net(both, fc=nn.Linear(8, 4)), (4, 6, 8), unknown="zero")
    found = paleo.summarize(net)
    flops = {layer.type_name: layer.forward_flops for layer in found.layers}
    assert flops["InnerProduct"] == 2 * 6 * 8 * 4 * 4
    assert sum(layer.type_name == "Unknown" for layer in found.layers) == 1


def test_a_product_of_what_is_one_for_the_batch_says_how_it_is_counted() -> None:
    net = imported(lambda: Net(lambda m, x: m.fc(x.mean(0)), fc=nn.Linear(8, 4)), (4, 8))
    assert net.notes == ("fc reads what is one for the whole batch, and is counted once a sample",)
