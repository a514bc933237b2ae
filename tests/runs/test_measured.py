"""`runs measure`: what a finished run lacks is added from its weights."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.calls import out
from tests.runs.driver import TINY

from creditscope.files import dump_json, sha256_file, write_atomic
from creditscope.quantities import get_quantity
from creditscope.runs.archive import Archive, write_archive
from creditscope.runs.groups import audit
from creditscope.runs.record import records_of
from creditscope.runs.store import Store
from creditscope.training.loop import train
from creditscope.training.spec import make_spec


def test_profile_and_certificate_are_added(tmp_path, capsys):
    """To a run whose report is from before profiles; its null has neither."""
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
    for part in ("certificate", "profile"):
        older = json.loads(kept.read_text())
        (older if part in older else older["facts"])[part] = None
        write_atomic(kept, dump_json(older))
        assert measured() == "1 measured, 1 complete"
