"""PyTorch modules as nets: what their layers count and are called, and what cannot be read."""

from __future__ import annotations

import math
import resource
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import torch_nets  # noqa: E402
from products import counts  # noqa: E402
from torch_import import Net  # noqa: E402
from torch_nets import count  # noqa: E402
from zoo import DEEPER, ZOO  # noqa: E402

import paleo  # noqa: E402
from paleo.core.errors import NetSpecError  # noqa: E402
from paleo.net.importers import ImportOptions  # noqa: E402
from paleo.net.importers.pytorch import read  # noqa: E402
from paleo.studies.summary import LayerSummary  # noqa: E402

nn = torch.nn
F = torch.nn.functional

Import = Callable[..., paleo.NetSpec]


@pytest.fixture
def models() -> Iterator[Any]:
    """Give a module whose attributes targets may name."""
    module = types.ModuleType("models_of_this_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def imported(models: Any) -> Import:
    """Import a factory or module with inputs of some shapes."""

    def make(net: Any, *shapes: tuple[int, ...], **options: Any) -> paleo.NetSpec:
        models.net = net
        given = tuple((None, shape) for shape in shapes)
        return read("python:models_of_this_test:net", ImportOptions(input=given, **options))

    return make


def last(net: paleo.NetSpec, batch: int = 3) -> LayerSummary:
    return paleo.summarize(net, batch_size=batch).layers[-1]


# ---- What layers count ------------------------------------------------------------------------

# One layer each: module, one sample's shape, and of a batch of 3 the output, the parameters and
# the FLOPs of the forward pass.
IMAGE = (8, 12, 10)
LAYERS: dict[str, list[Any]] = {
    "Convolution": [
        (lambda: nn.Conv2d(8, 16, 3), IMAGE, (3, 10, 8, 16), 8 * 16 * 9 + 16,
         2 * 9 * 8 * 3 * 10 * 8 * 16),
        (lambda: nn.Conv2d(8, 16, (3, 5), (2, 1), (1, 2), bias=False), IMAGE, (3, 6, 10, 16),
         8 * 16 * 15, 2 * 15 * 8 * 3 * 6 * 10 * 16),
        (lambda: nn.Conv2d(8, 16, 3, dilation=2, groups=4), IMAGE, (3, 8, 6, 16),
         2 * 16 * 9 + 16, 2 * 9 * 2 * 3 * 8 * 6 * 16),
        # 4 wide and dilated by 2 it spans 7: 3 before and 3 after.
        (lambda: nn.Conv2d(8, 8, 4, padding="same", dilation=2), IMAGE, (3, 12, 10, 8),
         8 * 8 * 16 + 8, 2 * 16 * 8 * 3 * 12 * 10 * 8),
        (lambda: nn.Conv1d(8, 4, 3), (8, 20), (3, 18, 4), 8 * 4 * 3 + 4, 2 * 3 * 8 * 3 * 18 * 4),
        (lambda: nn.Conv3d(2, 4, 3), (2, 5, 6, 7), (3, 3, 4, 5, 4), 2 * 4 * 27 + 4,
         2 * 27 * 2 * 3 * 60 * 4),
    ],
    "Deconvolution": [
        # (12 - 1) 2 - 2 + 4 = 24 and 20; products over the small side.
        (lambda: nn.ConvTranspose2d(8, 4, 4, 2, 1), IMAGE, (3, 24, 20, 4), 8 * 4 * 16 + 4,
         2 * 16 * 4 * 3 * 12 * 10 * 8),
    ],
    "InnerProduct": [
        (lambda: nn.Linear(10, 6), (10,), (3, 6), 66, 2 * 3 * 10 * 6),
        (lambda: nn.Linear(10, 6, bias=False), (5, 10), (3, 5, 6), 60, 2 * 3 * 5 * 10 * 6),
    ],
    "Pooling": [
        (lambda: nn.MaxPool2d(2), IMAGE, (3, 6, 5, 8), 0, 4 * 3 * 6 * 5 * 8),
        # ceil((12 - 5) / 3) + 1 = 4, and ceil((10 - 5) / 3) + 1 = 3
        (lambda: nn.MaxPool2d(5, 3, ceil_mode=True), IMAGE, (3, 4, 3, 8), 0, 25 * 3 * 12 * 8),
    ],
    "AvgPool": [
        (lambda: nn.AvgPool2d(3, 2, 1), IMAGE, (3, 6, 5, 8), 0, 9 * 3 * 6 * 5 * 8),
        # From 12 to 5 windows of 12 - 4 * 2 = 4, from 10 of 2.
        (lambda: nn.AdaptiveAvgPool2d((5, 5)), IMAGE, (3, 5, 5, 8), 0, 4 * 2 * 3 * 25 * 8),
    ],
    "BatchNorm": [
        (lambda: nn.BatchNorm2d(8), IMAGE, (3, 12, 10, 8), 16, 0),
        (lambda: nn.BatchNorm2d(8, affine=False), IMAGE, (3, 12, 10, 8), 0, 0),
        (lambda: nn.BatchNorm1d(6), (6,), (3, 6), 12, 0),
    ],
    "LayerNorm": [
        (lambda: nn.LayerNorm(10), (5, 10), (3, 5, 10), 20, 0),
        (lambda: nn.LayerNorm((5, 10), bias=False), (5, 10), (3, 5, 10), 50, 0),
    ],
    "RMSNorm": [(lambda: nn.RMSNorm(10), (5, 10), (3, 5, 10), 10, 0)],
    "GroupNorm": [(lambda: nn.GroupNorm(4, 8), IMAGE, (3, 12, 10, 8), 16, 0)],
    "InstanceNorm": [
        (lambda: nn.InstanceNorm2d(8, affine=True), IMAGE, (3, 12, 10, 8), 16, 0)
    ],
    "LRN": [(lambda: nn.LocalResponseNorm(5), IMAGE, (3, 12, 10, 8), 0, 0)],
    "Activation": [
        (nn.ReLU, IMAGE, (3, 12, 10, 8), 0, 0),
        (lambda: nn.ReLU(inplace=True), (7,), (3, 7), 0, 0),
        (nn.Hardswish, (7,), (3, 7), 0, 0),
        (nn.Softsign, (7,), (3, 7), 0, 0),
    ],
    "PReLU": [
        (lambda: nn.PReLU(8), IMAGE, (3, 12, 10, 8), 8, 0),
        (nn.PReLU, IMAGE, (3, 12, 10, 8), 1, 0),
    ],
    "Softmax": [(lambda: nn.Softmax(-1), (5, 7), (3, 5, 7), 0, 0)],
    "Dropout": [(lambda: nn.Dropout(0.2), (7,), (3, 7), 0, 3 * 7)],
    "Embedding": [(lambda: nn.Embedding(50, 6), (5,), (3, 5, 6), 300, 0)],
    "LSTM": [
        # 4 gates of 6 units in 2 directions: the inputs of all steps, then a state at a time.
        (lambda: Net(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(
            10, 6, batch_first=True, bidirectional=True)), (5, 10), (3, 5, 12),
         2 * 24 * (10 + 6 + 2), 2 * 2 * 3 * 5 * 24 * (10 + 6)),
    ],
    "GRU": [
        (lambda: Net(lambda m, x: m.rnn(x)[0], rnn=nn.GRU(10, 6, 2, batch_first=True)), (5, 10),
         (3, 5, 6), 18 * (10 + 6 + 2) + 18 * (6 + 6 + 2), 2 * 3 * 5 * 18 * (10 + 6 + 6 + 6)),
    ],
    "MatMul": [
        (lambda: Net(lambda m, x: x @ x.mT), (5, 10), (3, 5, 5), 0, 2 * 3 * 5 * 5 * 10),
    ],
    "Attention": [
        (lambda: Net(lambda m, x: F.scaled_dot_product_attention(x, x, x)), (2, 5, 10),
         (3, 2, 5, 10), 0, 2 * 2 * 3 * 2 * 5 * 5 * 10),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("type_name", "factory", "shape", "output", "params", "flops"),
    [(name, *case) for name, cases in LAYERS.items() for case in cases],
)
def test_a_layer_counts_by_hand(
    type_name: str,
    factory: Callable[[], Any],
    shape: tuple[int, ...],
    output: tuple[int, ...],
    params: int,
    flops: int,
    imported: Import,
) -> None:
    layer = last(imported(factory, (2, *shape)))
    assert layer.type_name == type_name
    assert (layer.output, layer.num_params, layer.forward_flops) == (output, params, flops)


@pytest.mark.parametrize("batch", [1, 2, 13])
def test_the_file_has_the_batch_that_was_given(batch: int, imported: Import) -> None:
    net = imported(lambda: nn.Linear(13, 26), (batch, 13))
    assert paleo.build(net).batch_size == batch
    assert last(net, 5).output == (5, 26)


def test_a_batch_that_the_module_insists_on_is_traced(imported: Import) -> None:
    net = imported(lambda: Net(lambda m, x: m.fc(x.view(4, 3, 5)), fc=nn.Linear(5, 7)), (4, 15))
    assert last(net).output == (3, 3, 7)


def test_steps_come_first_where_a_recurrent_layer_says_so(imported: Import) -> None:
    net = imported(lambda: Net(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(10, 6)), (5, 4, 10))
    assert paleo.build(net).batch_size == 4
    assert last(net).output == (3, 5, 6)


def test_tied_weights_count_once(imported: Import) -> None:
    def tied() -> Any:
        net = nn.Sequential(nn.Embedding(50, 6), nn.Linear(6, 50, bias=False))
        net[1].weight = net[0].weight
        return net

    net = imported(tied, (2, 5))
    assert paleo.summarize(net).num_params == 300
    assert last(net).forward_flops == 2 * 3 * 5 * 6 * 50


def test_a_module_used_twice_counts_its_parameters_once(imported: Import) -> None:
    net = imported(lambda: Net(lambda m, x: m.fc(m.fc(x)), fc=nn.Linear(6, 6)), (2, 6))
    assert paleo.summarize(net).num_params == 42
    assert [layer.name for layer in net.layers] == ["x", "fc", "fc_2"]


def test_parameters_that_are_frozen_count_as_any_others(imported: Import) -> None:
    def frozen() -> Any:
        net = Net(lambda m, x: x * m.scale)
        net.scale = nn.Parameter(torch.ones(6), requires_grad=False)
        return net

    assert paleo.summarize(imported(frozen, (2, 6))).num_params == 6


def test_the_phase_decides_about_dropout(imported: Import) -> None:
    def dropped() -> Any:
        return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    types_in = {
        phase: [layer.layer.type_name for layer in imported(dropped, (2, 4), phase=phase).layers]
        for phase in ("train", "test")
    }
    assert types_in == {
        "train": ["Input", "InnerProduct", "Dropout"],
        "test": ["Input", "InnerProduct"],
    }


def test_a_module_object_is_left_as_it_was(imported: Import) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 3)).eval()
    before = dict(module.named_parameters())
    imported(Net(lambda m, x: m.body[0](x), body=module), (2, 4))
    assert not module.training
    after = dict(module.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[name] is tensor for name, tensor in before.items())
    assert module[0](torch.ones(2, 4)).shape == (2, 4)


