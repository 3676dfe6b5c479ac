"""What is known of how sources measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation import cases

from paleo.measure.validate import predict
from paleo.measure.validate.protocols import protocol_of


def test_letters_are_read_as_a_source_means_them() -> None:
    # NeuSight times torch.bmm of B x M x N by B x N x K: what it calls N is summed over.
    row = {"B": 3, "M": 10, "N": 20, "K": 30}
    neusight = protocol_of("neusight_ops")
    assert neusight.read("bmm", row) == {"B": 3, "M": 10, "K": 20, "N": 30}
    assert neusight.read("linear", row) == {"B": 3, "M": 10, "K": 20, "N": 30}
    assert neusight.read("softmax", {"rows": 4, "cols": 5}) == {"rows": 4, "cols": 5}
    assert protocol_of("deepbench").read("gemm", row) == row


def test_times_of_a_source_have_the_hosts_launch_in_them(tmp_path: Path) -> None:
    # NeuSight times each call by itself: 15 us go by before its kernel starts; LLMCompass times
    # from the host, 20 us. 1,000 elements of 4 bytes come and go in 80 ns.
    row = {"network": "op:gelu", "op_shape": '{"rows": 10, "cols": 100}'}
    sources = ("neusight_ops", "llmcompass", "another")
    found = cases(tmp_path, *({**row, "source_id": source} for source in sources))
    assert predict(found, "roofline") == pytest.approx([15e-6 + 80e-9, 20e-6 + 80e-9, 80e-9])
