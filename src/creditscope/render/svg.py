"""The SVG of a drawing, slimmed for a page: a fifth of matplotlib's bytes, colours from the style sheet, a title on every mark.

matplotlib writes each marker, tick and clip path by itself, with a style of 200 letters per text. Here markers become plain
shapes, numbers have one decimal, what neighbours share stands on their group. Every colour is there twice: as an attribute, so
that the figure alone is right on white, and as a class, so that a page can change it for a dark ground.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import escape
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG

from creditscope.render.numbers import printable
from creditscope.render.plots import COLOURS, FACES, GREY, GRID, RULE, SETTINGS, UNDATED, Drawing

LINK = "{http://www.w3.org/1999/xlink}href"
CLASSES = {colour.lower(): f"{k}" for k, colour in enumerate(COLOURS)} | {
    RULE: "rule", GREY: "grey", GRID: "grid", **{face: kind for kind, face in FACES.items()},
}  # fmt: skip
GRID_LOOK = f'class="lgrid" fill="none" stroke="{GRID}" stroke-width="0.6"'
GRID_LINE = re.compile(rf'<path d="([^"]*)" {GRID_LOOK}/>')
GROUNDS = {
    "light": {"bg": "#ffffff", "fg": "#14191f", "grey": "#48525d", "rule": "#9b1420", "grid": "#e2e7ec",
              "good": "#dcebf7", "bad": "#fbe3d6", "open": "#f2f2f2", "plain": "#fdfdfd",
              "series": ("#0064a4", "#b34700", "#00735a", "#97407a", "#2b7fb8", "#8a6200", "#14191f")},
    "dark": {"bg": "#11161c", "fg": "#edf1f5", "grey": "#b3bec9", "rule": "#ff9c9c", "grid": "#28313a",
             "good": "#173449", "bad": "#4a2a17", "open": "#2a333d", "plain": "#1a2129",
             "series": ("#62b8f2", "#ff9a52", "#4fd1ae", "#e39ac8", "#9fd8ff", "#f0c95a", "#edf1f5")},
}  # fmt: skip
"""The colours of a figure that stands alone, on a light and on a dark ground."""
KEPT = ("stroke-width", "stroke-dasharray", "fill-opacity", "stroke-opacity", "opacity")


def svg(drawing: Drawing, key: str = "") -> Markup:
    """The figure as an element of a page: with its text alternative, and with a title on each mark."""
    frame, _, size = _drawn(drawing)
    return _figure(frame, size, key, drawing.alternative)


def layers(drawing: Drawing, alternatives: Mapping[str, str]) -> dict[str, Markup]:
    """A figure for each layer of a drawing, with its text alternative: the frame is drawn once, which is what takes time."""
    frame, marks, size = _drawn(drawing)
    return {layer: _figure(frame + marks[layer], size, layer, words) for layer, words in alternatives.items()}


def _drawn(drawing: Drawing) -> tuple[str, dict[str, str], tuple[float, float]]:
    """(what all layers share, what each layer has of its own, width and height)."""
    buffer = io.StringIO()
    with matplotlib.rc_context(SETTINGS):
        FigureCanvasSVG(drawing).print_svg(buffer, metadata=UNDATED["svg"])  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(buffer.getvalue())
    shapes = {e.get("id"): e for e in root.iter() if e.get("id")}
    width, height = (float(v) for v in root.get("viewBox", "0 0 1 1").split()[2:])
    marks = dict.fromkeys(drawing.layers.values(), "")
    for group in [e for e in root.iter() if e.get("id", "") in drawing.layers]:
        marks[drawing.layers[group.get("id", "")]] += _element(group, shapes, drawing.tips)
        group.clear()
    frame = "".join(_element(child, shapes, drawing.tips) for child in root)
    lines = GRID_LINE.findall(frame)
    frame = (f'<path d="{"".join(lines)}" {GRID_LOOK}/>' if lines else "") + GRID_LINE.sub("", frame)
    return frame, marks, (width, height)


def _figure(body: str, size: tuple[float, float], key: str, alternative: str) -> Markup:
    return Markup(
        f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" role="img" tabindex="0" '
        f'viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" font-family="DejaVu Sans, sans-serif" font-size="8" '
        f'data-key="{escape(printable(key), quote=True)}" aria-label="{escape(printable(alternative), quote=True)}">{body}</svg>'
    )


def standalone(drawing: Drawing) -> str:
    """The figure as a file of its own: it brings its ground, and follows the reader's colour scheme."""
    return framed(str(svg(drawing)))


def framed(drawn: str) -> str:
    """An SVG element whose colours are classes, with the style sheet of both grounds and a ground behind it."""
    start, _, body = drawn.partition(">")
    dark = f"@media (prefers-color-scheme: dark) {{ {_sheet('dark')} }}"
    return f'{start}><style>{_sheet("light")} {dark}</style><rect class="ground" width="100%" height="100%" rx="4"/>{body}\n'


