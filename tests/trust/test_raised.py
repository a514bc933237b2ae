"""Whatever the user's code raises, and whenever: the model is left as found. `raised.py` as a command takes every call."""

from __future__ import annotations

import pytest
from tests.trust import raised


@pytest.mark.parametrize("case", raised.CASES, ids=lambda case: case.name)
def test_an_exception_in_the_users_code_leaves_everything_as_found(case):
    n = raised.calls(case)
    assert n > 1
    for k in sorted({1, 2, n // 2, n - 1, n} - {0}):
        raised.planted(case, k)
