"""A slice of `make mutate`, and the list itself: every place is there, every test that is named exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.trust.defects import MUTANTS, GoneError, mutated
from tests.trust.odd_networks import CASES

ROOT = Path(__file__).parents[2]
ODD_FILE = "trust/test_odd_networks.py"


@pytest.mark.parametrize("room", sorted({m.file.partition("/")[0] for m in MUTANTS}))
def test_every_defect_has_its_place_and_its_test(room):
    for m in (m for m in MUTANTS if m.file.partition("/")[0] == room):
        assert mutated((ROOT / "src/creditscope" / m.file).read_text(), m.function, m.old, m.new)  # or GoneError
        file, _, node = m.test.partition("::")
        name, _, case = node.partition("[")
        assert not case or file != ODD_FILE or case.removesuffix("]") in {c.name for c in CASES}, m.test
        assert re.search(rf"def {name}\b", (ROOT / "tests" / file).read_text()), m.test


def test_the_list_is_long_and_holds_no_defect_twice():
    assert len(set(MUTANTS)) == len(MUTANTS) >= 270
    assert len({(m.file, m.function, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


def test_a_place_is_found_however_it_is_written():
    for written in ("x = (a  +\n     b) * 2  # why", "x = (a+b)*2"):
        source = f"def f(a, b):\n    {written}\n    return x\n"
        assert mutated(source, "f", "a + b", "a - b") == "def f(a, b):\n    x = (a - b) * 2\n    return x"
        assert mutated(source, "f", "return x", "pass").endswith("    pass")
        assert mutated(source, "", "", "f = None").endswith("return x\n\nf = None\n")
        for function, old in (("f", "a * b"), ("g", "a + b")):
            with pytest.raises(GoneError):
                mutated(source, function, old, "0")
    with pytest.raises(GoneError, match="2 times"):
        mutated("def f(a):\n    return a + a\n", "f", "a", "0")


@pytest.mark.slow
def test_a_few_defects_are_caught():
    command = [sys.executable, str(ROOT / "tests/trust/mutate.py"), "sign of"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert " 0 not" in done.stdout
