"""The figures of the documentation (`make figures`), from the runs in results/ and the profiles in images/profiles.json.

`python docs/figures.py --profiles runs/demo` first reads the depth profiles of a finished `make demo` into that file. Diagrams
are written here as boxes and arrows. Every figure brings its ground and its colours for both colour schemes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from creditscope.files import dump_json, write_atomic
from creditscope.measure.facts import DepthProfile
from creditscope.protocol import DiagnosticThresholds
from creditscope.render.charts import Dots, Level, Panel, Row
from creditscope.render.figures import audit_panels, layers_panels, profile_panel, temporal_panels
from creditscope.render.plots import figure
from creditscope.render.svg import framed, standalone
from creditscope.runs.archive import Archive
from creditscope.runs.groups import Group, audit

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
PROFILES = DOCS / "images" / "profiles.json"
LABELS = ("bp", "fa(none)", "fa(rms)", "dfa(none)", "dfa(rms)")
CURVES = {"bp": "BP", "fa(none)": "FA", "dfa(rms)": "DFA (rms)"}
"""What the first figure of the README shows, by the label of the method."""


# ---- measured ------------------------------------------------------------------------------------------------------------


def primary() -> list[Group]:
    """BP, FA and DFA of the primary audit: CIFAR-10, ResMLP d = 256, L = 4, 100 epochs, three seeds."""
    wanted = {
        "dataset": "cifar10", "arch": "resmlp", "width": 256, "depth": 4, "epochs": 100, "penalty": 0.0,
        "credit_site": "input", "grad_clip": None, "terminal_norm": True,
    }  # fmt: skip
    pool = [
        r
        for r in Archive(RESULTS).runs()
        if all(getattr(r.spec, key) in (value, None) for key, value in wanted.items())
    ]
    by_label = {g.label: g for g in audit(pool)}
    return [by_label[label] for label in LABELS]


def scale(groups: Sequence[Group]) -> list[Panel]:
    return [temporal_panels(groups)[1], layers_panels(groups)[0]]


def reference(groups: Sequence[Group]) -> list[Panel]:
    return [temporal_panels(groups)[2], layers_panels(groups)[1]]


def depth(groups: Sequence[Group]) -> list[Panel]:
    wanted = ("audit-accuracy", "audit-margin-matched")
    return [p for p in audit_panels(groups) if p.key in wanted]


def direction(groups: Sequence[Group]) -> list[Panel]:
    ceiling = DiagnosticThresholds().stability_drift_ceiling
    rows = [
        Row(g.label, [(f"seed {s}", r.facts.stability.per_layer[-1] or 0.0) for s, r in zip(g.seeds, g.reports, strict=True)])
        for g in groups
    ]  # fmt: skip
    convention = "mean pairwise cosine of batch-mean gradients at h_L, groups of 128 samples"
    level = Level(ceiling, f"C {ceiling:g}")
    return [
        Dots("c", "stability of the direction of g_L", convention, "stability", rows, levels=(level,), marks="one seed")
    ]


def profiles() -> list[Panel]:
    stored = json.loads(PROFILES.read_text(encoding="utf-8"))
    found = {name: [DepthProfile.model_validate(p) for p in stored[label].values()] for label, name in CURVES.items()}
    return [profile_panel(found)]


def collect(directory: Path) -> None:
    """The depth profiles of the networks that `creditscope demo` has trained, by label and seed."""
    from creditscope.training.bundle import find_bundles

    made: dict[str, dict[str, object]] = {}
    for bundle in find_bundles([directory / "networks"]):
        found = bundle.report["facts"]["profile"]
        if found is not None and bundle.spec.label in CURVES:
            made.setdefault(bundle.spec.label, {})[str(bundle.spec.seed)] = found
    write_atomic(PROFILES, dump_json(made))


def locality() -> list[Panel]:
    """The matrices of BP and DFA on one small untrained network (seed 0, 16 samples)."""
    import torch

    from creditscope import InterfaceStream, certify
    from creditscope.credit.registry import make_rule
    from creditscope.models import ResMLP
    from creditscope.render.certificate import certificate_matrix

    panels: list[Panel] = []
    for name in ("bp", "dfa"):
        torch.manual_seed(0)
        net = ResMLP(n_in=20, n_classes=10, width=64, depth=3)
        batch = torch.randn(16, 20), torch.randint(10, (16,))
        rule = make_rule(name)
        rule.setup(InterfaceStream(net, batch[0]), 10, torch.Generator().manual_seed(1))
        made = certificate_matrix(certify(rule, net, batch, objective={} if name == "bp" else {"credit_norm": "none"}))
        panels.append(replace(made, title=f"{name.upper()}. {made.title}"))
    return panels


# ---- drawn ---------------------------------------------------------------------------------------------------------------


class Diagram:
    """Boxes, arrows and words on a grid of pixels; the colours are those of the measured figures."""

    def __init__(self, width: int, height: int, alternative: str) -> None:
        self.size, self.alternative = (width, height), alternative
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, *lines: str, face: str = "open") -> None:
        """The first line is bold; words stand in the middle."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" class="f{face} lgrey" stroke-width="1.2"/>'
        )
        for k, line in enumerate(lines):
            top = y + h / 2 + 5 - 9 * (len(lines) - 1) + 18 * k
            self.words(x + w / 2, top, line, bold=k == 0, small=k > 0)

    def words(
        self, x: float, y: float, text: str, *, bold: bool = False, small: bool = False, anchor: str = "middle", colour: str = ""
    ) -> None:  # fmt: skip
        look = f' class="f{colour}"' if colour else ""
        look += ' font-weight="600"' if bold else ""
        look += ' font-size="12.5"' if small else ""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}"{look}>{escape(text)}</text>')

    def arrow(
        self, path: str, end: tuple[float, float], towards: str, colour: str = "grey", dashed: bool = False
    ) -> None:
        """A line and its head, which looks right, left, up or down."""
        x, y = end
        turned = {"right": (-8, -4, -8, 4), "left": (8, -4, 8, 4), "down": (-4, -8, 4, -8), "up": (-4, 8, 4, 8)}[
            towards
        ]
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="{path}" fill="none" class="l{colour}" stroke-width="1.6"{dashes}/>')
        a, b, c, d = turned
        self.parts.append(f'<path d="M{x} {y}l{a} {b}L{x + c} {y + d}z" class="f{colour}"/>')

    def svg(self) -> str:
        w, h = self.size
        return framed(
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {w} {h}" '
            f'font-family="Verdana, DejaVu Sans, sans-serif" font-size="14" aria-label="{escape(self.alternative)}">'
            + "".join(self.parts)
            + "</svg>"
        )


