"""cuDNN asked for its choice, with a library that stands in for it; single convolutions by it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from layer_examples import EXAMPLES, Example, node_of

from paleo.core.errors import ExecutorError, SettingError
from paleo.core.operations import LAYER_PASSES, Convolution, Pass
from paleo.core.window import Axis, axes
from paleo.costs.convolutions import cudnn as choice
from paleo.measure.executors import cudnn, find_executor
from paleo.measure.executors.cudnn import Cudnn, Kernel, algorithm_of
from paleo.measure.executors.torch.executor import PyTorch

FORWARD, TO_INPUT, TO_FILTER = LAYER_PASSES


def convolution(
    direction: Pass = FORWARD, size: int = 56, window: int = 3, stride: int = 1, **more: Any
) -> Convolution:
    """Return a convolution of 8 images of 64 channels by 64 filters, padded as SAME."""
    axis = Axis(size, window, stride, "SAME")
    return Convolution(direction, 8, (axis, axis), 64, 64, 4, **more)


# ---- A library that stands in ------------------------------------------------------------------


class Function:
    """A function of the library; like one of ctypes, it has a type of its result."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.restype: Any = ctypes.c_int

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def plain(argument: Any) -> Any:
    """Return what a function of C gets: a list for an array, a number for a pointer."""
    if isinstance(argument, ctypes.Array):
        return list(argument)
    return argument.value if isinstance(argument, ctypes.c_void_p) else argument


class Fake:
    """Remembers what each descriptor was set to, and answers with results that it is given."""

    def __init__(
        self, *results: tuple[int, int, int], created: int = 0, asked: int = 0, version: int = 92800
    ) -> None:
        self.results, self.created, self.asked, self.version = results, created, asked, version
        self.functions: dict[str, Function] = {}
        self.set: dict[str, list[Any]] = {}
        self.alive: dict[int, str] = {}
        self.number = 0

    def __getattr__(self, name: str) -> Function:
        if name not in self.functions:
            self.functions[name] = Function(lambda *each: self.call(name, *each))
        return self.functions[name]

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "cudnnGetVersion":
            return self.version
        if name == "cudnnGetErrorString":
            return {1001: b"CUDNN_STATUS_NOT_INITIALIZED", 3000: b"CUDNN_STATUS_NOT_SUPPORTED"}.get(
                arguments[0], b"CUDNN_STATUS_BAD_PARAM"
            )
        if name == "cudnnCreate":
            return self.created
        if name.startswith("cudnnCreate"):
            self.number += 1
            arguments[0]._obj.value = self.number
            self.alive[self.number] = name.removeprefix("cudnnCreate").removesuffix("Descriptor")
        elif name.startswith("cudnnDestroy"):
            del self.alive[arguments[0].value]
        elif name.startswith("cudnnSet"):
            of, *values = map(plain, arguments)
            key = f"{self.alive[of]}{of}" if self.alive[of] == "Tensor" else self.alive[of]
            self.set.setdefault(key, []).append((name, *values))
        elif name.startswith("cudnnGetConvolution"):
            *_, count, number, results = arguments
            self.set["asked"] = [name, *map(plain, arguments[1:-3]), count]
            number._obj.value = len(self.results)
            for place, (algorithm, status, memory) in zip(results, self.results, strict=False):
                place.algorithm, place.status, place.memory = algorithm, status, memory
            return self.asked
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fake], Fake]]:
    """Return what puts a library in the place of cuDNN."""
    choice._opened.cache_clear()

    def put(fake: Fake) -> Fake:
        monkeypatch.setattr(choice, "find_library", lambda: fake)
        choice._opened.cache_clear()
        return fake

    yield put
    choice._opened.cache_clear()


Put = Callable[[Fake], Fake]


def test_results_have_the_layout_of_the_header() -> None:
    # int, int, float, 4 bytes to the next multiple of 8, size_t, int, int, int[3], 4 bytes more.
    result = choice._Result
    assert ctypes.sizeof(result) == 48
    assert [getattr(result, name).offset for name, _ in result._fields_] == [
        0,
        4,
        8,
        16,
        24,
        28,
        32,
    ]


