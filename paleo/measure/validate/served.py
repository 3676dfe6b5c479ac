"""Served points: loads that others measured on servers, and what is predicted of them.

Points without drafts are predicted, each measurement once: the seconds of a token, and of a first
token where the load is simulated. Of servers that compute prompts beside others that decode it is
tokens alone, by closed forms: what passes requests on from one to the other is not modelled, and
first tokens wait for it. Others are listed with the reason.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from paleo.cluster import Cluster, find_cluster, find_device
from paleo.cluster.servers import SERVERS, Server
from paleo.core.errors import MeasurementError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, np
from paleo.costs import COST_MODELS
from paleo.costs.error_bands import FIRST_TOKEN, TOKEN
from paleo.measure.validate.cases import KEYS, Cases, Unpredicted
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.nets import Remembering
from paleo.measure.validate.served_samples import read_served
from paleo.measure.validate.serving_rows import AGGREGATED, ServedRow, counted
from paleo.measure.validate.serving_rows import Party as RowParty
from paleo.measure.validate.spellings import UnmappedError
from paleo.measure.validate.tables import place_of
from paleo.net.graph import cached_for_net
from paleo.net.load import load
from paleo.step.serving.deployment import Deployment
from paleo.step.serving.prices import Degrees, StepPrices
from paleo.studies.serving.disaggregated import disaggregated
from paleo.studies.serving.loads import Fixed, Uniform, closed_load
from paleo.studies.serving.lots import Lot, Servers, step_of
from paleo.studies.serving.placing import kernels_of, program_of, scheduling_of
from paleo.studies.serving.scheduler import serve
from paleo.studies.serving.server import Party
from paleo.studies.serving.steady import closed

#: Where aiconfigurator-core has its table.
TABLE = "systems/silicon_sample.csv"
#: Devices whose rows constants were fitted to (docs/accuracy.md); those of others are held out.
FITTED = ("H100_SXM", "H200_SXM")
#: The most requests at a time whose loads are simulated; means of others are of closed forms.
SIMULATED, _ROUNDS = 64, 6
_CLUSTERS = {
    "H100_SXM": "dgx_h100", "H200_SXM": "hgx_h200", "B200_SXM": "hgx_b200", "B300_SXM": "hgx_b200",
    "GB200": "gb200_nvl72", "GB300": "gb200_nvl72", "A100_SXM_80GB": "dgx_a100",
    "H20_SXM": "dgx_h100",  # as many links of NVLink 4
}  # fmt: skip
#: vLLM of rows that do not say theirs: those of InferenceX in 2025.
_UNSTATED = {"vllm": "0.11"}


class Point(NamedTuple):
    """A row: what it is of, and predicted by measured seconds, None where not predicted."""

    row: Any
    tpot: float | None
    ttft: float | None


@functools.cache
def _alone(net: str) -> Any:
    return load(net, dims={"seq": 1})


@functools.cache
def prices_of(
    net: str, device: str, server: str, formats: tuple[str, ...], version: str, degrees: Degrees
) -> StepPrices:
    """Return what a server's steps take, numbers being as `Formats` says."""
    chip = find_device(device)
    attention, products, experts, cache = formats
    kernels = kernels_of(
        chip, SERVERS[server], products, experts or products, cache,
        attention=attention, version=version,
    )  # fmt: skip
    program = cached_for_net(program_of, _alone(net), degrees.of_attention)
    cluster: Cluster | None = None
    if degrees.devices > 1:
        cluster = find_cluster(_CLUSTERS.get(device, "l40s_pcie"))  # others: in a host, on PCIe
    return StepPrices(program, chip, COST_MODELS["tiled"], kernels, degrees, cluster)


def server_of(row: ServedRow) -> Server:
    """Return the server of a row, of its version."""
    version = row.version or _UNSTATED.get(row.server, "") * ("2026" not in _day(row))
    return SERVERS[row.server].of_version(version)


def _day(row: ServedRow) -> str:
    found = re.search(r"measured=(\d{4})", row.source)
    return found[1] if found else "2026" * ("source_file=/" not in row.source)


def _deployment(row: ServedRow, server: Server, party: RowParty) -> Deployment:
    """Return how a server of a row runs its net, in these degrees."""
    degrees = Degrees(party.tp * party.attention_dp, party.pp, party.moe_ep, party.attention_dp)
    prices = prices_of(row.net, row.device, row.server, row.formats, row.version, degrees)
    budget = row.step_tokens or server.limits_on(prices.device).tokens
    return Deployment(prices, server, length=row.prompt + row.output, token_budget=budget)


