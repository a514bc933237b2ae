"""Do the tests bite? Each defect of mutants.csv is put into a copy of the tree, and its test must fail there.

By hand: `make mutate`, or python tests/trust/mutate.py [WORD]: the defects whose file, function, behaviour or test has WORD.
One process loads torch and forks for every defect, so that a defect costs its test and not the start of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.trust.defects import MUTANTS, GoneError, Mutant, mutated  # noqa: E402

SLOTS = 2
TIMEOUT = 120
NEEDS_JAX = ("integrations/test_jax.py::", "test_arrays.py::test_bfloat16_")
CAUGHT, SURVIVED, GONE, NO_TEST = "caught", "SURVIVED", "PLACE IS GONE", "TEST DOES NOT RUN"


def copy_tree(slot: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "_build", ".venv", "*.png", "*.gif")
    for name in ("src", "tests", "docs", "examples", "board"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, slot / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "Makefile", "CHANGELOG.md"):
        shutil.copy(ROOT / name, slot / name)


def preload() -> None:
    """Everything slow that is not ours; the copy of creditscope is imported by the child alone."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    import hypothesis
    import pydantic
    import pytest
    import safetensors.torch
    import scipy.stats
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    assert all((hypothesis, pydantic, pytest, safetensors.torch, scipy.stats, torch._dynamo))
    assert not any(name.split(".")[0] == "creditscope" for name in sys.modules)


def run_tests(slot: Path, tests: list[str], log: Path) -> int:
    """In a forked child: pytest's exit code for these tests against the copy in `slot`."""
    import pytest

    os.setsid()
    os.chdir(slot)
    sys.path[:] = [str(slot / "src"), str(slot), *(p for p in sys.path if Path(p) not in (ROOT, ROOT / "src"))]
    os.environ["PYTHONPATH"] = str(slot / "src")  # of the processes that a test starts
    for name in [n for n in sys.modules if n.split(".")[0] == "tests"]:
        del sys.modules[name]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        nodes = [f"tests/{test}" for test in tests]
        code = int(
            pytest.main(["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line", "-W", "ignore", *nodes])
        )
    import creditscope

    if slot not in Path(creditscope.__file__).parents:
        code = 99
    log.write_text(out.getvalue())
    return code


def start(slot: Path, tests: list[str], log: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            code = run_tests(slot, tests, log)
        except BaseException as error:
            log.write_text(f"{type(error).__name__}: {error}")
            code = 98
        os._exit(code)
    return pid


def wait_for(running: dict[int, tuple[Path, int, float]]) -> tuple[int, int]:
    """(pid, exit code) of the next child; one that hangs is killed and counts as failed (code 1)."""
    while True:
        for pid, (_, _, started) in running.items():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return pid, os.waitstatus_to_exitcode(status)
            if time.monotonic() - started > TIMEOUT:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return pid, 1
        time.sleep(0.02)


def outcome(code: int, log: Path) -> str:
    text = log.read_text() if log.exists() else ""
    if code == 0:
        return SURVIVED
    if code == 1 and "error during collection" not in text:
        return CAUGHT
    return CAUGHT if "CreditscopeError" in text and code in (1, 2) else NO_TEST


def examine(mutants: list[Mutant], work: Path) -> dict[int, tuple[str, str]]:
    """index -> (outcome, log) of every mutant, SLOTS at a time."""
    slots = [work / f"slot{k}" for k in range(SLOTS)]
    for slot in slots:
        copy_tree(slot)
    free, todo = list(slots), list(enumerate(mutants))
    running: dict[int, tuple[Path, int, float]] = {}
    results: dict[int, tuple[str, str]] = {}
    while todo or running:
        while todo and free:
            index, mutant = todo.pop(0)
            original = (ROOT / "src" / "creditscope" / mutant.file).read_text()
            try:
                changed = mutated(original, mutant.function, mutant.old, mutant.new)
            except GoneError as error:
                results[index] = (GONE, str(error))
                continue
            slot = free.pop()
            (slot / "src" / "creditscope" / mutant.file).write_text(changed)
            running[start(slot, [mutant.test], work / f"{index}.log")] = (slot, index, time.monotonic())
        if not running:
            break
        pid, code = wait_for(running)
        slot, index, _ = running.pop(pid)
        shutil.copy(
            ROOT / "src" / "creditscope" / mutants[index].file, slot / "src" / "creditscope" / mutants[index].file
        )
        free.append(slot)
        log = work / f"{index}.log"
        results[index] = (outcome(code, log), log.read_text() if log.exists() else "")
    return results


def sound(tests: list[str], work: Path) -> str:
    """What pytest says where the named tests do not all pass on the tree as it is; empty if they do."""
    slot, log = work / "sound", work / "sound.log"
    copy_tree(slot)
    pid = start(slot, tests, log)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "" if code == 0 else log.read_text() or f"exit code {code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*")
    parser.add_argument("--record", action="store_true", help="write the outcome into docs/reliability.md")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if all(any(w in text for text in m) for w in options.word)]
    if find_spec("jax") is None and (left := [m for m in chosen if m.test.startswith(NEEDS_JAX)]):
        print(f"{len(left)} defects need jax (make test-jax installs it) and are left out")
        chosen = [m for m in chosen if m not in left]
    if not chosen:  # pytest without a name would run everything
        print("no defect to try: give words of mutants.csv")
        return 2
    started = time.monotonic()
    preload()
    with tempfile.TemporaryDirectory(prefix="creditscope-mutate-") as directory:
        if bad := sound(list(dict.fromkeys(m.test for m in chosen)), Path(directory)):
            print(f"the tests do not pass without a defect:\n{bad}")
            return 2
        results = examine(chosen, Path(directory))
    print(f"{'file':<28} {'breaks':<46} {'outcome':<10} test")
    for index, m in enumerate(chosen):
        print(f"{m.file:<28} {m.breaks:<46} {results[index][0]:<10} {m.test}")
        if results[index][0] != CAUGHT:
            print(f"    {m.old!r} -> {m.new!r}\n    " + results[index][1][-800:].replace("\n", "\n    "))
    if options.record:
        from tests.trust.record import put_row

        caught = sum(results[k][0] == CAUGHT for k in range(len(chosen)))
        put_row("`make mutate`", [str(len(chosen)), f"{caught} caught", f"{len(chosen) - caught} survive"])
    missed = [m for index, m in enumerate(chosen) if results[index][0] != CAUGHT]
    print(
        f"\n{len(chosen)} defects, {len(chosen) - len(missed)} caught, {len(missed)} not; {time.monotonic() - started:.0f} s"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
