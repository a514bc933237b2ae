"""creditscope demo"""

import json
import shutil

from creditscope.cli import main


def test_demo_trains_nulls_writes_its_files_and_resumes(capsys, tmp_path):
    out = tmp_path / "demo"
    args = ["demo", "--out", str(out), "--epochs", "1", "--seeds", "1", "2", "--workers", "2"]
    assert main(args) == 0
    text = capsys.readouterr().out
    for label in ("bp", "fa(none)", "dfa(rms)", "dfa(none)"):
        assert label in text
    assert len(list((out / "networks").iterdir())) == 2 * 8
    assert len(list((out / "reports").glob("*.json"))) == 2 * 4
    audit = json.loads((out / "audit.json").read_text())
    for entry in audit:
        nulls = {m["null"] for m in entry["reports"][0]["facts"]["depth"]["margins"]}
        assert nulls == {"matched", "bp"}
        assert entry["reports"][0]["facts"]["depth"]["margins"][0]["interval"].startswith("paired t over 2")
    hashes = {p.name: (p / "spec.json").read_bytes() for p in (out / "networks").iterdir()}
    shutil.rmtree(out / "networks" / sorted(hashes)[0])
    assert main(args) == 0
    assert {p.name: (p / "spec.json").read_bytes() for p in (out / "networks").iterdir()} == hashes