def served(row: ServedRow, server: Server | None = None) -> Point:
    """Return what a row took by what is predicted; raises a PaleoError where nothing is."""
    server = server or server_of(row)
    lot = Lot(round(row.mean_prompt), round(row.mean_output))
    if row.mode != AGGREGATED:
        prefill, decode = (_servers(row, server, each, lot) for each in (row.prefill, row.decode))
        # Caches move before first tokens are shown: for tokens it is as if they took no time.
        found = disaggregated(prefill, decode, row.concurrency, lot, 0.0, requests=row.requests)
        return Point(row, float(found.tpot) / row.tpot_s, None)
    if row.concurrency > SIMULATED:
        servers = _servers(row, server, row.prefill)
        found = closed(servers, row.concurrency, lot, requests=row.requests)
        return Point(row, float(found.tpot) / row.tpot_s, None)
    deployment = _deployment(row, server, row.prefill)
    scheduling = scheduling_of(deployment, "continuous", row.step_requests)
    count = min(row.requests, _ROUNDS * row.concurrency)
    lengths = [
        Fixed(most) if row.shortest == 1 else Uniform(round(row.shortest * most), most)
        for most in (row.prompt, row.output)
    ]
    times = serve(
        closed_load(row.concurrency, count, *lengths, seed=1), Party(deployment, scheduling)
    ).behind(float(server.first_host))
    later = (times.finish - times.first) / np.maximum(times.load.output - 1, 1)
    first = float(times.ttft.mean()) / row.ttft_s if row.ttft_s else None
    return Point(row, float(later.mean()) / row.tpot_s, first)


def _servers(row: ServedRow, server: Server, party: RowParty, lot: Lot | None = None) -> Servers:
    """Return a party's servers; with a `lot`, raises SettingError where it has no room for one.

    Those of two parties have places for all requests: their settings are made for the load.
    """
    deployment = _deployment(row, server, party)
    places = row.step_requests if row.mode == AGGREGATED else row.concurrency
    scheduling = scheduling_of(deployment, "continuous", places)
    if lot and deployment.capacity < lot.prompt + lot.output:
        raise SettingError("the cache has no room for a request")
    return Servers(step_of(deployment), scheduling, deployment.capacity, replicas=party.workers)


_served_once = functools.cache(served)


@dataclass(frozen=True, eq=False)
class ServedGroup(CaseGroup):
    """The tokens of a row, or its first tokens."""

    row: ServedRow
    kind: str

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        if pricing.model is not COST_MODELS["tiled"]:
            raise UnmappedError(f"{pricing.model.name} does not price steps of servers")
        point = _served_once(self.row)
        if self.kind == TOKEN:
            return (point.tpot or 0.0) * self.row.tpot_s
        return (point.ttft or 0.0) * self.row.ttft_s

    def known(self, name: str) -> float | None:
        return None  # constants are those of servers

    def describe(self, place: int) -> str:
        row = self.row
        return f"{row.concurrency} x {row.prompt} + {row.output} tokens"


def measured_rows(place: str | os.PathLike[str]) -> tuple[list[ServedRow], dict[str, int]]:
    """Return the rows to predict of a table of served points, and the others by reason.

    `place` is the file, a folder that has it in `systems`, or the name of an installed package.
    Rows of one deployment stand together: its tables are made once. Raises MeasurementError.
    """
    path = place_of(place)
    path = path / TABLE if path.is_dir() else path
    if not path.is_file():
        raise MeasurementError(f"{os.fspath(place)}: there is no {TABLE} in it")
    read = read_served(path)
    seen: set[str] = set()
    rows, reasons = [], []
    for row in read.rows:
        if row.drafts:
            reasons.append("drafts, of which no acceptance is stated")
        elif seen.intersection(row.twins):
            reasons.append("the same measurement as another row")
        else:
            seen.add(row.row_id)
            rows.append(row)
    rows.sort(key=lambda row: (row.net, row.device, row.server, row.formats, row.prefill))
    return rows, dict(read.left_out) | counted(reasons)


def served_cases(place: str | os.PathLike[str]) -> Cases:
    """Return the cases of a table of served points: tokens, and first tokens where simulated."""
    rows, left_out = measured_rows(place)
    parts: list[ServedGroup] = []
    measured: list[float] = []
    labels: dict[str, list[str]] = {key: [] for key in KEYS}
    for row in rows:
        kinds = {TOKEN: row.tpot_s}
        if row.ttft_s and row.concurrency <= SIMULATED and row.mode == AGGREGATED:
            kinds[FIRST_TOKEN] = row.ttft_s
        for kind, seconds in kinds.items():
            index = np.array([len(measured)])
            device = find_device(row.device)
            parts.append(ServedGroup(index, device, row.formats.products, (), row, kind))
            measured.append(seconds)
            for key, text in _labels(row, kind).items():
                labels[key].append(text)
    return Cases(
        np.array(measured, float),
        np.array([part.row.row_id for part in parts], object),
        {key: np.array(texts, object) for key, texts in labels.items()},
        tuple(parts),
        tuple(Unpredicted(why, "silicon_sample", count) for why, count in left_out.items()),
    )


def _labels(row: ServedRow, kind: str) -> dict[str, str]:
    held = "devices of the fit" if row.device in FITTED else "held-out devices"
    if row.mode != AGGREGATED:
        held = "prompts computed apart"
    found = {
        "source": "silicon_sample",
        "stratum": f"{kind}, {held}",
        "kind": kind,
        "network": row.net,
        "device": row.device,
        "precision": row.formats.products,
        "dtype": row.formats.products,
        "framework": row.server,
        "library_version": row.version,
        "quantity": "tpot" if kind == TOKEN else "ttft",
        "n_devices": str(row.devices),
    }
    return {key: found.get(key, "") for key in KEYS}