def test_losses_are_numbers_of_each_sample(imported: Import) -> None:
    class Loss(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 4)

        def forward(self, x: Any, labels: Any) -> Any:
            return F.cross_entropy(self.fc(x), labels)

    layer = last(imported(Loss, (2, 6), (2,)))
    assert (layer.name, layer.type_name, layer.output) == ("cross_entropy_loss", "Loss", (3, 1))


# ---- Names and blocks -------------------------------------------------------------------------


class Residual(nn.Module):  # type: ignore[name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class Stages(nn.Module):  # type: ignore[name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(Residual(), Residual())
        self.fc = nn.Linear(4, 3)

    def forward(self, image: Any) -> Any:
        return self.fc(self.layer1(image).mean((2, 3)))


def test_layers_are_called_as_modules_and_functions(imported: Import) -> None:
    net = imported(Stages, (2, 4, 5, 5))
    block = ["conv1", "relu_1", "conv2", "add", "relu_2"]
    assert [layer.name for layer in net.layers] == [
        "image",
        *[f"layer1/0/{name}" for name in block],
        *[f"layer1/1/{name}" for name in block],
        "mean",
        "fc",
    ]


class OwnNorm(nn.LayerNorm):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.layer_norm(
            x, self.normalized_shape, self.weight, self.bias, self.eps
        )


