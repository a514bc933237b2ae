"""Users' own rules: decorated functions, subclasses, entry points, files; and what is refused."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.calls import one_line_error, out
from tests.refusals import refusal

from creditscope import CreditRule, CreditscopeError, credit_rule, register
from creditscope.credit import registry
from creditscope.data import load_dataset
from creditscope.training.build import build_model
from creditscope.training.loop import train
from creditscope.training.spec import make_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "sign_symmetric.py"
TINY = {"width": 8, "depth": 2, "epochs": 1, "batch_size": 2000}


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_rules", dict(registry._rules))
    monkeypatch.setattr(registry, "_origin", dict(registry._origin))
    registry._load_others.cache_clear()
    yield
    registry._load_others.cache_clear()


def test_every_rule_of_the_papers_is_listed_with_one_line(capsys):
    lines = out(capsys, "rules").splitlines()
    names = [line.split()[0] for line in lines]
    assert names[:6] == ["bp", "fa", "dfa", "ep", "sb", "cb"]
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)
    # read from the source; the classes say the same
    assert registry.summaries() == {name: rule.summary for name, rule in registry.all_rules().items()}
    assert all(rule.name == name for name, rule in registry.all_rules().items())


def test_a_decorated_function_trains_like_any_rule(tmp_path):
    @credit_rule("push-up", summary="the same push for everything")
    def push_up(hiddens, logits, y):
        return [-torch.ones_like(h) for h in hiddens]

    bundle = train(make_spec({"method": "push-up", "credit_norm": "none", **TINY}), tmp_path / "run")
    # a constant gradient -1 moves Adam by exactly lr at each step: the bias of the embedding has risen by the sum of lr
    data = load_dataset("quadratic")
    before = build_model(bundle.spec, data.input_shape, data.n_classes).get_parameter("embed.linear.bias")
    risen = (bundle.model(data).get_parameter("embed.linear.bias") - before).detach().numpy()
    lrs = 2e-3 * 0.5 * (1 + np.cos(np.pi * np.arange(10) / 10))
    np.testing.assert_allclose(risen, lrs.sum(), rtol=0.02)
    assert registry.all_rules()["push-up"].summary == "the same push for everything"


def test_a_name_can_be_taken_only_once():
    with pytest.raises(CreditscopeError, match=r"'bp' exists already \(creditscope\)"):

        @register
        class Mine(CreditRule):
            name = "bp"


@pytest.mark.parametrize("name", ["", "a b", "../x"])
def test_a_rule_needs_a_plain_name(name):
    rule = type("Mine", (CreditRule,), {"name": name})
    assert "needs a name of letters" in refusal(lambda: register(rule))


def test_register_refuses_what_is_not_a_rule():
    with pytest.raises(CreditscopeError, match="subclass of CreditRule"):
        register(lambda *a: [])  # type: ignore[type-var]


def test_rules_of_another_package_come_through_its_entry_point(monkeypatch):
    point = importlib.metadata.EntryPoint("theirs", "tests.credit.plugin:Theirs", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.GROUP else [])
    assert registry.rule_class("theirs").name == "theirs"


def test_a_broken_entry_point_is_one_line(monkeypatch):
    point = importlib.metadata.EntryPoint("gone", "no_such_module:X", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    with pytest.raises(CreditscopeError, match=r"entry point 'gone'.*cannot be loaded") as caught:
        registry.all_rules()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("x = 1\n", "registers no credit rule"), ("1/0\n", "ZeroDivisionError"), (None, "is not a file")],
)
def test_a_file_that_gives_no_rule_is_one_line(text, says, tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(registry.VARIABLE, str(path))
    with pytest.raises(CreditscopeError, match=says):
        registry.all_rules()


def test_the_documented_example_is_short_and_matches_its_formula():
    assert len(EXAMPLE.read_text().splitlines()) < 40
    registry.load_rule_file(EXAMPLE)
    from creditscope.credit.base import CreditBatch
    from creditscope.models import ResMLP
    from creditscope.stream.interface import InterfaceStream

    torch.manual_seed(0)
    model = ResMLP(6, 3, width=5, depth=2).double()
    stream = InterfaceStream(model, torch.randn(3, 6).double())
    rule = registry.make_rule("sign-symmetric")
    rule.setup(stream, 3, torch.Generator())
    g = torch.randn(4, 5).double()
    batch = CreditBatch(stream, [torch.zeros(4, 5).double()] * 3, torch.zeros(4, 3).double(), torch.zeros(4).long(), g)
    a = g.numpy()
    for block in reversed(model.blocks):
        w1, w2 = (getattr(block, n).weight.detach().numpy() for n in ("linear1", "linear2"))
        s1, s2 = ((w > 0) * 2.0 - 1 for w in (w1, w2))
        a = a + (a @ s2 * abs(w2).mean()) @ s1 * abs(w1).mean()
    assert torch.allclose(rule.credit(batch)[0], torch.from_numpy(a))
    assert torch.equal(rule.credit(batch)[2], g)


def test_the_documented_example_works_in_train_diagnose_and_demo_without_any_other_change(tmp_path):
    env = {**os.environ, registry.VARIABLE: str(EXAMPLE)}
    call = [sys.executable, "-c", "import sys; from creditscope.cli import main; sys.exit(main())"]
    tiny = ["--width", "8", "--depth", "2", "--epochs", "1", "--batch-size", "2000"]
    run = [*call, "train", "--method", "sign-symmetric", "--credit-norm", "none", *tiny, "--out", str(tmp_path / "r")]
    for command in (run, [*call, "diagnose", str(tmp_path / "r")]):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "sign-symmetric(none)" in done.stdout
    demo = ["demo", "--epochs", "1", "--seeds", "1", "--method", "sign-symmetric:none", "--out", str(tmp_path / "d")]
    done = subprocess.run([*call, *demo], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    audit = json.loads((tmp_path / "d" / "audit.json").read_text())
    assert "sign-symmetric(none)" in [entry["method"] for entry in audit]


def test_a_rule_that_raises_is_named_in_one_line(tmp_path):
    @credit_rule("crash-test")
    def crash(hiddens, logits, y):
        return 1 / 0

    spec = make_spec({"method": "crash-test", "credit_norm": "none", "width": 8, "depth": 1, "epochs": 1})
    with pytest.raises(CreditscopeError, match="credit rule 'crash-test' raised ZeroDivisionError: division by zero"):
        train(spec, tmp_path / "run")


def test_the_decorator_needs_a_name():
    with pytest.raises(CreditscopeError, match="takes the name of the rule"):

        @credit_rule  # type: ignore[arg-type]
        def nameless(hiddens, logits, y):
            return hiddens


KEEPS_NOTHING = """
import torch
from creditscope import CreditRule, register

