"""Things that show themselves: as text, Markdown, a figure, a card in a notebook, a data frame.

What is shown is data and knows no renderer. The public door (`creditscope/__init__.py`) says which module renders which class.
The functions `text`, `markdown`, `html`, `plot` and `frame` of that module take the thing; they are loaded when first used.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_modules: dict[str, str] = {}


def wire(**modules: str) -> None:
    """Class name -> the module that renders it."""
    _modules.update(modules)


class Shown:
    """Mixed into a class, it gives it every form of output."""

    def _shown(self, form: str, **options: Any) -> Any:
        module = next(_modules[c.__name__] for c in type(self).__mro__ if c.__name__ in _modules)
        drawn = random.getstate()  # rich draws numbers when it is loaded
        try:
            return getattr(import_module(module), form)(self, **options)
        finally:
            random.setstate(drawn)

    def __str__(self) -> str:
        return str(self._shown("text"))

    def to_markdown(self) -> str:
        return str(self._shown("markdown"))

    def _repr_html_(self) -> str:
        """What a notebook shows: in light and in dark."""
        return str(self._shown("html"))

    def plot(self) -> Figure:
        """A matplotlib figure."""
        figure: Figure = self._shown("plot")
        return figure

    def to_frame(self) -> Any:
        """A data frame of pandas, or of polars where pandas is not installed."""
        return self._shown("frame")
