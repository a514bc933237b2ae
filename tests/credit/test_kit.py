"""The kit for users' rules: every built-in rule passes it, and each thing it promises to find, it finds."""

from __future__ import annotations

import pytest

from creditscope.credit.registry import all_rules
from creditscope.testing import check_rule

BUILT_IN = [name for name, rule in all_rules().items() if rule.__module__.startswith("creditscope.")]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_rule_passes(name):
    assert len(check_rule(name)) == 10
