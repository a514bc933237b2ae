"""creditscope train"""

import json

from creditscope.cli import main

from .calls import TINY, one_line_error


def test_a_second_train_of_the_same_run_does_nothing_and_of_another_is_refused(store, capsys):
    before = {p: p.stat().st_mtime_ns for p in (store / "bp").iterdir()}
    assert main(["train", *TINY, "--method", "bp", "--out", str(store / "bp")]) == 0
    assert {p: p.stat().st_mtime_ns for p in (store / "bp").iterdir()} == before
    assert "holds this run already, finished; nothing was trained" in capsys.readouterr().err
    assert "holds another run" in one_line_error(capsys, "train", *TINY, "--seed", "1", "--out", str(store / "bp"))


def test_yaml_and_flags_together_flags_win(capsys, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "method: dfa\ncredit_norm: none\nwidth: 8\ndepth: 2\nepochs: 1\nbatch_size: 2000\n"
    )
    out = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--credit-norm", "rms", "--out", str(out)]) == 0
    spec = json.loads((out / "spec.json").read_text())["spec"]
    assert (spec["method"], spec["credit_norm"], spec["width"]) == ("dfa", "rms", 8)


def test_yaml_with_a_python_tag_or_a_list_is_refused(capsys, tmp_path):
    (tmp_path / "bad.yaml").write_text("method: !!python/object/apply:os.system ['true']\n")
    assert "not plain YAML" in one_line_error(capsys, "train", "--config", str(tmp_path / "bad.yaml"))
    (tmp_path / "list.yaml").write_text("- method\n")
    assert "must hold a mapping" in one_line_error(capsys, "train", "--config", str(tmp_path / "list.yaml"))
