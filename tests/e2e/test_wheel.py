"""What is released: the sdist builds the wheel, the wheel holds the whole package and works where only it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.pages import ROOT

from creditscope.protocol.report import make_report

from ..protocol.factory import make_facts

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomllib", reason="pyproject.toml is read by Python 3.11 and newer")

pytest.importorskip("hatchling", reason="hatchling builds the wheel; `make setup` installs it")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION: str = PROJECT["version"]


def run(*args: object, cwd: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COVERAGE"))}
    done = subprocess.run(
        [*map(str, args)], cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, f"{args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> tuple[Path, Path]:
    """(sdist, the wheel that is built from it)."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(out, filter="data")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=out / f"creditscope-{VERSION}")
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(released, tmp_path_factory) -> Path:
    """Directory of the programs of an environment that has the wheel and, beside it, only what the wheel needs."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    site = Path(
        run(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    )
    # The packages of this environment: those of its directory, none that a .pth file in it adds (as an editable install does).
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", programs / "python", "install", "-q", "--no-deps", "--no-index",
        "--ignore-installed", "--no-warn-script-location", released[1], cwd=home)  # fmt: skip
    return programs


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(released):
    home = ROOT / "src" / "creditscope"
    wanted = {
        f"creditscope/{p.relative_to(home).as_posix()}"
        for p in home.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    with zipfile.ZipFile(released[1]) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"creditscope-{VERSION}.dist-info/")}
        metadata = wheel.read(f"creditscope-{VERSION}.dist-info/METADATA").decode()
    assert names == wanted
    pages = {f"creditscope/render/html/page.{kind}" for kind in ("html", "css", "js")}
    assert pages | {"creditscope/py.typed"} <= names
    with tarfile.open(released[0]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert packed >= {
        "LICENSE",
        "README.md",
        "constraints.txt",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "tests/e2e/test_wheel.py",
    }
    assert f"\nVersion: {VERSION}\n" in metadata


def test_the_installed_wheel_makes_a_page(installed, tmp_path):
    where = run(installed / "python", "-c", "import creditscope; print(creditscope.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "creditscope", "--version", cwd=tmp_path).strip() == f"creditscope {VERSION}"
    made = make_report(make_facts(cosines=(0.3,) * 5, accuracy=0.4), headline_acc=0.4, method_name="mine")
    made.to_json(tmp_path / "mine.json")
    told = run(installed / "creditscope", "report", "mine.json", "--html", "page.html", cwd=tmp_path)
    assert "mine" in told
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for asset in ("page.css", "page.js"):
        assert (ROOT / "src" / "creditscope" / "render" / "html" / asset).read_text(encoding="utf-8") in page


def test_one_version_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == VERSION
    assert f"\n## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_workflows_cover_what_the_classifiers_name_and_make_what_exists():
    jobs = {
        p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    matrix = jobs["test"]["jobs"]["test"]["strategy"]["matrix"]
    named = {
        c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if c.startswith("Programming Language :: Python :: 3.")
    }
    assert set(matrix["python"]) == named
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in jobs["nightly"]["jobs"]["trust"]["strategy"]["matrix"]["target"]:
        assert f"\n{target}:" in makefile
    publish = jobs["release"]["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}  # trusted publishing: no token is stored
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
