"""The settings of a request: what the controls of the page say, checked.

They come as the query of an address or as a JSON object, under the names of the command line's
options, and may be anything. No name of a net, a device, a network or a cluster goes on that is not
one of the predefined: elsewhere such a name may be a file, or code to import.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from paleo.cluster.frameworks import SOFTWARE
from paleo.core.checks import is_whole, number, shown
from paleo.core.errors import Mistake, Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.registry import unknown
from paleo.core.tensor import PRECISIONS
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL
from paleo.costs.convolutions.settings import CONTIGUOUS
from paleo.net.lengths import SEQ
from paleo.net.spec import NetSpec
from paleo.step.declarations import declared
from paleo.step.mesh import ORDER
from paleo.step.mesh_settings import CONTEXT, OFFLOAD, SCHEDULE, STAGES, MeshSettings
from paleo.step.settings import DEFAULT_WORKERS, LOSS, OF_CLUSTER, RECOMPUTE
from paleo.studies.datasets import Schedule, takes_images
from paleo.studies.overview import OverviewSettings, StudySettings
from paleo.web import predefined
from paleo.web.serving_settings import SERVED, Given, read_given, served_values

#: No setting is a longer text, and no query has more of them.
_MOST_CHARACTERS = 200
_MOST_KEYS = 160
#: Samples of a batch: strong scaling divides it in many ways, and each is computed.
_MOST_SAMPLES = 1_000_000
#: Tokens of a sequence.
_MOST_TOKENS = 10_000_000

_T = TypeVar("_T")


@dataclass(frozen=True)
class PageSettings:
    """What the page shows. The defaults are those of a page without an address.

    `net` is a predefined one, or the file of an uploaded one if `is_uploaded`, which commands read
    with `options`. `workers` are those looked at, `scheme` is "" for the best of `schemes`,
    `software` is "" if both shares of peak are one's own. The curves have `num_workers` too. A
    training has `epochs` of a `dataset`, or of `dataset_size` samples, or reads so many `tokens`.
    Sequences have `seq_len` tokens, None for the net's own. `price` is "" for that of the device's
    file.
    A `cluster` takes the place of device and network, if it is not "". `overlap` is None for what
    the cost model takes by itself, `bucket` a text as of the option, "" for that of the framework.
    So it is with `gradient_dtype`, `compress`, `nccl` and `loader_rate`; `num_servers` and `jitter`
    are None then.
    Devices share a net as `tp` and what follows say, by default by its data alone.
    Beside it may stand another configuration, which is the same but for what begins with `other_`.
    `infer` are those of the settings of inference that are given, whose keys begin with that.
    """

    net: str = "resnet50_v1_5"
    device: str = "A100_SXM_80GB"
    network: str = "infiniband_hdr"
    cluster: str = "dgx_a100"
    cost_model: str = DEFAULT_COST_MODEL
    dtype: str = "mixed_fp16"
    batch_size: int = 256
    workers: int = 8
    scaling: str = "weak"
    scheme: str = ""
    overlap: bool | None = None
    bucket: str = ""
    accumulate: int = 1
    gradient_dtype: str = ""
    compress: str = ""
    num_servers: int | None = None
    jitter: float | None = None
    nccl: str = ""
    software: str = ""
    ppp_comp: float = 1.0
    ppp_comm: float = 1.0
    use_pipeline: bool = False
    fuse: bool = False
    framework: str = ""
    compile: bool = False
    graphs: bool = False
    memory_format: str = CONTIGUOUS
    attention: str = ""
    dataset: str = "imagenet"
    dataset_size: int | None = None
    epochs: float | None = 90.0
    price: str = ""
    tokens: float | None = None
    optimizer: str = "sgd"
    optimizer_kernels: str = ""
    clip_gradients: bool = False
    scale_loss: bool = False
    loss: str = LOSS.default
    recompute: str = RECOMPUTE.default
    loader_rate: str = ""
    seq_len: int | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    context: str = CONTEXT.default
    ep: int = 1
    zero: int = 0
    shard_degree: int | None = None
    offload: str = OFFLOAD.default
    host: str = ""
    micro_batch: int | None = None
    global_batch: int | None = None
    schedule: str = SCHEDULE.default
    interleave: int = 1
    stages: str = STAGES.default
    sequence_parallel: bool = False
    order: str = ",".join(ORDER)
    expert_load: str = ""
    expert_capacity: float | None = None
    allocator_slack: float | None = None
    is_uploaded: bool = False
    options: str = ""
    infer: Given = ()
    num_workers: tuple[int, ...] = DEFAULT_WORKERS
    schemes: tuple[str, ...] = ()
    other_net: str = ""
    other_device: str = ""
    other_network: str = ""
    other_cluster: str = ""
    other_dtype: str = ""
    other_batch_size: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return every setting under its key."""
        return {key: getattr(self, key) for key in _OWN} | served_values(self.infer)

    def given(self, *keys: str) -> dict[str, Any]:
        """Return some settings by their keys, None where there is an empty text."""
        values = {key: getattr(self, key) for key in keys}
        return {key: None if value == "" else value for key, value in values.items()}

    @property
    def dims(self) -> dict[str, int]:
        """The sizes of dimensions that are set."""
        return {} if self.seq_len is None else {SEQ: self.seq_len}

    @property
    def runs_on(self) -> str:
        """The name of the device: the cluster's, where there is one."""
        return predefined.cluster(self.cluster).device.name if self.cluster else self.device

    @property
    def placed(self) -> dict[str, Any]:
        """The settings that say on what it runs: a cluster, or a device and a network."""
        return self.given("cluster") if self.cluster else self.given("device", "network")

    @property
    def is_mesh(self) -> bool:
        """Whether devices share a net by more than its data."""
        return any(getattr(self, key) != getattr(_DEFAULTS, key) for key in MESH)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of workers of the curves: `num_workers`, and the one looked at.

        Those are left out of which a predefined cluster has not so many devices. On a mesh, few
        numbers divide: there are no others than those that were asked for.
        """
        if self.is_mesh and self.num_workers == DEFAULT_WORKERS:
            return (self.workers,)
        most = predefined.cluster(self.cluster).size if self.cluster else self.workers
        counts = (count for count in self.num_workers if count <= most or not self.cluster)
        return tuple(sorted({*counts, self.workers}))

    @property
    def other(self) -> PageSettings | None:
        """The configuration to stand beside this one; None if there is none."""
        given = {key: getattr(self, f"other_{key}") for key in COMPARED}
        changes: dict[str, Any] = {key: value for key, value in given.items() if value}
        if not changes:
            return None
        if "net" in changes:
            changes |= {"is_uploaded": False, "options": ""}
            if not predefined.takes_images(changes["net"]):
                changes["dataset"] = ""
        if "cluster" not in changes and not {"device", "network"}.isdisjoint(changes):
            changes = {"device": self.runs_on, **changes, "cluster": ""}
        none: dict[str, Any] = {f"other_{key}": "" for key in COMPARED} | {"other_batch_size": None}
        found = dataclasses.replace(self, **none, **changes)
        if found.runs_on != self.runs_on:  # another device has a price of its own
            found = dataclasses.replace(found, price="")
        return found if "dtype" in changes else dataclasses.replace(found, dtype=_dtype(found))


#: In what a configuration beside it may differ.
COMPARED = ("net", "cluster", "device", "network", "dtype", "batch_size")
_OWN = tuple(
    field.name
    for field in dataclasses.fields(PageSettings)
    if field.name not in ("is_uploaded", "options", "infer", "num_workers", "schemes")
)
#: The keys of settings.
KEYS = (*_OWN, *SERVED)
_DEFAULTS = PageSettings()
#: How devices share a net.
MESH = tuple(declared(MeshSettings))
_ALL = declared(StudySettings) | declared(OverviewSettings)
#: What the API says of them, in their order.
DECLARED = {key: _ALL[key] for key in KEYS if key in _ALL}
#: What the times of a net on a device depend on.
PRICED = tuple(key for key in KEYS if key in declared(StudySettings))
#: What is trained in a cluster, and how.
PLANNED = tuple(key for key in KEYS if key in declared(OverviewSettings))
_SCHEDULE = ("dataset", "dataset_size", "epochs", "tokens")
#: What an answer depends on besides the net and a worker's batch, where that is not everything.
DEPENDS = {
    "layers": ("cluster", "seq_len", *MESH, *PRICED),
    "memory": (
        *("cluster", "device", "dtype", "seq_len", "framework", "compile"),
        *("optimizer", "optimizer_kernels", "loss", "recompute", *MESH),
    ),
}


def parse_query(query: bytes) -> dict[str, str]:
    """Return the texts of an address's query; raises SettingError if it is none."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MOST_KEYS,
        )
    except ValueError:  # UnicodeDecodeError is one
        raise SettingError(
            f"the query: expected up to {_MOST_KEYS} of key=value with & between, percent-encoded "
            "UTF-8"
        ) from None
    mistakes = Mistakes()
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        for key in found:
            if keys.count(key) > 1:
                mistakes.add(f"{_key(key)}: given twice")
    mistakes.raise_as(SettingError)
    return found