def test_tensors_filters_and_convolution_are_described(library: Put) -> None:
    fake = library(Fake((1, 0, 0)))
    assert choice.ask(convolution(), "fp32", None) == ("precomputed_gemm",)
    # N x C x H x W without gaps: 64 56 56, 56 56, 56 and 1 elements apart.
    strides = [200704, 3136, 56, 1]
    tensor = ("cudnnSetTensorNdDescriptor", 0, 4, [8, 64, 56, 56], strides)
    assert fake.set["Tensor1"] == [tensor]
    assert fake.set["Tensor2"] == [tensor]
    assert fake.set["Filter"] == [("cudnnSetFilterNdDescriptor", 0, 0, 4, [64, 64, 3, 3])]
    # Two dimensions, pads, strides, dilations, cross-correlation, sums in fp32; FMA units.
    assert fake.set["Convolution"] == [
        ("cudnnSetConvolutionNdDescriptor", 2, [1, 1], [1, 1], [1, 1], 1, 0),
        ("cudnnSetConvolutionGroupCount", 1),
        ("cudnnSetConvolutionMathType", 3),
    ]
    # Image 1, filter 3, convolution 4, output 2, and up to 8 results.
    assert fake.set["asked"] == ["cudnnGetConvolutionForwardAlgorithm_v7", 1, 3, 4, 2, 8]
    assert fake.alive == {}  # all descriptors are gone


@pytest.mark.parametrize(
    ("direction", "asked"),
    [
        (TO_INPUT, ["cudnnGetConvolutionBackwardDataAlgorithm_v7", 3, 2, 4, 1, 6]),
        (TO_FILTER, ["cudnnGetConvolutionBackwardFilterAlgorithm_v7", 1, 2, 4, 3, 7]),
    ],
)
def test_gradients_ask_with_what_they_read_first(
    direction: Pass, asked: list[Any], library: Put
) -> None:
    fake = library(Fake())
    assert choice.ask(convolution(direction), "fp32", None) == ()
    assert fake.set["asked"] == asked


def test_what_is_padded_on_one_side_more_belongs_to_the_input(library: Put) -> None:
    fake = library(Fake())
    # SAME over 224 in steps of 2: (112 - 1) 2 + 3 - 224 = 1, behind.
    choice.ask(convolution(size=224, stride=2), "fp32", None)
    assert fake.set["Tensor1"][0][3] == [8, 64, 225, 225]
    assert fake.set["Tensor2"][0][3] == [8, 64, 112, 112]
    assert fake.set["Convolution"][0][2] == [0, 0]


def test_a_sequence_is_an_image_of_one_row_and_a_volume_has_five_dimensions(library: Put) -> None:
    fake = library(Fake())
    axis = Axis(100, 5, 2, (2, 2), 3)
    # Of 100 + 4 elements, windows of 13 in steps of 2: 91 / 2 + 1 = 46.
    choice.ask(Convolution(FORWARD, 4, (axis,), 6, 9, 4, groups=3), "fp32", None)
    assert fake.set["Tensor1"][0][3] == [4, 6, 1, 100]
    assert fake.set["Tensor2"][0][3] == [4, 9, 1, 46]
    assert fake.set["Filter"][0][4] == [9, 2, 1, 5]
    of_one, groups, _ = fake.set["Convolution"]
    assert of_one[1:5] == (2, [0, 2], [1, 2], [1, 3])
    assert groups[1] == 3
    choice.ask(Convolution(FORWARD, 4, (axis,) * 3, 6, 9, 4), "fp32", None)
    assert any(each[0][2] == 5 for name, each in fake.set.items() if name.startswith("Tensor"))


@pytest.mark.parametrize(
    ("dtype", "kind", "summed", "math"),
    [("fp64", 1, 1, 0), ("tf32", 0, 0, 0), ("fp16", 2, 0, 1), ("bf16", 9, 0, 1)],
)
def test_each_element_type_has_its_sums_and_units(
    dtype: str, kind: int, summed: int, math: int, library: Put
) -> None:
    fake = library(Fake())
    choice.ask(convolution(), dtype, None)
    assert fake.set["Tensor1"][0][1] == fake.set["Filter"][0][1] == kind
    described, _, units = fake.set["Convolution"]
    assert (described[6], units[1]) == (summed, math)


