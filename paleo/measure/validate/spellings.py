"""The words of measurements for devices, element types and links, and what they stand for."""

from __future__ import annotations

import functools
import re

from paleo.cluster import Device, Network, device_names, find_device, find_network, network_names
from paleo.core.errors import near, near_or_known
from paleo.core.tensor import PRECISIONS

_BRACKETS = re.compile(r"\([^()]*\)")
_SIZE = re.compile(r"\b\d+ ?gi?b\b")
#: Makers and families that sources put before the name of a device, or leave out.
_MAKERS = re.compile(r"^(nvidia|amd|intel|google|apple|geforce|tesla|quadro|instinct|radeon)+")


class UnmappedError(Exception):
    """Why a row cannot be predicted."""


def plain(text: str) -> str:
    """Return the letters and digits of a text in one case, what is in brackets left out."""
    return _letters(_BRACKETS.sub(" ", text))


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


#: cuDNN's version as sources write it: cudnn5105, cuDNN 7.0.5, "Cudnn Version=6.0.21", CuDNN[R4].
_CUDNN = re.compile(r"cudnn(?:[ \[=_-]|version|[rv](?=\d))*(\d+)(?:\.(\d+))?", re.IGNORECASE)


#: NVIDIA's containers of frameworks by year and month: NGC pytorch-21.03, NVIDIA Release 22.04.
_CONTAINER = re.compile(r"(?:\bNGC\b|\bNVIDIA Rel\w*)[^0-9,;]*(\d\d)\.(\d\d)\b", re.IGNORECASE)
#: cuDNN in them, from which on (NVIDIA, Deep Learning Frameworks Support Matrix).
_IN_CONTAINERS = (
    ((19, 8), 7.6), ((20, 6), 8.0), ((21, 2), 8.1), ((21, 5), 8.2), ((21, 11), 8.3),
    ((22, 4), 8.4), ((22, 9), 8.6), ((23, 1), 8.7), ((23, 4), 8.9), ((24, 3), 9.0),
)  # fmt: skip


def library_of(*texts: str) -> float | None:
    """Return the generation of the convolution library that these name, None if they name none.

    It is cuDNN's version with its first minor digit: 5.1 of cudnn5105. A container of NVIDIA's
    stands for the one in it, and a release of PyTorch for that of its packages.
    """
    for text in texts:
        if match := _CUDNN.search(text):
            number, minor = match[1], match[2]
            if len(number) > 2:  # 5105, 8902: major, minor and patch without dots
                number, minor = number[0], number[1]
            return float(f"{number}.{(minor or '0')[0]}")
    for table, released in (
        (_IN_CONTAINERS, _container_of(*texts)),
        (_IN_PYTORCH, _release_of(*texts)),
    ):
        if released is not None:
            return next((found for since, found in reversed(table) if released >= since), None)
    return None


def _container_of(*texts: str) -> tuple[int, int] | None:
    """Return the year and month of NVIDIA's container that these name, None if they name none."""
    for text in texts:
        if match := _CONTAINER.search(text):
            return int(match[1]), int(match[2])
    return None


#: cuDNN in packages of PyTorch, from which release on (pytorch/builder, common/install_cuda.sh).
_IN_PYTORCH = (((1, 12), 8.3), ((1, 13), 8.5), ((2, 1), 8.9), ((2, 4), 9.1), ((2, 6), 9.5))


def _release_of(*texts: str) -> tuple[int, int] | None:
    """Return the release of PyTorch that these name, None if they name none to the minor digit."""
    for text in texts:
        if match := re.search(r"\bpytorch [a-z]?(\d+)\.(\d+)", text, re.IGNORECASE):
            return int(match[1]), int(match[2])
    return None


#: PyTorch in NVIDIA's containers, from which on (PyTorch Release Notes; 1.4 in those before).
_PYTORCH_IN = (((23, 3), (2, 0)), ((20, 2), (1, 5)), ((0, 0), (1, 4)))


def pytorch_of(*texts: str) -> tuple[int, int] | None:
    """Return the version of PyTorch that these name, by a container's too; None if none.

    Of a container it is one that does what the container's does.
    """
    released = _container_of(*texts)
    if released is not None:
        return next(version for since, version in _PYTORCH_IN if released >= since)
    return _release_of(*texts)


