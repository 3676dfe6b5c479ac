"""What texts of measured rows say of libraries and frameworks."""

from __future__ import annotations

import pytest

from paleo.measure.validate.spellings import library_of, pytorch_of


@pytest.mark.parametrize(
    ("texts", "library", "pytorch"),
    [
        (("NGC pytorch-21.03",), 8.1, (1, 5)),
        (("", "MXNet NVIDIA Release 22.04"), 8.4, (1, 5)),
        (("NGC MXNet 23.09 , NGC PyTorch 23.09",), 8.9, (2, 0)),
        (("NGC pytorch-20.03",), 7.6, (1, 5)),
        (("NGC pytorch-18.01",), None, (1, 4)),
        (("cudnn 8.5 .0", "NGC pytorch-22.09"), 8.5, (1, 5)),
        (("PyTorch p2.1.0",), 8.9, (2, 1)),
        # Packages of PyTorch since 1.12 bring a cuDNN that is known; a container's comes first.
        (("PyTorch 1.12",), 8.3, (1, 12)),
        (("PyTorch 2.4 torch.compile",), 9.1, (2, 4)),
        (("PyTorch 1.9",), None, (1, 9)),
        (("PyTorch 2.1", "NGC pytorch-22.09"), 8.6, (1, 5)),
        (("PyTorch 0.3.0",), None, (0, 3)),
        (("PyTorch",), None, None),
        (("",), None, None),
    ],
)
def test_what_containers_hold(
    texts: tuple[str, ...], library: float | None, pytorch: tuple[int, int] | None
) -> None:
    assert (library_of(*texts), pytorch_of(*texts)) == (library, pytorch)
