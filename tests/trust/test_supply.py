"""What creditscope stands on: pinned, licensed, listed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.trust.licences import canonical, closure, licence, page, parsed

ROOT = Path(__file__).parents[2]
COPYLEFT = re.compile(r"(?<!L)\bA?GPL|General Public License(?! v2 or later \(LGPL)", re.IGNORECASE)


def pinned() -> dict[str, str]:
    lines = [line.partition(";")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def declared() -> set[str]:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index("dependencies = [") : text.index("[project.urls]")]
    lines = [line for line in section.splitlines() if not line.lstrip().startswith("#")]
    return {parsed(found)[0] for found in re.findall(r'"([^"]+)"', "\n".join(lines))}


def test_every_dependency_that_is_declared_is_pinned_for_the_tests():
    assert declared() - {"creditscope"} - pinned().keys() == set()


def test_pins_are_exact_and_each_stands_once_per_python():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[A-Za-z0-9_.-]+==[^\s;]+( ; .+)?", line), line


def test_what_a_plain_install_brings_has_a_stated_licence_without_strong_copyleft():
    found = closure(
        ["torch", "numpy", "pydantic", "tyro", "rich", "safetensors", "scipy", "pyyaml", "matplotlib", "jinja2"]
    )
    for name, dist in found.items():
        if dist is not None and not name.startswith(("nvidia-", "cuda-")):
            assert licence(dist) != "not stated", name
            assert not COPYLEFT.search(licence(dist)), (name, licence(dist))


def test_the_list_of_licences_names_every_direct_dependency():
    text = (ROOT / "docs" / "licences.md").read_text()
    base = ("torch", "numpy", "pydantic", "tyro", "rich", "safetensors", "scipy", "pyyaml", "matplotlib", "jinja2")
    assert all(f"| {name} |" in text for name in base)
    assert page().startswith("# Licences")
