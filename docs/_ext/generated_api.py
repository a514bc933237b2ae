"""The public names, one line each."""

from __future__ import annotations

import inspect

from md import plain, table

import creditscope


def api_list() -> str:
    rows = []
    for name in sorted(creditscope.__all__, key=str.lower):
        about = (inspect.getdoc(getattr(creditscope, name)) or "").split("\n\n")[0]
        rows.append([f"`{name}`", plain(" ".join(about.split()))])
    return table(["name", "is"], rows)