def read_settings(
    values: Mapping[str, Any],
    file: str | None = None,
    options: str = "",
    net: NetSpec | None = None,
) -> PageSettings:
    """Return the settings that these values, texts of a query or of JSON, say.

    `file` is the name of an uploaded `net`, which stands for that setting, and `options` those that
    a command needs to read it. Where they say nothing, a net that takes no images has no dataset,
    and a device or a cost model that knows no mixed precision computes in fp32.
    Raises SettingError with every mistake, each with its key.
    """
    reader = _Reader(values)
    settings = dataclasses.replace(reader.read(file), options=options)
    reader.mistakes.raise_as(SettingError)
    changes: dict[str, Any] = {}
    if "dataset" not in values and settings.dataset and (file is None or net):
        fits = takes_images(net) if net else predefined.takes_images(settings.net)
        changes = {} if fits else {"dataset": ""}
    if "dtype" not in values:
        changes["dtype"] = _dtype(settings)
    return dataclasses.replace(settings, **changes)


def _dtype(settings: PageSettings) -> str:
    """Return the type of settings, fp32 where the cost model or the device does not know that."""
    known = COST_MODELS[settings.cost_model].dtypes
    peaks = predefined.device(settings.runs_on).peaks
    is_known = known is None or settings.dtype in known
    return (
        settings.dtype if is_known and PRECISIONS[settings.dtype].multiplying in peaks else "fp32"
    )