def test_before_cudnn_8_the_default_units_are_as_strict(library: Put) -> None:
    fake = library(Fake(version=7605))
    choice.ask(convolution(), "fp32", None)
    assert fake.set["Convolution"][2] == ("cudnnSetConvolutionMathType", 0)


ALL = {
    FORWARD: (
        "implicit_gemm", "precomputed_gemm", "explicit_gemm", "direct", "fft", "tiled_fft",
        "winograd_2x2", "winograd_4x4",
    ),
    # Of the first two, neither is for strides here.
    TO_INPUT: (
        "scattered_gemm", "precomputed_gemm", "fft", "tiled_fft", "winograd_2x2", "winograd_4x4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("direction", list(ALL))
def test_algorithms_have_their_names_in_cudnns_order(direction: Pass, library: Put) -> None:
    names = ALL[direction]
    library(Fake(*((number, 0, 0) for number in range(len(names)))))
    assert choice.ask(convolution(direction), "fp32", None) == names
    backwards = reversed(range(len(names)))
    library(Fake(*((number, 0, 0) for number in backwards)))
    assert choice.ask(convolution(direction), "fp32", None) == names[::-1]


def test_the_filters_gradient_has_two_products_without_workspace(library: Put) -> None:
    library(Fake(*((number, 0, 0) for number in (3, 0, 1, 5, 4, 6, 2))))
    # 0 and 1 are one here. Winograd (4) was never built, and F(2x2) has no gradient of the filter.
    assert choice.ask(convolution(TO_FILTER), "fp32", None) == (
        "precomputed_gemm", "implicit_gemm", "winograd_4x4", "tiled_fft", "fft",
    )  # fmt: skip


def test_shapes_tell_apart_what_has_one_name_in_cudnn(library: Put) -> None:
    library(Fake((7, 0, 0)))
    assert choice.ask(convolution(window=5), "fp32", None) == ("winograd_5x5",)
    assert choice.ask(convolution(window=7), "fp32", None) == ()
    library(Fake((1, 0, 0)))
    assert choice.ask(convolution(TO_INPUT, stride=2), "fp32", None) == ("phased_gemm",)


def test_what_fails_or_needs_too_much_memory_is_left_out(library: Put) -> None:
    library(Fake((7, 3000, 0), (6, 0, 1000), (1, 0, 100), (0, 0, 0), (12, 0, 0), (-1, 0, 0)))
    operation = convolution()
    assert choice.ask(operation, "fp32", None) == (
        "winograd_2x2", "precomputed_gemm", "implicit_gemm"
    )  # fmt: skip
    assert choice.ask(operation, "fp32", 100) == ("precomputed_gemm", "implicit_gemm")
    assert choice.ask(operation, "fp32", 0) == ("implicit_gemm",)


def test_what_cudnn_does_not_support_has_no_algorithm(library: Put) -> None:
    fake = library(Fake(asked=3000))
    assert choice.ask(convolution(), "fp32", None) == ()
    assert fake.alive == {}
    # More than an int of C holds: 2**31 images of 64 channels are 2**37 elements.
    far = Convolution(FORWARD, 2**31, convolution().axes, 64, 64, 4)
    assert choice.ask(far, "fp32", None) == ()


def test_what_cudnn_refuses_otherwise_is_one_line(library: Put) -> None:
    library(Fake(asked=2000))
    with pytest.raises(SettingError) as caught:
        choice.ask(convolution(), "fp32", None)
    assert str(caught.value) == (
        "conv_library: cuDNN does not choose: GetConvolutionForwardAlgorithm_v7: "
        "CUDNN_STATUS_BAD_PARAM"
    )


def test_without_a_gpu_there_is_one_line(library: Put) -> None:
    library(Fake(created=1001))
    with pytest.raises(SettingError) as caught:
        choice.ask(convolution(), "fp32", None)
    assert str(caught.value) == (
        "conv_library: cuDNN finds no GPU to choose for: CUDNN_STATUS_NOT_INITIALIZED"
    )


def test_without_a_library_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    choice._opened.cache_clear()
    monkeypatch.setattr(choice, "_places", lambda: iter(["no_such_folder/libcudnn.so.9"]))
    with pytest.raises(SettingError, match=r"^conv_library: there is no cuDNN library on this"):
        choice.ask(convolution(), "fp32", None)


def test_an_element_type_without_heuristics_is_one_line(library: Put) -> None:
    library(Fake())
    with pytest.raises(SettingError, match="fp64, fp32, tf32, fp16, bf16 only, not for fp8"):
        choice.ask(convolution(), "fp8", None)


def test_the_library_is_looked_for_where_packages_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (
        ("nvidia/cudnn/lib", "libcudnn.so.9"),
        ("nvidia/cudnn/lib", "libcudnn_ops.so.9"),
        ("nvidia/cudnn/bin", "cudnn64_9.dll"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    found = list(choice._places())
    assert str(tmp_path / "nvidia/cudnn/lib/libcudnn.so.9") in found
    assert str(tmp_path / "nvidia/cudnn/bin/cudnn64_9.dll") in found
    assert not any("cudnn_ops" in each for each in found)
    assert "libcudnn.so.9" in found  # the system's
    for name in [each for each in sys.modules if each.split(".")[0] == "nvidia"]:
        del sys.modules[name]


def test_a_real_library_gives_outputs_of_the_sizes_that_paleo_gives() -> None:
    try:
        library = choice.find_library()
    except SettingError:
        pytest.skip("needs a cuDNN library")
    opened = object.__new__(choice._Opened)  # without a handle, for which there has to be a GPU
    opened.library, opened.version = library, 92800
    library.cudnnGetErrorString.restype = ctypes.c_char_p
    paddings = ("VALID", "SAME", ((1, 1),), ((3, 1),), ((0, 2),))
    for size, window, stride, padding, step in product(
        (7, 8, 13, 56, 224), (1, 2, 3, 7, 11), (1, 2, 4), paddings, (1, 2)
    ):
        axis = axes((size,), (window,), (stride,), padding, (step,))[0]
        for rank in (1, 2, 3) if axis.output > 0 else ():
            operation = Convolution(FORWARD, 2, (axis,) * rank, 6, 9, 4, groups=3)
            dims = max(rank, 2) + 2
            output = (ctypes.c_int * dims)()
            with ExitStack() as stack:
                image, filters, own, _ = choice._descriptors(opened, operation, "fp32", stack)
                status = library.cudnnGetConvolutionNdForwardOutputDim(
                    own, image, filters, dims, output
                )
            assert status == 0
            assert list(output) == [2, 9, *[1] * (rank == 1), *[axis.output] * rank]


# ---- The executor: names of kernels ------------------------------------------------------------

#: Kernels as the profiler names them, those of cuDNN 9.28, and what they tell.
NAMES = [
    ("void implicit_convolve_sgemm<float, float, 128, 6, 7>(int, int)", FORWARD, "implicit_gemm"),
    ("void precomputed_convolve_sgemm<float, 128, 5>(int)", FORWARD, "precomputed_gemm"),
    ("void explicit_convolve_sgemm<float, int, 512, 6>(int)", FORWARD, "explicit_gemm"),
    ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3",
     FORWARD, "implicit_gemm"),
    ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
     FORWARD, "precomputed_gemm"),
    ("sm80_xmma_wgrad_indexed_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", TO_FILTER,
     "precomputed_gemm"),
    ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", FORWARD, "winograd_2x2"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(...)", FORWARD,
     "winograd_4x4"),
    ("void cudnn::winograd_nonfused::winogradWgradOutput4x4<float, float>(...)", TO_FILTER,
     "winograd_4x4"),
    ("void cudnn::winograd_nonfused::winogradForwardOutput9x9_5x5<float, float>(...)", FORWARD,
     "winograd_5x5"),
    ("void fft2d_r2c_32x32<float, false, 1u, false>(...)", FORWARD, "tiled_fft"),
    ("void fft1d_r2c_256<float, float, float2, false, false>(...)", FORWARD, "fft"),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true>(...)", FORWARD, "direct"),
    ("sm80_xmma_depthwise_convolution_dgrad_tiling_f16f16_f16f32", TO_INPUT, "direct"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>()",
     FORWARD, "direct"),
    ("void cudnn::detail::dgrad_engine<float, 128, 6, 7>(...)", TO_INPUT, "scattered_gemm"),
    ("void cudnn::detail::dgrad2d_alg1_1<float, 0, 6>(...)", TO_INPUT, "precomputed_gemm"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128>(...)", TO_FILTER, "implicit_gemm"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_h16816dgrad_optimized_256x128_32x4>(...)",
     TO_INPUT, "implicit_gemm"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "direction", "algorithm"), NAMES, ids=lambda each: str(each)[:60])
def test_a_kernels_name_tells_the_algorithm(name: str, direction: Pass, algorithm: str) -> None:
    kernels = [Kernel("void nchwToNhwcKernel<float>(int)", 2.0), Kernel(name, 1.0)]
    assert algorithm_of(kernels, convolution(direction)) == algorithm


def test_transforms_tell_more_than_the_products_between_them() -> None:
    kernels = [
        Kernel("void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>()", 0.1),
        Kernel("ampere_sgemm_128x64_nn", 5.0),
        Kernel("void cudnn::winograd_nonfused::winogradForwardOutput4x4<float, float>()", 0.2),
    ]
    assert algorithm_of(kernels, convolution()) == "winograd_4x4"
    kernels = [Kernel("void cudnn::im2col4d_kernel<float, int>()", 0.1), Kernel("sgemm", 5.0)]
    assert algorithm_of(kernels, convolution()) == "explicit_gemm"


def test_shapes_tell_apart_what_one_kernel_is_used_for() -> None:
    tile = [Kernel("void fft2d_c2r_32x32<float, false>()", 1.0)]
    # With its padding of 2 an image of 30 is one tile, and larger ones are several.
    assert algorithm_of(tile, convolution(size=30)) == "fft"
    assert algorithm_of(tile, convolution(size=31)) == "tiled_fft"
    product_ = [Kernel("ampere_sgemm_128x64_nn", 1.0)]
    assert algorithm_of(product_, convolution(window=1)) == "gemm_1x1"
    assert algorithm_of(product_, convolution()) == "ampere_sgemm_128x64_nn"
    strided = [Kernel("cutlass3x_sm90_tensorop_s64x128_strided_dgrad_f16", 1.0)]
    assert algorithm_of(strided, convolution(TO_INPUT, stride=2)) == "phased_gemm"
    # A window smaller than the stride leaves places that nothing reaches.
    assert algorithm_of(strided, convolution(TO_INPUT, window=1, stride=2)) == "implicit_gemm"


def test_a_kernel_that_tells_nothing_is_named_itself() -> None:
    kernels = [
        Kernel("void nchwToNhwcKernel<float, float>(int)", 1.0),
        Kernel("void ns::first_layer_kernel<float, 3>(Params)", 2.0),
    ]
    assert algorithm_of(kernels, convolution()) == "ns::first_layer_kernel"
    assert algorithm_of([], convolution()) == ""


def test_the_profilers_averages_become_kernels() -> None:
    def event(key: str, device: str, microseconds: float) -> Any:
        return SimpleNamespace(
            key=key,
            device_type=SimpleNamespace(name=device),
            self_device_time_total=microseconds,
        )

    events = [
        event("aten::convolution", "CPU", 0.0),
        event("Memset (Device)", "CUDA", 9.0),
        event("Memcpy DtoD (Device -> Device)", "CUDA", 9.0),
        event("sm80_xmma_fprop", "CUDA", 30.0),
    ]
    assert cudnn._of_events(events) == [Kernel("sm80_xmma_fprop", 30e-6)]


# ---- The executor ------------------------------------------------------------------------------


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    with pytest.raises(SettingError) as caught:
        find_executor("cudnn")
    assert str(caught.value) == (
        'executor cudnn needs PyTorch; install it with: pip install "paleo[torch]"'
    )


@pytest.mark.parametrize(
    ("place", "has_gpu", "hip", "has_cudnn", "message"),
    [
        ("cpu", True, None, True, "executor cudnn runs on cuda, not on cpu"),
        ("mps", True, None, True, "executor cudnn runs on cuda, not on mps"),
        (None, False, None, True, "executor cudnn: PyTorch finds no CUDA device"),
        ("cuda", False, None, True, "executor cudnn: PyTorch finds no CUDA device"),
        (None, True, None, False, "executor cudnn: this PyTorch has no cuDNN"),
        (None, True, "6.4", True, "executor cudnn: this PyTorch has no cuDNN"),
    ],
)
def test_without_a_gpu_of_nvidias_there_is_one_line(
    place: str | None, has_gpu: bool, hip: str | None, has_cudnn: bool, message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: has_gpu),
        version=SimpleNamespace(hip=hip),
        backends=SimpleNamespace(cudnn=SimpleNamespace(is_available=lambda: has_cudnn)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(SettingError) as caught:
        find_executor("cudnn", place)
    assert str(caught.value) == message


@pytest.fixture
def on_cpu() -> Any:
    """Return the executor as it is on a GPU, but on the CPU."""
    pytest.importorskip("torch", reason="needs PyTorch")
    made = object.__new__(Cudnn)
    PyTorch.__init__(made, "cpu", "fp32")
    return made


CONVOLUTIONS = [each for each in EXAMPLES if each.kind in ("Convolution", "Deconvolution")]


@pytest.mark.parametrize("example", CONVOLUTIONS, ids=str)
def test_the_three_passes_belong_together(
    example: Example, on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, node = node_of(example)
    (operation,) = (
        each for each in graph.operations(node, FORWARD) if isinstance(each, Convolution)
    )
    tensors: list[Any] = []
    original = on_cpu._tensor

    def tensor(*shape: int) -> Any:
        tensors.append(original(*shape))
        return tensors[-1]

    monkeypatch.setattr(on_cpu, "_tensor", tensor)
    runs = on_cpu._runs(operation)
    large, small, filters = tensors
    image, back = (small, large) if operation.transposed else (large, small)
    output = runs[FORWARD]()
    to_input, _, _ = runs[TO_INPUT]()
    _, to_filter, _ = runs[TO_FILTER]()
    # A convolution is linear in input x and filter w: <y(x, w), g> = <x, dx(g, w)> = <w, dw(x, g)>,
    # where g is the gradient that comes back.
    wanted = float((output * back).sum())
    assert float((image * to_input).sum()) == pytest.approx(wanted, rel=1e-3)
    assert float((filters * to_filter).sum()) == pytest.approx(wanted, rel=1e-3)
    n, *sizes, k = node.output
    found_n, found_k, *found = output.shape
    assert (found_n, found_k) == (n, k)
    # What a padding has more on one side is part of the image.
    assert all(0 <= own - size <= 1 for own, size in zip(found, sizes, strict=True))


def test_a_layer_has_its_passes_and_their_algorithms(
    on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["void implicit_convolve_sgemm<float>()", "", "void x<int>()"])

    def kernels(torch: Any, run: Callable[[], object]) -> list[Kernel]:
        run()
        name = next(names)
        return [Kernel(name, 1.0)] if name else []

    monkeypatch.setattr(cudnn, "_kernels", kernels)
    graph, node = node_of(CONVOLUTIONS[1])  # with normalization and activation
    run = on_cpu.layer(graph, node, (True,))
    assert set(run.passes) == set(LAYER_PASSES)
    assert run.update is None
    assert run.algorithms == {FORWARD: "implicit_gemm", TO_FILTER: "x"}
    for call in run.passes.values():
        call()
    names = iter(["a", "b"])
    assert set(on_cpu.layer(graph, node, (False,)).passes) == {FORWARD, TO_FILTER}


def test_what_is_no_convolution_is_not_run(on_cpu: Any) -> None:
    example = next(each for each in EXAMPLES if each.kind == "InnerProduct")
    graph, node = node_of(example)
    with pytest.raises(ExecutorError) as caught:
        on_cpu.layer(graph, node, (True,))
    assert str(caught.value) == 'layer "x": executor cudnn runs convolutions only'
    with pytest.raises(ExecutorError, match=r"^executor cudnn runs single convolutions, no whole"):
        on_cpu.net(graph)


def test_what_pytorch_refuses_names_the_layer(on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(torch: Any, run: Callable[[], object]) -> list[Kernel]:
        raise RuntimeError("CUDNN_STATUS_BAD_PARAM\nmore")

    monkeypatch.setattr(cudnn, "_kernels", fail)
    graph, node = node_of(CONVOLUTIONS[0])
    with pytest.raises(ExecutorError, match=r'^layer "x": .*CUDNN_STATUS_BAD_PARAM$'):
        on_cpu.layer(graph, node, (True,))
