"""The zoo: networks with known truth, and what each check and each policy must say of them.

A truth follows from the construction (see `networks`) and from the protocol's text, never from what the code prints.
"""

from __future__ import annotations

import torch
from tests.trust.networks import E_NORM, GROUP, Known, Network, Plus, Times

MODE_1, MODE_2 = "Mode 1", "Mode 2"
GOOD = {"matched": (0.50, 0.51, 0.52)}  # 10 pp below the headline, seed by seed
G1 = E_NORM / GROUP  # ‖g_L‖/128 at ε = 1


def _nan(model: Known) -> None:
    model.head.scale.fill_(float("nan"))


def _inf(model: Known) -> None:
    model.blocks[1].c.fill_(float("inf"))  # type: ignore[operator]


HEALTHY = [
    Network("healthy deep", null=GOOD, cosines=[1.0], g_128=G1),
    Network("healthy shallow", factors=(1.5,), growth=1.5, null=GOOD, cosines=[1.0], g_128=G1),
    Network("doubles twelve times: total growth is not growth", factors=(2.0,) * 12, growth=2.0, null=GOOD, g_128=G1),
    Network("contracts", factors=(0.01, 1.0), growth=1.0, null=GOOD, g_128=G1),
    Network("plain stream", factors=(2.2,) * 3, kind="plain", growth=1.2, null=GOOD, g_128=G1),
    Network("half the floor above it", epsilon=1.5e-7 * 128 / E_NORM, g_128=1.5e-7, null=GOOD, warns=["clamp:"]),
    Network("grows by 50 exactly", factors=(1.0, 50.0, 1.0), growth=50.0, null=GOOD, g_128=G1),
    Network("float64", dtype=torch.float64, null=GOOD, cosines=[1.0], g_128=G1),
    Network("bfloat16 keeps the floor of float32", dtype=torch.bfloat16, factors=(1.5, 1.0), growth=1.5, g_128=None,
        null=GOOD),
]  # fmt: skip
SCALE = [
    Network("explodes, reference intact", factors=(1.0, 1000.0, 1.0, 1.0), growth=1000.0, g_128=G1, null=GOOD,
        cosines=[0.5], checks="fail pass pass pass", three="pass", four="fail", four_mode="scale explodes",
        warns=["D1 alone"]),
    Network("grows by a little more than 50", factors=(1.0, 50.001), growth=50.001, null=GOOD,
        checks="fail pass pass pass", three="pass", four="fail", four_mode="scale explodes", warns=["D1 alone"]),
    Network("explodes and shrinks back: total growth 1", factors=(1024.0, 1 / 1024), growth=1024.0, g_128=G1,
        null=GOOD, checks="fail pass pass pass", three="pass", four="fail", four_mode="scale explodes",
        warns=["D1 alone"]),
    Network("half of the groups grow by 30, half by 80", factors=([1.0] * 4 + [30.0, 80.0, 1.0, 1.0],), x="split",
        growth=55.0, g_128=G1, null=GOOD, checks="? pass pass pass", three="pass", four="inconclusive"),
]  # fmt: skip
REFERENCE = [
    Network("reference at the floor, scale intact", epsilon=1e-9, g_128=1e-9 * G1, null=GOOD, cosines=[0.9],
        withheld=True, checks="pass fail pass pass", three="pass", four="fail", four_mode=f"{MODE_1}",
        warns=["D2 alone", "clamp:"]),
    Network("a little under the floor", epsilon=0.99e-7 * 128 / E_NORM, g_128=0.99e-7, null=GOOD, withheld=True,
        checks="pass fail pass pass", three="pass", four="fail", four_mode=MODE_1, warns=["D2 alone", "clamp:"]),
    Network("float64 does not lower the floor", epsilon=1e-12, dtype=torch.float64, g_128=1e-12 * G1, null=GOOD,
        withheld=True, checks="pass fail pass pass", three="pass", four="fail", four_mode=MODE_1, warns=["D2 alone",
        "clamp:"]),
    Network("float16 raises the floor", epsilon=3e-7 * 128 / E_NORM, dtype=torch.float16, factors=(1.5, 1.0),
        growth=1.5, null=GOOD, withheld=True, checks="pass fail pass pass", three="pass", four="fail",
        four_mode=MODE_1, warns=["float16", "D2 alone"]),
    Network("saturated: the loss is zero, so is its gradient", bias=1000.0, y="one", factors=(1.0, 1.0), growth=1.0,
        g_128=0.0, null=GOOD, withheld=True, checks="pass fail ? x", three="inconclusive", four="fail",
        four_mode=MODE_1, warns=["D2 alone"]),
    Network("no gradient at all: a head of zeros", epsilon=0.0, g_128=0.0, null=GOOD, cosines=[1.0], withheld=True,
        checks="pass fail pass x", three="pass", four="fail", four_mode=MODE_1,
        warns=["samples without a measurable cosine"]),
]  # fmt: skip
MODE_1_NETS = [
    Network("exploded stream under a terminal norm", factors=(1.0, 1e3, 1e3, 1.0), growth=1e3, terminal_norm=True,
        g_128=1e-6 * G1, null=GOOD, cosines=[1.0], checks="fail fail pass pass", three="fail", four="fail",
        mode=MODE_1, four_mode=f"{MODE_1}: measurement degenerate (noise", withheld=True, warns=["clamp:"]),
    Network("the same, drift-dominated", factors=(1.0, 1e3, 1e3, 1.0), growth=1e3, terminal_norm=True, y="drift",
        g_128=1e-6 * G1, null=GOOD, cosines=[1.0], checks="fail fail pass fail", three="fail", four="fail", mode=MODE_1,
        four_mode=f"{MODE_1}: measurement degenerate (drift", withheld=True, warns=["C:"]),
    Network("the same, and depth unused", factors=(1.0, 1e3, 1e3, 1.0), growth=1e3, terminal_norm=True,
        g_128=1e-6 * G1, null={"matched": (0.60, 0.615, 0.615)}, checks="fail fail fail pass", three="fail",
        four="fail", mode="depth unused", withheld=True),
    Network("exploded, no null given: still Mode 1", factors=(1e3, 1e4), growth=1e4, terminal_norm=True,
        g_128=1e-7 * G1, checks="fail fail - pass", three="fail", four="fail", mode=MODE_1, withheld=True),
    Network("exploded, reference above the floor in half of the groups", factors=(100.0, 100.0, [1.0] * 4 + [1.0,
        40.0, 1.0, 1.0]), x="split", growth=100.0, terminal_norm=True, g_128=1e-4 * G1 * (1 + 1 / 40) / 2, null=GOOD,
        checks="fail ? pass pass", three="inconclusive", four="fail", four_mode="scale explodes",
        warns=["D1 fails and D2 is open"]),
]  # fmt: skip
DEPTH = [
    Network("dead blocks", factors=(1.0,) * 4, growth=1.0, null={"matched": (0.60, 0.61, 0.62)}, cosines=[1.0],
            checks="pass pass fail pass", three="fail", four="fail", mode="depth unused"),
    Network("blocks do harm", null={"matched": (0.63, 0.65, 0.64)},
            checks="pass pass fail pass", three="fail", four="fail", mode="depth unused"),
    Network("2 pp exactly, one network, no test set: the evaluation samples do not decide", acc=0.36, null={"matched": 0.34},
            checks="pass pass ? pass", three="inconclusive", warns=["this network only"]),
    Network("1.9 pp, one network, no test set", acc=0.359, null={"matched": 0.34}, warns=["this network only"],
            checks="pass pass ? pass", three="inconclusive", four="fail", four_mode="depth unused"),
    Network("12 pp, one network, no test set", acc=0.47, null={"matched": 0.35}, warns=["this network only"]),
    Network("reaches chance, far above its null", acc=(0.10, 0.15, 0.25), null={"matched": (0.01, 0.06, 0.16)},
            checks="pass pass ? pass", three="inconclusive"),
    Network("3 pp with seeds that scatter", acc=(0.50, 0.56, 0.53), null={"matched": (0.50, 0.50, 0.50)},
            checks="pass pass ? pass", three="inconclusive", four="inconclusive"),
    Network("one network, 10,000 test samples, 10 pp", acc=0.60, null={"matched": 0.50}, n_test=10_000, warns=["network only"]),
    Network("one network, 100 test samples, 10 pp", acc=0.60, null={"matched": 0.50}, n_test=100,
            checks="pass pass ? pass", three="inconclusive", four="inconclusive", warns=["this network only"]),
    Network("no null", checks="pass pass - pass", three="incomplete", four="incomplete"),
    Network("a task that cannot show depth: BP does not beat its null",
            acc=0.70, null={"matched": 0.60, "bp": 0.908}, bp_acc=0.796,
            checks="pass pass x pass", three="incomplete", four="incomplete"),
    Network("beats the matched null, not the strong one", null={"matched": (0.50, 0.51, 0.52), "bp": (0.60, 0.61, 0.62)},
            warns=["the null decides D3"]),
]  # fmt: skip
CREDIT = [
    Network("sign-flipped credit", null=GOOD, cosines=[-1.0]),
    Network("zero credit", null=GOOD, cosines=[1.0], credit_size=0.0, warns=["samples without a measurable cosine"]),
    Network("orthogonal credit", null=GOOD, cosines=[0.0]),
    Network("credit at layer 0", null=GOOD, cosines=[0.42, 0.0, 0.0, 0.0, 0.0], mode=MODE_2, four_mode=MODE_2, warns=[MODE_2]),
    Network("credit at the last layer only", null=GOOD, cosines=[0.0, 0.0, 0.0, 0.0, 0.95], mode=MODE_2, four_mode=MODE_2,
            warns=[MODE_2]),
    Network("drift-dominated, else healthy", y="drift", null=GOOD, cosines=[0.3], checks="pass pass pass fail", warns=["C:"]),
    Network("a single class: always right is chance", y="one", null=GOOD, cosines=[1.0], checks="pass pass ? fail", warns=["C:"],
            three="inconclusive"),
]  # fmt: skip
BROKEN = [
    Network("diverged: NaN weights", break_it=_nan, growth=None, null=GOOD, cosines=[1.0], withheld=True,
            checks="fail fail pass x", three="fail", four="fail", mode="diverged"),
    Network("diverged: a block of infinite gain", break_it=_inf, growth=None, null=GOOD, withheld=True,
            checks="fail fail pass x", three="fail", four="fail", mode="diverged"),
    Network("overflows in float32: 1e30 times 1e30", factors=(1e30, 1e30), growth=None, null=GOOD, withheld=True,
            checks="fail fail pass x", three="fail", four="fail", mode="diverged"),
    Network("a stream that is zero throughout: nothing to grow", x="zero", growth=None, null=GOOD,
            checks="x pass pass pass", three="incomplete", four="incomplete"),
    Network("h_0 is zero and block 0 makes it one: growth without bound", x="zero", blocks=lambda: [Plus(1.0), Times(1.0)],
            growth=None, null=GOOD, checks="fail pass pass pass", three="pass", four="fail", four_mode="scale explodes",
            warns=["D1 alone"]),
    Network("h of 1e30, finite", factors=(1e30, 1.0), growth=1e30, null=GOOD, g_128=G1,
            checks="fail pass pass pass", three="pass", four="fail", four_mode="scale explodes", warns=["D1 alone"]),
]  # fmt: skip

ZOO = [*HEALTHY, *SCALE, *REFERENCE, *MODE_1_NETS, *DEPTH, *CREDIT, *BROKEN]
