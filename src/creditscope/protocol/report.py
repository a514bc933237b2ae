"""The report: everything about one audited network, as data that saves and loads. `creditscope.render` shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from creditscope.display import Shown
from creditscope.errors import CreditscopeError
from creditscope.files import dump_json, read_json, write_atomic
from creditscope.measure.certificate import Certificate
from creditscope.measure.depth import accuracies, checked_n_test, depth
from creditscope.measure.facts import Facts
from creditscope.protocol.chain import ChainStep, walk_back_chain
from creditscope.protocol.checks import Check, Judgement
from creditscope.protocol.consistency import SAME_DATA, evaluation_of, make_claim
from creditscope.protocol.policies import Status, Verdict, get_policy, judge
from creditscope.protocol.thresholds import DiagnosticThresholds

REPORT_SCHEMA = 2
"""2: Γ, deep mean and concentration are over the layers that count; `*_all_layers` hold what they were in schema 1."""


class DiagnosticReport(Shown, Judgement):
    """What was claimed, what was measured, and what the protocol concludes.

    `report.status` is "pass", "fail", "inconsistent", "inconclusive" or "incomplete". Numbers that are not finite stand as
    strings in JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    schema_version: int = REPORT_SCHEMA
    method_name: str = ""
    notes: str = ""
    run: str = ""
    """Hash of the run's spec, where the network comes from a bundle."""
    headline_acc: tuple[float, ...] = ()
    """Accuracy as it was claimed, one number per network."""
    network_acc: float | None = None
    """This network's own accuracy, where it was stated beside the headline."""
    headline_on: str = SAME_DATA
    """`other data` where the evaluation batches are no sample of the data behind the headline: then they are not compared."""
    n_test: int | None = None
    facts: Facts
    verdict: Verdict
    chain: tuple[ChainStep, ...] = ()
    certificate: Certificate | None = None
    """What the update depends on, where `certify` has found it out."""

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def checks(self) -> dict[str, Check]:
        """The answered checks by id: D1, D2, D3, C."""
        return {check.id: check for check in self.verdict.checks}

    @property
    def protocol(self) -> str:
        """Version of the policy that judged, e.g. three-check/1.1."""
        return self.verdict.policy

    def to_text(self, long: bool = False) -> str:
        """What `print(report)` shows; `long`: every section of it."""
        return str(self._shown("text", long=long))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        left_out = {"certificate"} if self.certificate is None else None
        return dict(json.loads(self.model_dump_json(exclude=left_out)))

    def with_certificate(self, certificate: Certificate) -> DiagnosticReport:
        """The same report with the certificate of `certify` in it: printed, saved and drawn with the rest."""
        return self.model_copy(update={"certificate": certificate})

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text; also written to `path` (atomically) where one is given."""
        data = dump_json(self.to_dict())
        if path is not None:
            write_atomic(Path(path), data)
        return data.decode()

    @classmethod
    def from_dict(cls, data: Any, source: str = "the report") -> DiagnosticReport:
        """A report from JSON data; what does not fit is one line."""
        return _validated(cls, _current(data, source), source)

    @classmethod
    def from_json(cls, path: str | Path) -> DiagnosticReport:
        return cls.from_dict(read_json(Path(path), "a report"), str(path))


def stored_facts(data: Any, source: str = "the report") -> Facts:
    """The facts of a stored report, or of a record that keeps facts alone; a verdict beside them is not read."""
    data = _current(data, source)
    return _validated(Facts, data.get("facts") if isinstance(data, dict) else data, source)


def stored_certificate(data: Any, source: str = "the report") -> Certificate | None:
    """The certificate of a stored report; None where it has none."""
    found = data.get("certificate") if isinstance(data, dict) else None
    return None if found is None else _validated(Certificate, found, source)


Model = TypeVar("Model")


def _validated(kind: type[Model], data: Any, source: str) -> Model:
    try:
        return TypeAdapter(kind).validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = "is no part of one" if first["type"] == "extra_forbidden" else first["msg"]
        what = " ".join(": ".join(part for part in (where, message) if part).split())
        raise CreditscopeError(f"{source} is not a creditscope report: {what}") from None


def _current(data: Any, source: str) -> Any:
    """JSON data of any schema that is known, in the present one."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > REPORT_SCHEMA:
        raise CreditscopeError(
            f"{source} has schema version {version} and this creditscope reads up to {REPORT_SCHEMA}; upgrade creditscope"
        )
    return _from_schema_1(data) if version == 1 else data


def _from_schema_1(data: dict[str, Any]) -> dict[str, Any]:
    """A report from before three-check/1.1: every layer counted, so each mean is also the one over all layers."""
    data = json.loads(json.dumps(data))
    facts = data.get("facts")
    if isinstance(facts, dict):
        _copy(facts.get("aggregate"), "headline", "gamma_all_layers")
        _copy(facts.get("concentration"), "deep_mean", "deep_mean_all_layers")
        for name in ("perturbation", "nudging"):
            for whose in ("credit", "reference", "random"):
                fact = facts.get(name)
                _copy(fact.get(whose) if isinstance(fact, dict) else None, "deep_mean", "deep_mean_all_layers")
    return {**data, "schema_version": REPORT_SCHEMA}


def _copy(fact: Any, old: str, new: str) -> None:
    if isinstance(fact, dict) and old in fact:
        fact[new] = fact[old]


class Claims(TypedDict, total=False):
    """What is stated about a network beside its measurement (arguments as in `diagnose`)."""

    headline_acc: Any
    network_acc: float | None
    headline_on: str
    frozen_baseline_acc: Any
    bp_acc: Any
    n_test: int | None
    method_name: str
    notes: str
    run: str
    protocol: str
    evidence: Mapping[str, str] | None


def make_report(
    facts: Facts,
    *,
    headline_acc: Any = None,
    network_acc: float | None = None,
    headline_on: str = SAME_DATA,
    frozen_baseline_acc: Any = None,
    bp_acc: Any = None,
    n_test: int | None = None,
    method_name: str = "",
    notes: str = "",
    run: str = "",
    thresholds: DiagnosticThresholds | None = None,
    protocol: str = "three-check",
    evidence: Mapping[str, str] | None = None,
) -> DiagnosticReport:
    """Judge facts that were measured before (arguments as in `diagnose`)."""
    policy = get_policy(protocol)
    claimed = accuracies(headline_acc, "headline_acc") if headline_acc is not None else ()
    if frozen_baseline_acc is not None and not claimed:
        raise CreditscopeError("frozen_baseline_acc is given without headline_acc; give both, or neither")
    own = None if network_acc is None else accuracies(network_acc, "network_acc")
    if own is not None and len(own) != 1:
        raise CreditscopeError(
            f"network_acc is the accuracy of the one network that is measured, got {len(own)} numbers"
        )
    n_eval = facts.convention.n_samples
    facts = facts.model_copy(
        update={
            "evaluation": evaluation_of(facts),
            "claim": make_claim(claimed, own[0] if own else None, headline_on, checked_n_test(n_test), n_eval),
            "depth": depth(claimed or None, frozen_baseline_acc, n_test, bp_acc, n_eval),
        }
    )
    verdict = judge(facts, thresholds or DiagnosticThresholds(), policy)
    return DiagnosticReport(
        method_name=method_name,
        notes=notes,
        run=run,
        headline_acc=claimed,
        network_acc=own[0] if own else None,
        headline_on=headline_on,
        n_test=n_test,
        facts=facts,
        verdict=verdict,
        chain=walk_back_chain(facts, verdict, headline_acc=claimed, n_test=n_test, evidence=evidence),
    )
