"""What a mistake is answered with, everywhere in the library: one line."""

from collections.abc import Callable
from typing import Any

import pytest

from creditscope.errors import CreditscopeError


def refusal(call: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The line that says what was wrong with this call."""
    with pytest.raises(CreditscopeError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
