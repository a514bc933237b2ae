"""Exit codes and annotations of verdicts."""

from types import SimpleNamespace
from typing import Any

from creditscope.cli.output import annotation, exit_code


def test_exit_code_and_annotation_of_every_status():
    codes = {"pass": 0, "fail": 3, "inconsistent": 4, "inconclusive": 4, "incomplete": 4}
    levels = {"pass": "notice", "fail": "error"}

    def made(status: str) -> Any:
        verdict = SimpleNamespace(line="VERDICT: 50 %\nnot a command")
        return SimpleNamespace(status=status, method_name="a, b: c", verdict=verdict)

    for status, code in codes.items():
        assert exit_code([made(status)]) == code
        assert exit_code([made("pass"), made(status)]) == code
        assert exit_code([made("fail"), made(status)]) == 3
        title = f"creditscope {status}%3A a%2C b%3A c"
        wanted = f"::{levels.get(status, 'warning')} title={title}::VERDICT: 50 %25%0Anot a command"
        assert annotation(made(status)) == wanted
    assert exit_code([]) == 4