def _key(key: str) -> str:
    """Return a key for a message; a long one is cut."""
    return key if len(key) <= 40 else f"{key[:37]}..."


class _Reader:
    """Takes settings one by one; each that is wrong is noted, and stands at its default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.mistakes = Mistakes()

    def read(self, file: str | None) -> PageSettings:
        self._check_keys()
        found: dict[str, Any] = {"net": self._net(file), "is_uploaded": file is not None}
        found |= {key: self._named(key) for key in ("device", "network")}
        found["host"] = self._named("host", "device")  # never a file
        if found["host"] and self._check("host", DECLARED["host"].check, found["host"]) is None:
            found["host"] = ""
        found["cluster"] = self._cluster()
        found |= {"overlap": self._overlap(), "bucket": self._bucket()}
        others = [key for key in DECLARED if key not in (*found, *_SCHEDULE, "price")]
        found |= {key: self._value(key) for key in others}
        self._batch_size("batch_size", found["batch_size"])
        self._batch_size("global_batch", found["global_batch"] or 1)
        found |= self._software(found)
        self._room(found)
        found["seq_len"] = self._length()
        found |= {f"other_{key}": self._other(key) for key in COMPARED}
        found["infer"] = read_given(self.values, self._check)
        return PageSettings(**found, **self._schedule(), price=self._price())

    def _check_keys(self) -> None:
        if len(self.values) > _MOST_KEYS:
            self.mistakes.add(f"settings: there are {len(self.values)}, which is too many")
            self.mistakes.raise_as(SettingError)
        for key in self.values:
            if key not in KEYS:
                hint = self.mistakes.near(_key(key), KEYS) or f" (there are: {', '.join(KEYS)})"
                self.mistakes.add(f"{_key(key)}: unknown setting{hint}")

    def _check(self, key: str, function: Callable[..., _T], *arguments: Any) -> _T | None:
        """Return `function(*arguments)`; None, with its mistakes noted under the key."""
        try:
            return function(*arguments)
        except PaleoError as error:
            for each in error.mistakes:
                named = str(each).startswith((f"{key}:", *(f"{known}:" for known in KEYS)))
                self.mistakes.include(
                    PaleoError(each if named else Mistake(f"{key}: {each}")),
                )
            return None

    def _text(self, key: str) -> str:
        default = getattr(_DEFAULTS, key)
        value = self.values.get(key, default)
        may_be_number = key in DECLARED and DECLARED[key].type is object
        if may_be_number and isinstance(value, int | float) and not isinstance(value, bool):
            value = shown(value)
        if isinstance(value, str) and len(value) <= _MOST_CHARACTERS:
            return value
        if isinstance(value, str):
            self.mistakes.add(f"{key}: longer than {_MOST_CHARACTERS} characters")
        else:
            self.mistakes.add(f"{key}: expected a text, got {_shown(value)}")
        return str(default)

    def _net(self, file: str | None) -> str:
        if file is None:
            return self._named("net")
        if self.values.get("net", file) not in (file, ""):
            self.mistakes.add(f"net: the one that is uploaded is {shown(file)}: give no other")
        return file

    def _other(self, key: str) -> Any:
        """Return a setting of the configuration beside this one; nothing if it is the same."""
        other, default = f"other_{key}", getattr(_DEFAULTS, f"other_{key}")
        if self.values.get(other) in (None, ""):
            return default
        if key in ("net", "device", "network", "cluster"):
            return self._named(other, key)
        try:
            value = DECLARED[key].check(_as_number(self.values[other]))
        except PaleoError as error:
            for each in error.mistakes:
                self.mistakes.add(f"{other}: {str(each).removeprefix(f'{key}: ')}")
            return default
        return self._batch_size(other, value) if key == "batch_size" else str(value)

    def _room(self, found: Mapping[str, Any]) -> None:
        """Note where there are more workers than the cluster has devices."""
        most = predefined.cluster(found["cluster"]).size if found["cluster"] else found["workers"]
        if found["workers"] > most:
            self.mistakes.add(
                f"workers: {found['workers']:,}, but cluster {found['cluster']} has {most:,} "
                "devices"
            )

    def _batch_size(self, key: str, size: int) -> int:
        if size > _MOST_SAMPLES:
            self.mistakes.add(
                f"{key}: {_MOST_SAMPLES:,} are the most that are answered here, got {size}"
            )
        return size

    def _named(self, key: str, kind: str = "") -> str:
        """Return the name of a predefined thing of a kind, also where one of its aliases is given.

        The kind is the key where none is said.
        """
        kind = kind or key
        aliases = {
            "device": predefined.device_aliases,
            "network": predefined.network_aliases,
            "cluster": predefined.cluster_aliases,
        }
        names = {
            "net": predefined.net_names,
            "device": predefined.device_names,
            "network": predefined.network_names,
            "cluster": predefined.cluster_names,
        }[kind]()
        text = self._text(key)
        if text in names or text == getattr(_DEFAULTS, key) or (not text and key == "cluster"):
            return text
        known = aliases[kind]() if kind in aliases else {}
        if text in known:
            return known[text]
        self.mistakes.add(f"{key}: {unknown(kind, text, list(names))}")
        return str(getattr(_DEFAULTS, key))

    def _cluster(self) -> str:
        """Return the cluster: none where it is not named and a device or a network is."""
        is_placed = any(self.values.get(key) for key in OF_CLUSTER)
        return "" if is_placed and "cluster" not in self.values else self._named("cluster")

    def _value(self, key: str) -> Any:
        """Return the value of a setting that its check lets pass."""
        setting, default = DECLARED[key], getattr(_DEFAULTS, key)
        if setting.type is bool:
            return self._flag(key)
        if setting.type in (str, object):  # one that may be a number is kept as its text
            text = self._text(key)
            passed = not text and setting.default is None
            return text if passed or self._check(key, setting.check, text) else default
        found = self._check(key, setting.check, _as_number(self.values.get(key, default)))
        return default if found is None else setting.type(found)

    def _flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        known = {"true": True, "false": False}
        if isinstance(value, str) and value in known:
            return known[value]
        if not isinstance(value, bool):
            self.mistakes.add(f"{key}: expected true or false, got {_shown(value)}")
        return value is True

    def _overlap(self) -> bool | None:
        return None if self.values.get("overlap") in (None, "") else self._flag("overlap")

    def _bucket(self) -> str:
        value = self.values.get("bucket")
        text = str(value) if isinstance(value, int) else self._text("bucket").strip()
        if text and self._check("bucket", DECLARED["bucket"].check, number(text)) is None:
            return ""
        return text

    def _software(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the software and both shares of peak, which are the software's if there is one."""
        shares = {key: found[key] for key in ("ppp_comp", "ppp_comm")}
        name = self._text("software")
        if not name or self._check("software", SOFTWARE.__getitem__, name) is None:
            return {"software": ""}
        of = SOFTWARE[name]
        for key, share in shares.items():
            own = getattr(of, key)
            if key in self.values and share != own:
                self.mistakes.add(f"{key}: {name} has {own:g}; give another one without software")
            shares[key] = own
        return {"software": name, **shares}

    def _length(self) -> int | None:
        """Return how many tokens a sequence has; that the net has a length is found later."""
        value = _as_number(self.values.get("seq_len"))
        if value is None or (is_whole(value) and 1 <= value <= _MOST_TOKENS):
            return value
        self.mistakes.add(
            f"seq_len: expected a whole number from 1 to {_MOST_TOKENS:,}, got {_shown(value)}"
        )
        return None

    def _schedule(self) -> dict[str, Any]:
        size, tokens = (_as_number(self.values.get(key)) for key in ("dataset_size", "tokens"))
        # A size of one's own, or tokens, take the place of a dataset and epochs that are not named.
        is_own = size is not None or tokens is not None
        named = "" if is_own and "dataset" not in self.values else self._text("dataset")
        usual = _DEFAULTS.epochs if tokens is None else None
        epochs = _as_number(self.values.get("epochs", usual))
        found = self._check("dataset", Schedule, epochs, named or None, size, tokens)
        if found is None:
            return {}
        return {
            "dataset": found.dataset or "",
            "dataset_size": found.dataset_size,
            "epochs": None if found.epochs is None else float(found.epochs),
            "tokens": None if found.tokens is None else float(found.tokens),
        }

    def _price(self) -> str:
        value = self.values.get("price", "")
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = shown(value)
        if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
            self.mistakes.add(f"price: expected a price, got {_shown(value)}")
            return ""
        text = value.strip()
        if text:
            self._check("price", DECLARED["price"].check, number(text))
        return text


def _shown(value: Any) -> str:
    return "nothing" if value is None else shown(value)


def _as_number(value: Any) -> Any:
    """Return a text as a number, an empty one as None; what is no number is the API's to refuse."""
    if not isinstance(value, str):
        return value
    return number(value) if value else None