@functools.cache
def _devices(bare: bool) -> dict[str, set[str]]:
    """Return the names of devices by the letters of their names, aliases and titles.

    Those are taken whole or, if `bare`, without what is in brackets.
    """
    found: dict[str, set[str]] = {}
    for name in device_names():
        device = find_device(name)
        for text in (name, device.title, *device.aliases):
            found.setdefault((plain if bare else _letters)(text), set()).add(name)
    return found


@functools.cache
def device_of(text: str) -> Device:
    """Return the device that a text names; raises UnmappedError if none, or several.

    It is compared with the names, aliases and titles of the registry: whole, without what is in
    brackets, then without the size of its memory and the maker. A name ending in `.toml` is a
    user's own file, and raises HardwareError if that is wrong.
    """
    if text.endswith(".toml"):
        return find_device(text)
    begun = re.sub(r",[^()]*\)", ")", text)  # "K80 (one GK210 die, EC2 p2)"
    outside = _BRACKETS.sub(" ", text)
    sized = _SIZE.sub(" ", outside.casefold())
    for bare in (False, True):
        for form in map(_letters, (text, begun, outside, sized)):
            names = _devices(bare).get(form, set())
            if len(names) == 1:
                return find_device(next(iter(names)))
    alike: set[str] = set()
    short = ""
    for each in (outside, sized):
        short = _MAKERS.sub("", _letters(each))
        same = (names for form, names in _devices(True).items() if _MAKERS.sub("", form) == short)
        alike = alike or set().union(*same if short else ())
    if not alike and len(short) > 1:
        alike = {name for name in device_names() if _letters(name).startswith(short)}
    if len(alike) == 1:
        return find_device(alike.pop())
    if alike:
        raise UnmappedError(f"device {text!r} may be any of {', '.join(sorted(alike))}")
    raise UnmappedError(f"unknown device {text!r}{near(text, device_names())}")


#: Modules of two dies, each of which is a device to ROCm and so to frameworks.
_DIES = {"MI250": "MI250_DIE", "MI250X": "MI250X_DIE"}


def as_seen(device: Device, framework: str) -> Device:
    """Return what a framework calls a device: of AMD's modules of two dies one."""
    return find_device(_DIES[device.name]) if framework and device.name in _DIES else device


#: Words for the order of an image tensor's elements in memory.
_FORMATS = {
    "channels_last": re.compile(r"\bchannels[ _-]last\b|\bNHWC\b", re.IGNORECASE),
    "contiguous": re.compile(r"\bcontiguous\b|\bchannels[ _-]first\b|\bNCHW\b", re.IGNORECASE),
}


def memory_format_of(*texts: str) -> str:
    """Return the memory format of images that the first of these texts says, "" if none does."""
    for text in texts:
        found = [name for name, words in _FORMATS.items() if words.search(text)]
        if len(found) == 1:
            return found[0]
    return ""


def is_compiled(framework: str, notes: str = "") -> bool:
    """Tell whether a framework compiled the net: "torch.compile", "+XLA", "with xla"."""
    compiler = re.search(r"\bcompiled?\b|\binductor\b", framework, re.IGNORECASE)
    said = re.search(
        r"\+ ?XLA\b|\bwith ?xla\b|\bwith Graph Kernel\b|torch\.compile\b", f"{framework} {notes}"
    )
    return compiler is not None or said is not None


_WORDS = {
    "fp64": ("fp64", "float64", "double", "f64"),
    "fp32": ("fp32", "float32", "single", "f32", "float"),
    "tf32": ("tf32",),
    "fp16": ("fp16", "float16", "half", "f16"),
    "bf16": ("bf16", "bfloat16"),
    "fp8": ("fp8", "float8", "e4m3"),
    "int8": ("int8", "i8"),
}
_MIXED = ("mixed", "amp", "automatic")


