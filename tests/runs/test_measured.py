"""`runs measure`: what a finished run lacks is added from its weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.calls import out
from tests.runs.driver import TINY
from torch.nn.utils import parameters_to_vector

from creditscope.data import load_dataset
from creditscope.files import dump_json, sha256_file, write_atomic
from creditscope.quantities import get_quantity
from creditscope.runs.archive import Archive, write_archive
from creditscope.runs.groups import audit
from creditscope.runs.record import records_of
from creditscope.runs.store import Store
from creditscope.training.build import build_model
from creditscope.training.bundle import Bundle
from creditscope.training.loop import train
from creditscope.training.spec import make_spec


def moved(bundle: Bundle) -> list[float]:
    """How far each block went from where its seed puts it, by hand."""
    dataset = load_dataset(bundle.spec.dataset)
    model = bundle.model(dataset)
    start = build_model(bundle.spec, dataset.input_shape, dataset.n_classes)
    return [
        float((vector(b).double() - vector(a).double()).norm() / vector(a).double().norm())
        for a, b in zip(start.blocks, model.blocks, strict=True)
    ]


def vector(block: torch.nn.Module) -> torch.Tensor:
    return parameters_to_vector(block.parameters()).detach()


def test_profile_and_certificate_are_added(tmp_path, capsys):
    """To a run whose report is from before profiles, with its training facts; its null has neither of the first two."""
    spec = make_spec({**TINY, "method": "dfa", "credit_norm": "none"})
    store = Store(tmp_path / "store", create=True)
    for one in (spec, spec.null("matched")):
        train(one, store.out(one.hash))
    bundle = store.bundle(spec)
    files: dict[str, Any] = {
        name: json.loads((bundle.path / name).read_text()) for name in ("report.json", "spec.json")
    }
    expected = files["report.json"]["facts"]["profile"]["margin"]
    files["report.json"]["facts"]["profile"] = None
    write_atomic(bundle.path / "report.json", dump_json(files["report.json"]))
    files["spec.json"]["files"]["report.json"] = sha256_file(bundle.path / "report.json")
    write_atomic(bundle.path / "spec.json", dump_json(files["spec.json"]))

    def measured() -> str:
        return out(capsys, "runs", "measure", store.root).splitlines()[-1]

    assert [measured(), measured()] == ["2 measured", "2 complete"]
    kept, null = (store.root / "full" / f"{one.hash}.json" for one in (spec, spec.null("matched")))
    content = json.loads(kept.read_text())
    assert content["facts"]["profile"]["margin"] == expected
    assert content["certificate"]["label"] == "no weight transport between blocks, global error"
    assert not json.loads(null.read_text()).get("certificate")
    ((record,), problems) = records_of(store, [spec])
    assert not problems
    assert record.facts.profile is None
    assert record.profile is not None
    assert record.profile.margin is not None
    assert record.profile.margin.pp == expected["pp"]
    write_archive(store, [spec.hash, spec.null("matched").hash], tmp_path / "archive")
    archived = Archive(tmp_path / "archive")
    for found in (record, archived.read(spec.hash)):
        assert found.certificate is not None
        assert found.certificate.to_dict() == content["certificate"]
        (group,) = audit([found])
        assert get_quantity("certificate").over(group).value == content["certificate"]["label"]
    assert archived.read(spec.null("matched").hash).certificate is None
    assert [r.certificate for r in archived.full_reports() if r.run == spec.hash] == [record.certificate]
    for found in (record, archived.read(spec.hash)):
        assert get_quantity("weight_growth").of(found).value == content["facts"]["training"]["growth"]
        assert get_quantity("block_growth").of(found).value == pytest.approx(np.mean(moved(bundle)))
        assert get_quantity("weight_product").of(found).value > 0
    assert set(json.loads(null.read_text())["facts"]["training"]["growth_by_block"]) == {
        0
    }  # they stay as they were drawn
    for part in ("certificate", "profile", "training"):
        older = json.loads(kept.read_text())
        (older if part in older else older["facts"])[part] = None
        write_atomic(kept, dump_json(older))
        assert measured() == "1 measured, 1 complete"
