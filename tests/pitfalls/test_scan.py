"""The static scan: labelled snippets, look-alikes, suppression, formats, exit codes, odd files."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from tests.cli.calls import one_line_error, out

from creditscope.cli import main
from creditscope.pitfalls.scan import MAX_BYTES, scan

SNIPPETS = Path(__file__).parent / "snippets"
BAD = sorted((SNIPPETS / "bad").glob("*.py.txt"))
GOOD = sorted((SNIPPETS / "good").glob("*.py.txt"))


def expected(path: Path) -> set[tuple[int, str]]:
    """The labels of a snippet: `# <- PF02` on the line of the finding."""
    lines = path.read_text().splitlines()
    return {(k, label) for k, line in enumerate(lines, 1) for label in re.findall(r"# <- (PF\d\d)", line)}


def found(path: Path) -> set[tuple[int, str]]:
    result = scan([path])
    assert not result.skipped
    return {(f.line, f.id) for f in result.findings}


def in_file(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "code.py"
    path.write_text(text)
    result = scan([path])
    assert not result.skipped, result.skipped
    return [f.id for f in result.findings]


def test_there_are_fifteen_of_each() -> None:
    assert len(BAD) == len(GOOD) == 15
    assert all(expected(p) for p in BAD)
    assert not any(expected(p) for p in GOOD)


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.name)
def test_no_miss(path: Path) -> None:
    assert found(path) == expected(path)


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.name)
def test_no_false_alarm(path: Path) -> None:
    assert found(path) == set()


def test_an_installed_package_is_scanned_without_a_crash_in_seconds() -> None:
    pytest.importorskip("lightning", reason="extra lightning is missing: the scan of a package is NOT tested")
    import lightning

    start = time.process_time()
    result = scan([Path(lightning.__file__).parent])
    assert time.process_time() - start < 10
    assert result.files > 100
    assert not result.skipped


TORCH = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"

MORE_BAD = {
    "pf01 each state": ("norms = [h.norm() for h in hs]", "PF01"),
    "pf01 each state, torch.norm": ("for k, h in enumerate(hiddens):\n    print(k, torch.norm(h))", "PF01"),
    "pf01 each state of the model": ("norms = [h.norm() for l, (h, g) in enumerate(zip(net.states[1:], gs))]", "PF01"),
    "pf05 whole batch": ("gamma = F.cosine_similarity(a.flatten(), d.reshape(-1), dim=0)", "PF05"),
    "pf14 zero by default": ("cos = (a * g).sum(1) / n\ncos = torch.nan_to_num(cos)", "PF14"),
    "pf01 vector_norm": ("torch.linalg.vector_norm(h, -1)", "PF01"),
    "pf01 other axis": ("h.norm(-2)", "PF01"),
    "pf02 torch.cosine_similarity": ("torch.cosine_similarity(a, w.grad, dim=0)", "PF02"),
    "pf02 same eps again": ("F.cosine_similarity(a, grad, dim=1, eps=1e-8)", "PF02"),
    "pf02 anonymous module": ("nn.CosineSimilarity(dim=0)(p.grad.flatten(), u.flatten())", "PF02"),
    "pf02 concatenation": ("F.cosine_similarity(torch.cat([p.grad.flatten() for p in ps]), u, dim=0)", "PF02"),
    "pf03 gradient cast": ("def f(p):\n    return p.grad.half().norm()", "PF03"),
    "pf03 loss from autocast": (
        "def f(m, x, h):\n    with torch.cuda.amp.autocast():\n        loss = m(x)\n    return torch.autograd.grad(loss, h)",
        "PF03",
    ),
    "pf07 a script": (
        "feedback = torch.randn(10, 64)\nmodel = build()\ntorch.save({'net': model.state_dict()}, 'x.pt')",
        "PF07",
    ),
    "pf10 two modes": (
        "def f(model, x, h, loss):\n    model.eval()\n    model(x)\n    g1 = torch.autograd.grad(loss, h)[0]\n"
        "    model.train()\n    g2 = torch.autograd.grad(loss, h)[0]\n    return my_cosine(g1, g2)",
        "PF10",
    ),
    "pf11 nested": ("F.normalize(hidden, dim=1).norm(dim=1)", "PF11"),
    "pf13 literal": (
        "def f(h, y, head):\n    loss = nn.CrossEntropyLoss()(head(h), y)\n    loss.backward()\n    return h.grad.norm() > 1e-7",
        "PF13",
    ),
    "pf14 conditional": ("cos = 1.0 if norm_a == 0 else cosine(a, b)", "PF14"),
    "pf14 masked": ("cos[g_norm == 0] = 1", "PF14"),
    "pf15 literal": ("good_seeds = [3, 7, 11]", "PF15"),
    "pf15 by name": ("print(max(acc_by_seed.values()))", "PF15"),
    "pf15 comprehension": ("best = max(accuracy(run(seed)) for seed in seeds)", "PF15"),
    "pf15 by hand": ("for seed in range(9):\n    if seed in (3, 4):\n        continue\n    run(seed)", "PF15"),
}
MORE_GOOD = {
    "pf01 each state per sample": "norms = [h.norm(dim=1).mean() for h in hs]",
    "pf01 each sample": "norms = [h.norm() for h in hidden] + [h.norm() for h in hiddens[0]]",
    "pf01 state dict": "sizes = {k: v.norm() for k, v in state.items()}\nmore = {k: v.norm() for k, v in states.items()}",
    "pf01 another function": "def f(hiddens):\n    return [v.shape for v in hiddens]\ndef g(v):\n    return v.norm()",
    "pf01 one tensor": "x = h.norm()\nclip = torch.norm(p.grad)",
    "pf01 each weight": "sizes = [w.norm() for w in weights]",
    "pf05 per sample": "F.cosine_similarity(a.flatten(1), d.flatten(1), dim=1)",
    "pf05 gradient of a weight": "F.cosine_similarity(p.grad.flatten(), u.flatten(), dim=0)  # creditscope: ignore[PF02]",
    "pf01 float p": "h.norm(-1.0)",
    "pf01 starred": "torch.norm(h, *args)",
    "pf01 hidden keywords": "h.norm(-1, **options)",
    "pf02 not torch": "from mylib import cosine_similarity\ncosine_similarity(p.grad, q)",
    "pf02 requires_grad": "F.cosine_similarity(x.requires_grad_(), y)",
    "pf02 no_grad": "with torch.no_grad():\n    F.cosine_similarity(x, y)",
    "pf02 small eps": "F.cosine_similarity(a, grad, 1, 1e-30)",
    "pf02 gradient size": "F.cosine_similarity(grad_norms, depth)",
    "pf03 half of a list": "def f(x):\n    return x.half()",
    "pf03 inference": "def f(model, x):\n    model = model.half()\n    with torch.no_grad():\n        return model(x)",
    "pf07 seed": "gen = torch.Generator()\nfeedback = torch.randn(4, 4, generator=gen)\ntorch.save(m.state_dict(), 'x')",
    "pf07 whole model": "class A(nn.Module):\n    def __init__(self):\n        self.B = torch.randn(4, 4)\ntorch.save(A(), 'x')",
    "pf07 B is a batch": "B = torch.randn(4, 4)\nC = model(B)\ntorch.save(model.state_dict(), 'x')",
    "pf10 train only": "def f(model, x, y):\n    model.train()\n    model(x).backward()",
    "pf11 layer of the network": "class M(nn.Module):\n    def forward(self, h):\n"
    "        h = self.layer_norm(h)\n        return h.norm()",
    "pf13 weights": "def f(w, y):\n    loss = F.mse_loss(w, y)\n    loss.backward()\n    return w.grad.norm() < 1e-7",
    "pf14 clamp": "cos = torch.where(cos > 1, 1.0, cos)",
    "pf14 position code": "pos_cos = torch.where(mask_zero, torch.ones_like(pos_cos), pos_cos)",
    "pf15 worst": "worst = min(accs_by_seed)",
    "pf15 one seed": "best_seed_file = 'x'\nseeds = [1, 2, 3]\nseed = max(1, seed)",
    "pf15 per seed over epochs": "for seed in seeds:\n    accs = []\n"
    "    for e in range(9):\n        accs.append(step(e))\n    print(max(accs))",
}  # fmt: skip


@pytest.mark.parametrize(("text", "id"), MORE_BAD.values(), ids=MORE_BAD.keys())
def test_more_bad(tmp_path: Path, text: str, id: str) -> None:
    assert in_file(tmp_path, TORCH + text + "\n") == [id]


@pytest.mark.parametrize("text", MORE_GOOD.values(), ids=MORE_GOOD.keys())
def test_more_good(tmp_path: Path, text: str) -> None:
    assert in_file(tmp_path, TORCH + text + "\n") == []


@pytest.mark.parametrize(
    ("comment", "kept"),
    [
        ("# creditscope: ignore[PF01]", False),
        ("# creditscope: ignore", False),
        ("#creditscope:ignore[PF02, pf01]", False),
        ("# noqa  # creditscope: ignore[PF01] on purpose", False),
        ("# creditscope: ignore[PF02]", True),
        ("# creditscope: ignore[]", True),
        ("# creditscope", True),
    ],
)
def test_suppression(tmp_path: Path, comment: str, kept: bool) -> None:
    assert in_file(tmp_path, f"x = h.norm(-1)  {comment}\n") == (["PF01"] if kept else [])


def test_suppression_at_the_end_of_a_long_call(tmp_path: Path) -> None:
    text = "x = torch.norm(\n    h,\n    -1,\n)  # creditscope: ignore[PF01]\ny = h.norm(-1)\n"
    assert in_file(tmp_path, "import torch\n" + text) == ["PF01"]


def test_columns_count_characters(tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text('s = "‖Γ‖"; n = h.norm(-1)\n')
    (finding,) = scan([path]).findings
    assert (finding.line, finding.col) == (1, 16)


def test_our_own_code_is_clean() -> None:
    import creditscope

    result = scan([Path(creditscope.__file__).parent])
    assert [(f.path, f.line, f.id) for f in result.findings] == []
    assert result.files > 50
    assert not result.skipped


def test_a_third_party_package_without_a_crash() -> None:
    import torch

    result = scan([Path(torch.__file__).parent / "nn" / "modules"])
    assert result.files > 20
    assert not result.skipped


# ---- the command ------------------------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.py").write_text("x = 1\n")
    said = out(capsys, "pitfalls", "scan", tmp_path)
    assert "no findings in 1 file" in said
    assert "code alone does not show PF04, PF06, PF09, PF12: ask the authors" in said  # they have no rule for code
    (tmp_path / "bad.py").write_text("x = h.norm(-1)\n")
    assert main(["pitfalls", "scan", str(tmp_path / "good.py"), str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{tmp_path / 'bad.py'}:1:5: PF01 " in said
    assert "why: " in said
    assert "fix: " in said
    assert "1 finding in 2 files" in said, "a file that is named twice is read once"
    assert "absent" in one_line_error(capsys, "pitfalls", "scan", tmp_path / "absent")
    one_line_error(capsys, "pitfalls", "scan")


def test_nothing_scanned_is_not_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert "there is no .py file" in one_line_error(capsys, "pitfalls", "scan", tmp_path / "empty")
    (tmp_path / "empty" / "odd.py").write_text("def (\n")
    assert main(["pitfalls", "scan", str(tmp_path / "empty"), "--format", "json"]) == 2
    assert "1 skipped (see above)" in capsys.readouterr().err


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("x = h.norm(-1)\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert main(["pitfalls", "scan", str(tmp_path), "--format", "json"]) == 1
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert content["files"] == 1
    (finding,) = content["findings"]
    assert (finding["id"], finding["line"], finding["col"]) == ("PF01", 1, 5)
    assert finding["why"]
    assert finding["fix"]
    assert finding["path"].endswith("bad.py")
    assert content["skipped"][0]["path"].endswith("broken.py")
    assert "skipped" in captured.err


def test_github(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a,b%.py"
    path.write_text("x = h.norm(-1)\n")
    assert main(["pitfalls", "scan", str(path), "--format", "github"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert re.match(r"^::warning file=[^,]*a%2Cb%25\.py,line=1,col=5,title=PF01 [^,:]*::.* Fix: ", line)


def test_odd_files_are_skipped_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "latin.py").write_bytes(b"s = '\xe9\xff'\n")
    (tmp_path / "declared.py").write_bytes(b"# -*- coding: latin-1 -*-\ns = '\xe9'\nx = h.norm(-1)\n")
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfx = h.norm(-1)\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\x00\n")
    (tmp_path / "huge.py").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "deep.py").write_text("x = " + "-" * 50_000 + "1\n")
    (tmp_path / "nested.py").write_text("x = " + "(" * 150 + ")" * 150 + "\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    for name in (".venv", ".git", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bad.py").write_text("x = h.norm(-1)\n")
    (tmp_path / "notes.txt").write_text("x = h.norm(-1)\n")
    assert main(["pitfalls", "scan", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.count(": PF01 ") == 2, captured.out
    named = {Path(line.split("skipped ", 1)[1].split(": ", 1)[0]).name for line in captured.err.splitlines()}
    assert {"broken.py", "latin.py", "null.py", "huge.py", "deep.py", "loop", "gone.py", "self.py", "pipe.py"} <= named
    assert "Traceback" not in captured.err


def test_names_from_the_disk_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a\x1b[31m\n.py").write_text("x = h.norm(-1)\n")
    (tmp_path / "b\x1b.py").write_text("def f(:\n")
    if sys.platform == "linux":
        with open(os.fsencode(tmp_path) + b"/\xff.py", "w") as file:
            file.write("x = h.norm(-1)\n")
    for format in ("text", "json", "github"):
        assert main(["pitfalls", "scan", str(tmp_path), "--format", format]) == 1
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        if format == "json":
            assert len(json.loads(captured.out)["findings"]) == 2


def test_warnings_of_the_scanned_file_are_not_ours(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    assert in_file(tmp_path, "s = '\\d'\nx = h.norm(-1)\nassert (1, 'x')\n") == ["PF01"]
    assert not recwarn.list


def test_list_show_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    listed = out(capsys, "pitfalls", "list")
    assert all(f"PF{k:02d}  " in listed for k in range(1, 16))
    assert len(listed.splitlines()) == 16
    shown = out(capsys, "pitfalls", "show", "PF05")
    assert [line.split()[0] for line in shown.splitlines()] == ["PF05", "why:", "fix:"]
    assert out(capsys, "pitfalls", "show").count("fix: ") == 15
    assert len(json.loads(out(capsys, "pitfalls", "list", "--format", "json"))) == 15
    ran = out(capsys, "pitfalls", "run", "2", "PF14")
    assert all(word in ran for word in ("0.005", "100", "PF14"))
    assert "PF01" not in ran
    (row,) = json.loads(out(capsys, "pitfalls", "run", "3", "--format", "json"))
    assert (row["factor"], row["wrong"]) == ("Infinity", 0)
    one_line_error(capsys, "pitfalls", "run", "99")
    assert "scan" in out(capsys, "pitfalls")
    assert main(["pitfalls", "frobnicate"]) == 2


def test_notebooks_and_json_are_not_called_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nb.ipynb").write_text('{"cells": ["F.cosine_similarity(credit, grad)"]}')
    (tmp_path / "other.json").write_text("{}")
    for name, said in (("nb.ipynb", "export its code first: jupyter nbconvert"), ("other.json", "is JSON")):
        assert main(["pitfalls", "scan", str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err
