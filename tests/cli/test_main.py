"""The top level: help, version, exit codes, one-line errors."""

import contextlib
import errno
import re
import subprocess
import sys

import pytest

from creditscope.cli import main
from creditscope.cli.commands import ROOT, Group
from creditscope.protocol.report import make_report

from ..protocol.factory import make_facts
from .calls import commands, one_line_error, out


@pytest.mark.parametrize("words", list(commands(groups=True)), ids=" ".join)
def test_help_shows_an_example(words, capsys):
    with contextlib.suppress(SystemExit):
        assert main([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert re.search(rf"Example: (\w+=\S+ )?creditscope {' '.join(words)}", " ".join(text.split())), text


def test_a_group_alone_lists_its_commands(capsys):
    for words in ([], ["--help"], ["help"], ["study"], ["runs", "help"], ["pitfalls", "-h"]):
        assert main(words) == 0
        group = ROOT.commands[words[0]] if words[:1] and words[0] in ROOT.commands else ROOT
        assert isinstance(group, Group)
        listed = re.findall(r"^  ([a-z]+)  +\S", capsys.readouterr().out, re.MULTILINE)
        assert listed == list(group.commands)


def modules_after(*words: str) -> set[str]:
    """What a fresh process has imported when the command has ended."""
    program = (
        "import atexit, sys; from creditscope.cli import main\n"
        "atexit.register(lambda: print('\\n', *sys.modules)); main({})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.format(list(words))], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["runs"], ["--version"]], ids=" ".join)
def test_the_quick_answers_need_neither_tyro_nor_torch(words):
    assert not {"tyro", "torch", "pydantic"} & modules_after(*words)


def test_no_help_and_no_list_needs_torch():
    calls = [[*words, "--help"] for words in commands()]
    calls += [["rules"], ["study", "list"], ["pitfalls", "list"], ["pitfalls", "show", "PF05"]]
    program = f"""
import contextlib, sys
from creditscope.cli import main
for call in {calls}:
    with contextlib.suppress(SystemExit):
        main(call)
    print(*call, "loads", *{{"tyro", "torch"}} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [f"{' '.join(call)} loads tyro" for call in calls]


def test_the_index_of_a_store_is_read_without_torch(study_store):
    for words in (["runs", "list"], ["runs", "export"], ["study", "status"]):
        assert "torch" not in modules_after(*words, "--store", str(study_store))


def test_a_report_is_judged_again_without_torch(tmp_path):
    path = tmp_path / "report.json"
    make_report(make_facts()).to_json(path)
    for command in ("diagnose", "report"):
        assert "torch" not in modules_after(command, str(path))


def test_version(capsys):
    assert re.fullmatch(r"creditscope \d+\.\d+\.\d+\S*\n", out(capsys, "--version"))


def test_a_path_that_may_not_be_read_is_one_line(capsys, monkeypatch):
    def refuse(self):
        raise PermissionError(errno.EACCES, "Permission denied", "locked/spec.json")

    monkeypatch.setattr("creditscope.cli.rules.Rules.execute", refuse)
    assert "locked/spec.json: Permission denied; check the path" in one_line_error(capsys, "rules")
    for error, says in (
        (OSError(errno.ENOSPC, "No space left on device"), "creditscope: No space left on device\n"),
        (OSError(), "creditscope: OSError\n"),
        (OSError(errno.EIO, "broken\nline", "a\nb"), "creditscope: a b: broken line\n"),
    ):

        def fail(self, error=error):
            raise error

        monkeypatch.setattr("creditscope.cli.rules.Rules.execute", fail)
        assert one_line_error(capsys, "rules") == says
