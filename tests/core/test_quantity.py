"""What arrays cost beside computing with them."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

pytest.importorskip("numpy")

#: Prints by how many bytes the heap shrinks when 4 MiB of arrays are no longer used.
PROGRAM = """
import ctypes
from paleo.core.quantity import np
end = ctypes.CDLL(None).sbrk
end.argtypes, end.restype = [ctypes.c_ssize_t], ctypes.c_void_p
arrays = [np.ones(8192) for _ in range(64)]
most = end(0)
del arrays
print(most - end(0))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"),
    reason="needs the C library of GNU",
)
def test_memory_of_arrays_is_not_given_back_and_got_anew() -> None:
    asked = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert int(said) == 0
