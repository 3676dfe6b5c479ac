"""Programs that serve: what the limits, the cache and the kernels of each are, by hand."""

from __future__ import annotations

import pytest

from paleo.cluster import find_device
from paleo.cluster.servers import RESERVES, SERVERS, find_server
from paleo.core.errors import PaleoError
from paleo.core.tensor import DTYPES
from paleo.core.units import GIB, MIB
from paleo.costs.tiled.backends import BACKENDS
from paleo.net.layers.matrices import STORED

#: Formats that llama.cpp alone has.
_GGUF = {"q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"}


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_is_described(name: str) -> None:
    server = SERVERS[name]
    assert server.name == name
    assert "" not in (server.source, server.version, server.title)
    assert not server.backend or server.backend in BACKENDS
    assert server.reserve in RESERVES
    assert (server.answers > 0) == (server.reserve == "part")
    assert 0 < server.memory_share <= 1
    memories = [limits.memory for limits in server.limits]
    assert memories[0] == 0
    assert memories == sorted(set(memories))
    known = {*DTYPES, *STORED, "fp8_block", "fp8_dynamic"} | (
        _GGUF if name == "llama_cpp" else set()
    )
    assert known.issuperset(server.weights)
    assert known.issuperset(server.caches)
    assert server.all_reduce_of("0") in ("", "barriers", "pushed")


@pytest.mark.parametrize(
    ("name", "device", "tokens", "requests"),
    [
        ("vllm", "H100_SXM", 8192, 1024),
        ("vllm", "A100_SXM_80GB", 2048, 256),  # of 80 GiB, but left out by name
        ("vllm", "L4", 2048, 256),
        ("vllm_2023", "A100_SXM_80GB", 4096, 256),
        ("sglang", "T4", 2048, 4096),
        ("sglang", "L40S", 4096, 4096),
        ("sglang", "H200_SXM", 8192, 4096),
        ("sglang", "B200_SXM", 16384, 4096),
        ("trtllm", "B200_SXM", 8192, 2048),
        ("tgi", "H100_SXM", 4096, 128),
    ],
)
def test_limits_are_those_of_the_memory(name: str, device: str, tokens: int, requests: int) -> None:
    limits = SERVERS[name].limits_on(find_device(device))
    assert (limits.tokens, limits.requests) == (tokens, requests)


def test_cache_has_what_weights_leave() -> None:
    h100 = find_device("H100_SXM")
    weights = 16 * GIB
    # 0.9 of 80 GiB, less 16.
    assert SERVERS["vllm"].cache_bytes(h100, weights) == pytest.approx(56 * GIB)
    # 0.9 of the 64 GiB that are left.
    assert SERVERS["trtllm"].cache_bytes(h100, weights) == pytest.approx(57.6 * GIB)
    # 512 + 1.5 * 8192 + 2 * 256 + 1024 / 8 MiB are kept.
    assert SERVERS["sglang"].cache_bytes(h100, weights) == 64 * GIB - 13440 * MIB


def test_what_is_left_free_is_nobodys() -> None:
    a100 = find_device("A100_SXM_80GB")
    assert SERVERS["vllm_2023"].left_free(a100) == pytest.approx(8 * GIB)  # a tenth of 80


def test_all_reduces_are_those_of_the_version() -> None:
    sglang = SERVERS["sglang"]
    assert sglang.all_reduce_of() == "barriers"
    assert sglang.all_reduce_of("0.5.10.post1") == "barriers"
    assert sglang.all_reduce_of("v0.5.12rc0") == "pushed"
    assert SERVERS["trtllm"].all_reduce_of("1.2.0rc4") == "pushed"
    assert sglang.all_reduce_of("nightly-dev") == "barriers"
    assert SERVERS["vllm_2023"].all_reduce_of() == ""


def test_older_versions_wait_for_their_host() -> None:
    vllm = SERVERS["vllm"]
    assert vllm.of_version("0.14.0rc1") is vllm
    assert vllm.of_version("") is vllm
    older = vllm.of_version("v0.13.2")
    assert (older.step_host, older.overlaps) == (vllm.alone_host, False)
    assert older.step_host > vllm.step_host
    assert older.request_host == vllm.alone_request
    # TensorRT-LLM has always overlapped, as far as is known.
    assert SERVERS["trtllm"].of_version("0.9") is SERVERS["trtllm"]


def test_formats_that_a_server_lacks_are_said() -> None:
    SERVERS["vllm"].check_formats("nvfp4", "fp8")
    with pytest.raises(PaleoError, match="vLLM has no weights in q4_k_m"):
        SERVERS["vllm"].check_formats("q4_k_m", "fp8")
    with pytest.raises(PaleoError, match=r"llama\.cpp has no cache in fp8"):
        SERVERS["llama_cpp"].check_formats("q4_k_m", "fp8")


def test_servers_are_found_by_name() -> None:
    assert find_server("vllm") is SERVERS["vllm"]
    assert find_server(SERVERS["tgi"]).name == "tgi"
    with pytest.raises(PaleoError, match="did you mean 'sglang'"):
        find_server("sglamg")
    with pytest.raises(PaleoError, match="server: expected a server"):
        find_server(3)
