"""Nets of installed packages: as stand-ins for them say, and as they are themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.errors import NetSpecError, UnknownNameError
from paleo.net.importers import ImportOptions, importer_of

pytest.importorskip("torch", reason="needs PyTorch")

TIMM = """
from torch import nn

def list_models():
    return ["tiny_net", "broken_net", "picky_net"]

def is_model(name):
    return name.partition(".")[0] in ["old_net", *list_models()]

class Picky(nn.Linear):
    def forward(self, x, targets=None):
        assert not self.training or targets is not None, "no targets in training mode"
        return super().forward(x)

def create_model(name):
    print("making it")
    if name == "broken_net":
        raise RuntimeError("no such thing")
    net = Picky(6, 2) if name == "picky_net" else nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    net.pretrained_cfg = {"input_size": (6,) if name == "picky_net" else (3, 8, 10)}
    return net
"""

TORCHVISION = """
from types import SimpleNamespace as Has
from torch import nn

def list_models():
    return ["plain", "video", "detector"]

def get_model_builder(name):
    def build(*, weights, weights_backbone="downloaded"):
        assert weights is None and weights_backbone is None
        net = nn.Conv3d(3, 2, 1) if name == "video" else nn.Conv2d(3, 2, 1)
        if name == "detector":
            net.transform = Has(min_size=(7, 9))
        return net

    def plain(*, weights):
        assert weights is None
        return nn.Conv2d(3, 2, 1)

    found = plain if name == "plain" else build
    found.__module__ = "torchvision.models." + name
    return found

def get_model_weights(name):
    transforms = lambda: Has(crop_size=[6])
    return Has(DEFAULT=Has(transforms=transforms, meta={"min_temporal_size": 20}))
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have small stand-ins for the packages installed."""
    for name, file, text in [
        ("timm", "__init__.py", TIMM),
        ("torchvision", "models.py", TORCHVISION),
        ("torchvision", "__init__.py", "from torchvision import models"),
    ]:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("timm", "torchvision", "torchvision.models"):
        sys.modules.pop(name, None)


def shapes(target: str, options: ImportOptions | None = None) -> list[Any]:
    graph = paleo.build(paleo.load(target, options))
    return [node.output for node in graph.nodes if node.layer.is_input]


@pytest.mark.usefixtures("packages")
def test_a_net_of_timm_has_the_input_of_its_configuration(
    capfd: pytest.CaptureFixture[str],
) -> None:
    net = paleo.load("timm:tiny_net")
    assert net.name == "tiny_net"
    assert shapes("timm:tiny_net") == [(1, 8, 10, 3)]
    assert paleo.build(net).num_params == 4 * 3 * 3 * 3 + 4
    assert paleo.build(net.with_batch(5)).nodes[-1].output == (5, 6 * 8 * 4)
    out, err = capfd.readouterr()
    assert not out
    assert "making it" in err


@pytest.mark.usefixtures("packages")
def test_what_weights_are_for_follows_a_dot() -> None:
    assert paleo.build(paleo.load("timm:tiny_net.some_weights")).num_params == 112


@pytest.mark.usefixtures("packages")
def test_a_net_may_have_the_name_that_it_once_had() -> None:
    assert paleo.build(paleo.load("timm:old_net")).num_params == 112


@pytest.mark.usefixtures("packages")
def test_an_input_that_is_given_is_taken() -> None:
    given = ImportOptions(input=((None, (2, 3, 5, 5)),))
    assert shapes("timm:tiny_net", given) == [(2, 5, 5, 3)]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("target", "shape"),
    [
        ("torchvision:plain", (1, 6, 6, 3)),  # its crop
        ("torchvision:video", (1, 20, 6, 6, 3)),  # and its frames
        ("torchvision:detector", (1, 9, 9, 3)),  # the last of its sizes
    ],
)
def test_a_net_of_torchvision_has_the_input_of_its_weights(
    target: str, shape: tuple[int, ...]
) -> None:
    assert shapes(target) == [shape]
    assert paleo.build(paleo.load(target)).num_params == 3 * 2 + 2


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("timm:tiny_nett", UnknownNameError, "timm has no net 'tiny_nett' (did you mean 'tiny_net"),
        ("timm:", UnknownNameError, "timm has no net ''; timm's list_models() has the names of"),
        ("torchvision:plain.x", UnknownNameError, "torchvision has no net 'plain.x' (did you mean"),
        ("timm:broken_net", NetSpecError, "making it fails: RuntimeError: no such thing"),
        (
            "timm:picky_net",
            NetSpecError,
            "its forward fails on 1x6 (__init__.py, line 12): AssertionError: no targets in tr",
        ),
    ],
)
def test_a_mistake_is_one_line(target: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        paleo.load(target)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{target}: {message}")


@pytest.mark.usefixtures("packages")
def test_what_needs_labels_in_training_is_read_for_testing() -> None:
    with pytest.raises(NetSpecError, match="; --phase=test reads it as it is used after training"):
        paleo.load("timm:picky_net")
    net = paleo.load("timm:picky_net", ImportOptions(phase="test"))
    assert paleo.build(net).num_params == 6 * 2 + 2


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_without_the_package_it_says_how_to_install_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "torch" or None)
    with pytest.raises(NetSpecError) as caught:
        paleo.load(f"{package}:resnet18")
    assert str(caught.value) == (
        f"{package}:resnet18: reading it needs {package}; "
        f'install it with: pip install "paleo[{package}]"'
    )


def test_a_target_names_no_file() -> None:
    assert importer_of("timm:resnet50.a1_in1k") == importer_of("torchvision:x.json") == "pytorch"


def published(target: str) -> paleo.NetSpec:
    """Return a net of a package that is really there, or skip the test."""
    package = target.partition(":")[0]
    # In a process of its own: what is broken there may leave half of itself behind.
    done = subprocess.run(
        [sys.executable, "-c", f"import {package}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs {package}: {done.stderr.splitlines()[-1]}")
    return paleo.load(target)


@pytest.mark.parametrize("target", ["timm:resnet18", "torchvision:resnet18"])
def test_resnet_18_is_the_predefined_one(target: str) -> None:
    # Learned parameters: 11,689,512 (He et al., 2015, table 1; torchvision's documentation).
    graph, own = paleo.build(published(target)), paleo.build(paleo.load("resnet18"))
    assert graph.num_params == own.num_params == 11_689_512
    assert [node.output for node in graph.nodes if node.layer.is_input] == [(1, 224, 224, 3)]