def stream() -> Diagram:
    made = Diagram(
        760, 250,
        "A network as a stream: x is embedded as h_0; each block adds f_l(h_l); the readout turns h_L into logits. "
        "Below each state stand the gradient g_l and the method's credit a_l, which Γ compares.",
    )  # fmt: skip
    made.box(12, 60, 92, 56, "embed", "x → h_0")
    made.box(660, 60, 90, 56, "readout", "→ logits")
    made.arrow("M104 88H656", (659, 88), "right")
    for x, name in ((176, "block 0"), (346, "block 1"), (516, "block L−1")):
        made.box(x, 12, 84, 40, name, face="good")
        made.arrow(f"M{x - 20} 88V32H{x - 4}", (x - 1, 32), "right")
        made.arrow(f"M{x + 84} 32H{x + 100}V82", (x + 100, 86), "down")
        made.words(x + 114, 80, "+", bold=True)
    for x, sub in ((130, "0"), (301, "1"), (638, "L")):
        made.words(x, 110, f"h_{sub}", bold=True)
        made.arrow(f"M{x} 164V126", (x, 120), "up", "0")
        made.words(x, 182, f"g_{sub}", colour="0", bold=True)
        made.words(x, 204, f"a_{sub}", colour="1", bold=True)
    made.words(471, 110, "…", bold=True)
    made.words(471, 182, "the gradient of the loss", small=True, colour="0")
    made.words(471, 204, "what the method sends instead", small=True, colour="1")
    made.words(380, 236, "Γ is the mean cosine between a_l and g_l", small=True)
    return made


def protocol() -> Diagram:
    made = Diagram(
        760, 330,
        "How the verdict is reached. D1 and D2 both fail: claim not supported, Mode 1. D3 fails: claim not supported. "
        "An interval that crosses a threshold: inconclusive. No null given: incomplete. Otherwise: trustworthy.",
    )  # fmt: skip
    rows = [
        ("D1 and D2", "Did the stream explode and the gradient vanish?", "claim not supported", "needs walk-back, Mode 1", "bad"),
        ("D3", "Do the trained blocks beat random ones by 2 pp?", "claim not supported", "needs walk-back", "bad"),
        ("evidence", "Do the numbers agree, and do the intervals decide?", "open", "inconsistent, inconclusive", "open"),
        ("baseline", "Was the random-blocks baseline (null) given?", "open", "incomplete", "open"),
    ]  # fmt: skip
    for k, (name, question, answer, verdict, face) in enumerate(rows):
        y = 14 + 66 * k
        made.box(16, y, 420, 50, name, question)
        made.box(532, y, 212, 50, answer, verdict, face=face)
        bad = ("both fail", "no", "no", "no")[k]
        made.arrow(f"M436 {y + 25}H528", (531, y + 25), "right")
        made.words(482, y + 18, bad, small=True)
        made.arrow(f"M226 {y + 50}V{y + 62}", (226, y + 65), "down")
    made.box(16, 14 + 66 * 4, 420, 44, "trustworthy", "no audited failure found: a minimum bar", face="good")
    return made


MEASURED = {"d1": scale, "d2": reference, "d3": depth, "c": direction}
DRAWN = {"stream": stream, "protocol": protocol}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", type=Path, help="a finished demo, to read its depth profiles first")
    parser.add_argument("--out", type=Path, default=DOCS / "images", help="where the figures are written")
    given = parser.parse_args()
    if given.profiles:
        collect(given.profiles)
    groups = primary()
    made = {name: standalone(figure(panels(groups))) for name, panels in MEASURED.items()}
    made |= {"profile": standalone(figure(profiles())), "locality": standalone(figure(locality(), columns=2))}
    made |= {name: draw().svg() for name, draw in DRAWN.items()}
    for name, drawn in made.items():
        write_atomic(given.out / f"{name}.svg", drawn.encode())


if __name__ == "__main__":
    main()