@register
class Leaky(CreditRule):
    name = "leaky"
    def setup(self, stream, n_classes, generator):
        self.B = [torch.randn(n_classes, w, generator=generator) for w in stream.widths]
    def credit(self, batch):
        return [batch.error @ b for b in self.B]
"""
SAVES_ONE_TOO_FEW = """
    def state(self):
        return {str(k): b for k, b in enumerate(self.B[:-1])}
    def load(self, state):
        self.B = [*state.values(), torch.zeros_like(state["0"])]
"""
SAVES_ALL = """
    def state(self):
        return {str(k): b for k, b in enumerate(self.B)}
    def load(self, state):
        self.B = list(state.values())
"""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "",
            r"'leaky' cannot be saved: it owns B and has 0 tensors in its state\(\).*AttributeError.*load\(\) take them back$",
        ),
        (SAVES_ONE_TOO_FEW, r"has 2 tensors in its state\(\): once loaded its credit at layer 2 differs"),
        ("\n    def state(self):\n        return self.B\n", "must return a dict of names and tensors"),
    ],
)
def test_a_rule_that_does_not_survive_being_saved_is_one_line_before_it_trains(body, says, tmp_path, monkeypatch):
    (tmp_path / "leaky.py").write_text(KEEPS_NOTHING + body)
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "leaky.py"))
    with pytest.raises(CreditscopeError, match=says) as caught:
        train(make_spec({"method": "leaky", "credit_norm": "none", **TINY}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_rule_that_saves_everything_trains_and_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "leaky.py").write_text(KEEPS_NOTHING + SAVES_ALL)
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "leaky.py"))
    bundle = train(make_spec({"method": "leaky", "credit_norm": "none", **TINY}), tmp_path / "run")
    assert [tuple(b.shape) for b in bundle.rule().B] == [(10, 8)] * 3  # type: ignore[attr-defined]


DFA_AGAIN = "from creditscope import credit_rule\n@credit_rule('dfa')\ndef mine(h, logits, y):\n    return h\n"
TWICE = "from creditscope import credit_rule\n" + 2 * "@credit_rule('twice')\ndef mine(h, logits, y):\n    return h\n"


@pytest.mark.parametrize(
    ("text", "name"), [(DFA_AGAIN, "'dfa' exists already (creditscope)"), (TWICE, "'twice' exists already")]
)
@pytest.mark.parametrize(
    "command",
    [
        ["rules"],
        ["train", "--method", "dfa", "--credit-norm", "rms"],
        ["train", "--method", "bp"],
        ["study", "plan", "audit"],
        ["diagnose", "BUNDLE"],
    ],
)
def test_a_second_rule_of_one_name_is_refused_by_every_command(text, name, command, tmp_path, monkeypatch, capsys):
    if command == ["diagnose", "BUNDLE"]:
        train(make_spec({"method": "dfa", "credit_norm": "none", **TINY}), tmp_path / "run")
        command = ["diagnose", str(tmp_path / "run")]
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "mine.py"))
    registry._load_others.cache_clear()
    for _ in range(2):  # and again by the next call in the same process
        message = one_line_error(capsys, *command)
        assert name in message
        assert message.count("\n") == 1
    with pytest.raises(CreditscopeError, match="exists already"):  # and where a built-in rule is asked for by its name
        registry.rule_class("bp")


def test_two_files_of_one_name_are_two_files(tmp_path, monkeypatch):
    files = [tmp_path / part / "mine.py" for part in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text(TWICE.rsplit("@", 1)[0])
    monkeypatch.setenv(registry.VARIABLE, os.pathsep.join(map(str, files)))
    assert f"b{os.sep}mine.py: credit rule 'twice' exists already (mine.py)" in refusal(registry.all_rules)


@pytest.mark.parametrize("first", ["imported", "named"])
def test_a_file_that_is_named_and_imported_is_one_rule(first, tmp_path, monkeypatch):
    file = tmp_path / "my_rules_twice_known.py"
    file.write_text(TWICE.rsplit("@", 1)[0])
    monkeypatch.setenv(registry.VARIABLE, str(file))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    if first == "named":
        assert registry.knows("twice")
    own = importlib.import_module(file.stem).mine
    assert registry.rule_class("twice").__qualname__ == own.__qualname__
    with pytest.raises(CreditscopeError, match="exists already"):  # another rule of the name is another rule

        @credit_rule("twice")
        def mine(hiddens, logits, y):
            return hiddens
