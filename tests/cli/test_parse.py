"""Arguments: every mistake is one line that says what was probably meant."""

import pytest

from creditscope.cli import main

from .calls import commands, one_line_error


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["fly"], "unknown command 'fly'"),
        (["train", "--method", "magic"], "method 'magic' is unknown; choose one of"),
        (["train", "--method", "dfa"], "needs credit_norm"),
        (["train", "--method", "bp", "--credit-norm", "rms"], "do not apply to method bp"),
        (
            ["train", "--speed", "9"],
            "train: unknown option --speed; did you mean '--seed'?; see creditscope train --help",
        ),
        (
            ["train", "--credit-norm", "l2"],
            "--credit-norm is 'l2'; choose one of none, rms; see creditscope train --help",
        ),
        (["train", "--epoch", "1"], "unknown option --epoch; did you mean '--epochs'?; see creditscope train --help"),
        (["train", "--epochs", "abc"], "--epochs takes INT, not 'abc'; see creditscope train --help"),
        (["train", "--epochs", "-3"], "epochs: must be 1 or more (got -3)\n"),
        (
            ["diagnose"],
            "diagnose: missing PATH (Directory of the bundle, a record",
        ),
        (
            ["study", "show"],
            "study show: missing STUDY (Name of the study, or the path of a file that defines STUDY), --store",
        ),
        (["study", "plan", "rescue", "--seeds", "9"], "it chooses further runs from its results"),
        (["study", "run", "audit"], "study run: missing --store PATH (Directory of the store"),
        (["runs", "lst"], "unknown command 'runs lst'; did you mean 'list'? commands are list, show"),
        (["study", "dance"], "unknown command 'study dance'; commands are list, plan"),
        (["train", "--dataset", "cifar11"], "--dataset is 'cifar11'; did you mean 'cifar10'? choose one of"),
        (["train", "--epochs"], "train: --epochs needs a value (INT)"),
        (["train", "--option", "--method", "bp"], "train: --option needs a value"),
        (["demo", "--seeds", "1", "b"], "--seeds takes INT ..., not '1 b'"),
        (["diagnose", "a", "b"], "'b' is one argument too many"),
        (["pitfalls", "list", "PF05"], "pitfalls list takes no name; type creditscope pitfalls show PF05"),
        (["train", "--lr", "-1"], "lr: must be more than 0 (got -1.0)"),
        (["train", "--arch", "vit-mini"], "needs images"),
        (["diagnose", "nowhere"], "nowhere does not exist; give the directory of a bundle, a record or a report"),
        (["diagnose", "report.jsn"], "report.jsn does not exist"),
        (["claim", "new", "x", "--null", "a"], "--null takes FLOAT ..., not 'a'"),
        (["diagnose", "report.json"], "report.json does not exist"),
        (["checklist", __file__], "it is not a report: give a JSON file"),
        (["diagnose", "nowhere.npz"], "cannot read nowhere.npz: No such file"),
        (["report", "nowhere"], "nowhere is neither a directory nor a file"),
        (["diagnose", ".", "--protocol", "two-check"], "two-check"),
    ],
)
def test_a_users_mistake_is_one_line_with_code_2(args, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in one_line_error(capsys, *args)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_names_what_an_argument_is_and_not_its_type(words, capsys):
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert " STR" not in capsys.readouterr().out
