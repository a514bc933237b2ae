"""Small audits to draw: trained in a second, or made by hand."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from creditscope.runs.groups import Group
from creditscope.training.bundle import Bundle
from creditscope.training.loop import train

from ..training.small import DFA_RMS, small_quadratic, spec, use

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %} {# x #}",
    r"\input{/etc/passwd} \write18{ls} $x$ % & # _ ^ ~ \\[3pt] --",
    "'\"><svg onload=alert(1)>",
    "a\u202eb\u2028c\x00d\x1b[31me",
    "x" * 10_000,
)


def trained(tmp_path: Path) -> list[Bundle]:
    """DFA (rms) and BP with their nulls, one seed, two epochs."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch, small_quadratic())
        dfa, bp = spec(**DFA_RMS, epochs=2), spec(method="bp", epochs=2)
        return [train(s, tmp_path / s.slug) for s in (dfa, bp, dfa.null("matched"), bp.null("bp"))]


def renamed(group: Group, **changes: Any) -> Group:
    """The group with other words in its reports and its label."""
    reports = tuple(r.model_copy(update=changes) for r in group.reports)
    return dataclasses.replace(group, label=changes.get("method_name", group.label), reports=reports)


def unpacked(data: str) -> Any:
    """The numbers that a page holds."""
    return json.loads(gzip.decompress(base64.b64decode(data)))