def test_a_normalization_says_whether_its_module_is_the_nets_own(imported: Import) -> None:
    net = imported(lambda: nn.Sequential(nn.LayerNorm(10), OwnNorm(10)), (5, 10))
    norms = [spec.layer for spec in net.layers if spec.layer.type_name == "LayerNorm"]
    assert [layer.custom for layer in norms] == [False, True]  # type: ignore[attr-defined]


def test_a_block_that_is_called_again_gets_a_number(imported: Import) -> None:
    net = imported(lambda: Net(lambda m, x: m.body(m.body(x)), body=Residual()), (2, 4, 5, 5))
    names = [layer.name for layer in net.layers]
    assert "body/conv1" in names
    assert "body_2/conv1" in names
    assert paleo.summarize(net).num_params == 2 * (4 * 4 * 9 + 4)


def test_modules_become_blocks_of_the_file(models: Any) -> None:
    from paleo.net.writer import dumps

    models.stages = Stages
    options = ImportOptions(input=((None, (2, 4, 5, 5)),))
    net = read("python:models_of_this_test:stages", options)
    assert net.name == "stages"
    text = dumps(net)
    assert '"Block"' in text
    written = paleo.loads(text)
    assert [layer.name for layer in written.layers] == [layer.name for layer in net.layers]