def _sheet(name: str) -> str:
    c: dict[str, Any] = GROUNDS[name]
    rules = [f".ground {{ fill: {c['bg']} }} text:not([class]) {{ fill: {c['fg']} }}"]
    rules += [f".f{k} {{ fill: {v} }} .l{k} {{ stroke: {v} }}" for k, v in enumerate(c["series"])]
    rules += [f".f{k} {{ fill: {c[k]} }} .l{k} {{ stroke: {c[k]} }}" for k in ("grey", "rule", "grid", *FACES)]
    return " ".join(rules)


def _element(
    element: Element, shapes: dict[str | None, Element], tips: dict[str, list[str]], titles: list[str] | None = None
) -> str:
    """The element and what is in it, as text; "" for what is not seen."""
    tag = element.tag.split("}")[-1]
    if tag in ("metadata", "defs", "style"):
        return ""
    if tag == "g":
        mine = tips.get(element.get("id", ""))
        titles = list(reversed(mine)) if mine is not None else titles
        inner = "".join(_element(child, shapes, tips, titles) for child in element)
        if mine is not None and titles:
            raise AssertionError(f"{len(titles)} of {len(mine)} marks of {element.get('id')} were not drawn")
        return inner
    look = dict(part.split(": ", 1) for part in element.get("style", "").split("; ") if part)
    if tag == "text":
        return _text(element, look)
    if tag == "use":
        shape = shapes[element.get(LINK, "")[1:]]
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        drawn = _marker(shape.get("d", ""), x, y)
        return _shape(drawn, look, titles.pop() if titles else None)
    d = element.get("d", "")
    if not d or look == {"fill": "#ffffff"}:
        return ""  # the ground
    # a hatch is left out, its words say the same; the colour below it stays
    if look.get("fill", "").startswith("url(#"):
        look["fill"] = shapes[look["fill"][5:-1]][0].get("fill", FACES["open"])
    whole = titles is not None and len(titles) == 1 and look.get("fill", "#000000") != "none"  # a cell
    return _shape(f'path d="{_path(d)}"', look, titles.pop() if titles and whole else None)


def _shape(start: str, look: dict[str, str], title: str | None) -> str:
    names, attributes = ["m"] if title is not None else [], []
    for what, letter, default in (("fill", "f", "#000000"), ("stroke", "l", "none")):
        colour = look.get(what, default)
        if colour == "none" and what == "fill":
            attributes.append('fill="none"')
        elif colour != "none":
            attributes.append(f'{what}="{colour}"')
            if (name := CLASSES.get(colour.lower())) is not None:
                names.append(f"{letter}{name}")
    attributes += [f'{name}="{_round(look[name])}"' for name in KEPT if name in look]
    classes = f' class="{" ".join(names)}"' if names else ""
    end = "/>" if title is None else f"><title>{escape(printable(title))}</title></{start.split(maxsplit=1)[0]}>"
    return f"<{start}{classes} {' '.join(attributes)}{end}"


def _text(element: Element, look: dict[str, str]) -> str:
    words = escape(printable("".join(element.itertext())))
    if not words.strip():
        return ""
    turned = element.get("transform", "")
    place = f'transform="{_round(turned)}"' if "rotate(-90" in turned or "translate" in turned else ""
    x, y = (f'{k}="{_round(element.get(k, ""))}"' if element.get(k) else "" for k in ("x", "y"))
    parts = [x, y, place]
    if (size := look.get("font-size", "8px").removesuffix("px")) != "8":
        parts.append(f'font-size="{size}"')
    if (anchor := look.get("text-anchor", "start")) != "start":
        parts.append(f'text-anchor="{anchor}"')
    if (colour := look.get("fill")) in CLASSES:
        parts.append(f'class="f{CLASSES[colour]}" fill="{colour}"')
    return f"<text {' '.join(filter(None, parts))}>{words}</text>"


def _round(text: str) -> str:
    return re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), text)


def _path(d: str) -> str:
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", _round(d)).strip()


def _marker(d: str, x: float, y: float) -> str:
    """A marker at its place: a circle where it is round, else its outline."""
    if "C" in d:
        radius = max(abs(float(v)) for v in re.findall(r"-?[\d.]+(?:e-?\d+)?", d))
        return f'circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"'
    moved = re.sub(
        r"(-?[\d.]+(?:e-?\d+)?) (-?[\d.]+(?:e-?\d+)?)", lambda m: f"{float(m[1]) + x:.1f} {float(m[2]) + y:.1f}", d
    )
    return f'path d="{_path(moved)}"'