def dtype_of(text: str, device: Device, *, is_net: bool, tf32: bool = False) -> str:
    """Return the element type that a row's precision stands for; "" is fp32.

    Of a net in mixed precision the type is "mixed_fp16" or "mixed_bf16"; of an operator, that of
    its operands. With `tf32`, or where the text has both words, fp32 is computed as TF32 if the
    device can. Raises UnmappedError for words that mean no type, or none for sure.
    """
    words = re.findall(r"[a-z]+\d*(?:m\d)?", text.casefold().replace("_", " "))
    found = [dtype for dtype, names in _WORDS.items() if any(word in names for word in words)]
    mixed = any(word in _MIXED for word in words)
    if "tf32" in found and "fp32" in found:
        found, tf32 = ["fp32"], True
    elif "fp32" in found and ("acc" in words or "accumulate" in words):
        found.remove("fp32")  # of the sums
    if mixed and "fp32" in found:
        found.remove("fp32")
    if mixed and (not found or found == ["fp16", "bf16"]):
        found = ["fp16"]  # both run at one speed
    if not text:
        found = ["fp32"]
    if len(found) != 1:
        raise UnmappedError(f"unknown precision {text!r}{near_or_known(text, PRECISIONS)}")
    dtype = found[0]
    if dtype == "fp32" and tf32 and "tf32" in device.peaks:
        return "tf32"
    return f"mixed_{dtype}" if mixed and is_net and dtype in ("fp16", "bf16") else dtype


@functools.cache
def _links() -> dict[str, str]:
    return {
        _letters(text): name
        for name in network_names()
        for text in (name, find_network(name).title, *find_network(name).aliases)
    }


_NVLINK = {"Pascal": 1, "Volta": 2, "Ampere": 3, "Hopper": 4, "Blackwell": 5}
#: The generation of PCIe that came with an architecture.
_PCIE = {
    **dict.fromkeys(("Kepler", "Maxwell", "Pascal", "Volta", "Turing"), 3),
    **dict.fromkeys(("Ampere", "Ada"), 4),
    **dict.fromkeys(("Hopper", "Blackwell", "Blackwell RTX"), 5),
}
#: What stands where a source says nothing.
_UNSAID = re.compile(r"(n/a|todo|unknown|none|-)?", re.IGNORECASE)
_PART = re.compile(r"(?:^|;) *(accelerator|host|topology): *([^;]*)")


def link_of(
    text: str, device: Device, n_devices: int, devices_per_node: int | None = None
) -> Network:
    """Return the link that a row's interconnect stands for; raises UnmappedError if none does.

    Of a text with a part for links inside a node and one for links between, separated by ";" or
    "+", or named "accelerator: ...; host: ...", the one counts that the devices need. NVLink and
    PCIe without a generation are those of the architecture. Where nothing is said of a node, an
    SXM board has NVLink and a PCIe board PCIe.
    """
    nodes = devices_per_node is not None and n_devices > devices_per_node
    if named := dict(_PART.findall(text)):
        text = named.get("host" if nodes else "accelerator", "").strip()
        if _UNSAID.fullmatch(text):
            text = "" if nodes else {"SXM": "nvlink", "PCIe": "pcie"}.get(device.board, "")
    if not text:
        raise UnmappedError("several devices without an interconnect")
    found = _link_of(text, device.architecture, n_devices, nodes)
    if found is None:
        raise UnmappedError(f"interconnect {text!r} names no link of the registry")
    return found


@functools.cache
def _link_of(text: str, architecture: str, n_devices: int, nodes: bool) -> Network | None:
    parts = [part.strip() for part in re.split(r"[;+]|, (?=inter|intra)", text)]
    if len(parts) > 1:
        inter = [part for part in parts if re.search(r"\binter\b|between", part)]
        parts = inter if nodes else [part for part in parts if part not in inter]
    known = _links()
    for part in parts:
        words = re.sub(r"\b(intra|inter|node|between|inside|the)\b-?:?", " ", part.casefold())
        if name := known.get(plain(words)) or known.get(_letters(words)):
            return find_network(name)
        if match := re.search(r"\b(nvlink|nvswitch|pcie)[ ,-]*(?:gen ?)?(\d(?!\d))?", words):
            # A bridge joins two cards; more of them exchange over PCIe.
            bridged = "bridge" in words and n_devices > 2
            kind = "pcie" if match[1] == "pcie" or bridged else "nvlink"
            own = (_PCIE if kind == "pcie" else _NVLINK).get(architecture, "")
            generation = own if bridged else match[2] or own
            if name := known.get(f"{kind}{generation}"):
                return find_network(name)
    return None