def test_inputs_are_called_as_the_arguments_of_forward(models: Any) -> None:
    class Two(nn.Module):  # type: ignore[name-defined]
        def forward(self, left: Any, right: Any, *, scale: Any = None) -> Any:
            return left * scale + right

    models.two = Two
    given = (("scale", (2, 4)), (None, (2, 4)), (None, (2, 1)))
    net = read("python:models_of_this_test:two", ImportOptions(input=given))
    assert [each.name for each in net.layers if each.layer.is_input] == ["scale", "left", "right"]


# ---- Memory -----------------------------------------------------------------------------------


def reads_small_tensors() -> Any:
    rates = [rate.item() for rate in torch.linspace(0, 0.1, 4)]
    net = nn.Sequential(nn.Linear(50_000, 50_000), nn.Dropout(rates[-1]))
    nn.init.trunc_normal_(net[0].weight, std=0.02)
    return net


def mixes_large_and_small() -> Any:
    net = nn.Linear(50_000, 50_000)
    net.weight = nn.Parameter(torch.randn(50_000, 50_000) * torch.tensor(0.02))
    return net


@pytest.mark.parametrize(
    ("factory", "size", "params"),
    [
        (lambda: nn.Sequential(*[nn.Linear(100_000, 100_000) for _ in range(10)]), 100_000,
         10 * (10**10 + 10**5)),
        (reads_small_tensors, 50_000, 50_000**2 + 50_000),
        (mixes_large_and_small, 50_000, 50_000**2 + 50_000),
    ],
)  # fmt: skip
def test_weights_take_no_memory(
    factory: Callable[[], Any], size: int, params: int, imported: Import
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    net = imported(factory, (2, size))
    assert paleo.summarize(net).num_params == params
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


@pytest.mark.parametrize("size", [40, 400])
def test_a_constructor_may_read_its_parameters(size: int, imported: Import) -> None:
    def reads() -> Any:
        net = nn.Linear(size, 3)
        net.bound = net.weight.abs().max().item() + float(torch.empty(2).uniform_().sum())
        net.twin = nn.Parameter(torch.zeros(500, 300))
        return net

    assert paleo.summarize(imported(reads, (2, size))).num_params == 3 * size + 3


def test_lazy_modules_see_their_input(imported: Import) -> None:
    def lazy() -> Any:
        return nn.Sequential(
            nn.LazyConv2d(5, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)
        )

    net = imported(lazy, (2, 4, 6, 6))
    assert paleo.summarize(net).num_params == 4 * 5 * 9 + 5 + 10 + 5 * 16 * 2 + 2


# ---- What cannot be read ----------------------------------------------------------------------


class Branches(nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class Decomposes(nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return torch.linalg.svd(x)[1]


class Fails(nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        raise KeyError("no such thing\nat all")


class Exits(nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        sys.exit(3)


class Takes(nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any, mask: Any) -> Any:
        return x * mask


def raises() -> Any:
    raise ValueError("no luck\nnone at all")


def needs(depth: int, width: int = 2) -> Any:
    return nn.Linear(depth, width)


def leaves() -> Any:
    sys.exit("bye")


Shapes = tuple[tuple[str | None, tuple[int, ...]], ...]
X: Shapes = ((None, (2, 4)),)

MISTAKES: dict[str, tuple[Any, Shapes, str]] = {
    "no input": (lambda: nn.Linear(4, 3), (), "say what it takes, one --input for each argument"),
    "arguments": (needs, X, "it needs arguments (depth)"),
    "no module": (lambda: 3, X, "it returns int, which is no torch.nn.Module"),
    "a number": (3, X, "expected a torch.nn.Module or what makes one, got int"),
    "raises": (raises, X, "making it fails: ValueError: no luck"),
    "leaves": (leaves, X, "making it exits: SystemExit: bye"),
    "branches": (Branches, X, "branches on data, which an export cannot follow (test_pytorch.py"),
    "unknown": (Decomposes, X, "the operator aten._linalg_svd is not understood (in linalg_svd)"),
    "fails": (Fails, X, "its forward fails on 2x4 (test_pytorch.py, line"),
    "exits": (Exits, X, "its forward exits: SystemExit: 3"),
    "shape": (lambda: nn.Linear(5, 3), X, "its forward fails on 2x4: RuntimeError: "),
    "too many": (lambda: nn.ReLU(), X * 2, "its forward takes input; --input is given 2 times"),
    "too few": (Takes, X, "its forward needs x, mask; no --input for mask"),
    "no argument": (
        Takes,
        (("x", (2, 4)), ("msk", (2, 4))),
        "its forward has no argument 'msk' (did you mean 'mask'?); it takes x, mask",
    ),
    "twice": (Takes, (("x", (2, 4)), ("x", (2, 4))), "two inputs for its argument 'x'"),
    "empty": (lambda: nn.ReLU(), ((None, (2, 0)),), "the input has a size below 1"),
    "no tensor": (lambda: Net(lambda m, x: 3), X, "it returns no tensor"),
    "constant": (lambda: Net(lambda m, x: torch.ones(3)), X, "nothing that it returns depends on"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(
    mistake: str, models: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    models.net, given, message = MISTAKES[mistake]
    with pytest.raises(NetSpecError) as caught:
        read("python:models_of_this_test:net", ImportOptions(input=given))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"python:models_of_this_test:net: {message}")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("python:models_of_this_test:nett", "models_of_this_test has no attribute 'nett' (did you"),
        ("python:models_of_this_test:net.of", "models_of_this_test.net has no attribute 'of'"),
        ("python:nowhere_to_be_found:net", "there is no Python module 'nowhere_to_be_found'"),
        ("python:paleo.nowhere:net", "there is no Python module 'paleo.nowhere'"),
        ("python:models.py:net/3", "'models.py:net/3'"),
        ("python:models_of_this_test", "expected python:package.module:attribute"),
        ("python:models_of_this_test:", "expected python:package.module:attribute"),
        ("python::net", "expected python:package.module:attribute"),
        ("python:a b:net", "'a b' is no name of a Python module"),
    ],
)
def test_a_target_that_is_nothing(target: str, message: str, models: Any) -> None:
    models.net = nn.ReLU
    with pytest.raises(NetSpecError) as caught:
        read(target, ImportOptions(input=X))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{target}: ")
    if "net/3" not in target:
        assert message in line


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("zero", "1 / 0", "importing {} fails: ZeroDivisionError: division by zero"),
        ("syntax", "def f(:", "importing {} fails: SyntaxError: invalid syntax ({}.py, line 1)"),
        ("lacks", "import nowhere_to_be_found", "importing {} fails: ModuleNotFoundError: No"),
        ("exits", "import sys; sys.exit('bye')", "importing {} exits: SystemExit: bye"),
    ],
)
def test_a_file_that_cannot_be_imported(
    name: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"models_that_{name}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    with pytest.raises(NetSpecError) as caught:
        read(f"python:{module}:net", ImportOptions(input=X))
    assert str(caught.value).startswith(f"python:{module}:net: {message.format(module, module)}")
    assert sys.path == path


def test_a_file_of_the_current_directory_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "from torch import nn\nprint('hello')\nclass zoo:\n    net = lambda: nn.Linear(4, 3)\n"
    (tmp_path / "models_here.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    net = read("python:models_here:zoo.net", ImportOptions(input=X))
    assert (net.name, net.file) == ("net", "python:models_here:zoo.net")
    assert capfd.readouterr() == ("", "hello\n")


def test_an_interrupt_passes(imported: Import) -> None:
    def interrupted(_: Any, x: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imported(lambda: Net(interrupted), (2, 4))


class Pairs(nn.Module):  # type: ignore[name-defined]
    """Two encoders, whose outputs are compared sample by sample."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(8, 6), nn.Linear(5, 6)

    def forward(self, x: Any, y: Any) -> Any:
        return self.image(x) @ self.text(y).t() * 2.0


def test_a_batch_compared_with_itself_is_a_product_of_the_batch(imported: Import) -> None:
    net = imported(Pairs, (4, 8), (4, 5))
    (note,) = net.notes
    assert note == "matmul compares each sample of a batch with each: a product of the batch"
    for batch in (4, 7):
        found = paleo.summarize(net, batch_size=batch)
        flops = {layer.name: layer.forward_flops for layer in found.layers}
        assert flops["matmul"] == 2 * batch * batch * 6
        assert found.layers[-1].output == (batch, batch)
        assert note in found.notes


def test_without_pytorch_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NetSpecError) as caught:
        read("python:models:net", ImportOptions(input=X))
    assert str(caught.value) == (
        'python:models:net: reading it needs PyTorch; install it with: pip install "paleo[torch]"'
    )


def test_what_is_not_understood_may_cost_nothing(imported: Import) -> None:
    def decomposed() -> Any:
        return Net(lambda m, x: torch.linalg.svd(m.fc(x))[1], fc=nn.Linear(4, 4))

    net = imported(decomposed, (2, 5, 4), unknown="zero")
    assert last(net).type_name == "Unknown"
    assert paleo.summarize(net).num_params == 20


# ---- Whole nets -------------------------------------------------------------------------------

NETS = {
    **{
        name: (factory, torch_nets.INPUTS[name], name in torch_nets.VOCABULARY)
        for name, factory in torch_nets.NETS.items()
    },
    **{
        name: (net.factory, net.shape, net.dtype == torch.int64)
        for name, net in torch_nets.SMALL_NETS.items()
    },
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.deeper] * (each in DEEPER)) for each in NETS]
)
def test_a_net_counts_what_pytorch_counts(name: str, imported: Import) -> None:
    factory, shape, whole_numbers = NETS[name]
    # A file of the zoo is what its import gives, says test_zoo.py.
    has_file = name in ZOO and ZOO[name].prototxt is None
    net = paleo.load(name) if has_file else imported(factory, shape)
    params, forward, backward = counts(net, 2)
    assert params == count.parameters(factory)
    dtype = torch.int64 if whole_numbers else torch.float32
    expected = count.flops(factory, shape, batch=2, dtype=dtype)
    assert forward == expected[0]
    assert math.isclose(backward, expected[1], rel_tol=0.01)
