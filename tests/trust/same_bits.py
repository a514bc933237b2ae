"""Do two source trees train the same bits? `python tests/trust/same_bits.py OLD/src NEW/src` prints a table of short runs.

Every case that both know is trained by both trees, once in one go and once stopped after the first epoch and resumed; compared
are the SHA-256 of the weights, of the rule's state, and of the trajectory. Run both on the same machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

SMALL = {"width": 16, "depth": 3, "epochs": 2, "batch_size": 256}
CASES: dict[str, dict[str, Any]] = {
    "bp": {"method": "bp"},
    "bp, λ 0.01, clip 0.1 global": {"method": "bp", "penalty": 0.01, "grad_clip": 0.1, "clip_over": "global"},
    "bp, frozen": {"method": "bp", "train_last": 0},
    "fa none": {"method": "fa", "credit_norm": "none"},
    "fa none, batch 200": {"method": "fa", "credit_norm": "none", "batch_size": 200},
    "fa none, site output, λ 0.01": {"method": "fa", "credit_norm": "none", "credit_site": "output", "penalty": 0.01},
    "fa rms": {"method": "fa", "credit_norm": "rms"},
    "fa rms, frozen": {"method": "fa", "credit_norm": "rms", "train_last": 0},
    "dfa none": {"method": "dfa", "credit_norm": "none"},
    "dfa rms": {"method": "dfa", "credit_norm": "rms"},
    "dfa rms, site output, last 2": {"method": "dfa", "credit_norm": "rms", "credit_site": "output", "train_last": 2},
    "dfa rms, clip 1 per module": {"method": "dfa", "credit_norm": "rms", "grad_clip": 1.0},
    "dfa none, bf16": {"method": "dfa", "credit_norm": "none", "precision": "bf16"},
    "ep": {"method": "ep"},
    "ep symmetric, error": {"method": "ep", "options": {"symmetric": True, "reading": "error"}},
    "ep clamped, float32 states": {"method": "ep", "options": {"clamp": True, "states": "float32", "control": False}},
    "sb none": {"method": "sb", "credit_norm": "none"},
    "sb rms": {"method": "sb", "credit_norm": "rms"},
    "cb none": {"method": "cb", "credit_norm": "none", "options": {"warmup": 0.5}},
    "cb rms": {"method": "cb", "credit_norm": "rms"},
    "random rms": {"method": "random", "credit_norm": "rms"},
    "dfa none, random targets": {"method": "dfa", "credit_norm": "none", "targets": "random"},
    **{
        m: {"method": m}
        for m in ("fa-weights", "usf", "brsf", "frsf", "kp", "wm", "dfa-sublayers", "greedy", "pc", "epc")
    },
    **{m: {"method": m} for m in ("dtp", "fgrad", "nodepert", "pepita", "ff")},
    **{f"{m} none": {"method": m, "credit_norm": "none"} for m in ("sdfa", "sparse-dfa", "drtp")},
    "fa rms, small-cnn": {"method": "fa", "credit_norm": "rms", "arch": "small-cnn", "dataset": "cifar10"},
    "dfa rms, vit-mini": {"method": "dfa", "credit_norm": "rms", "arch": "vit-mini", "dataset": "cifar10", "depth": 2},
}
TRAIN, TEST = 2000, 1024
"""Samples."""
FILES = ("model.safetensors", "credit.safetensors", "trajectory.jsonl")


def images() -> Any:
    """Random images with random labels, as CIFAR gives them."""
    import torch

    from creditscope.data import Dataset

    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (130 + TEST, 3, 32, 32), generator=rng, dtype=torch.uint8)
    y = torch.randint(0, 10, (len(x),), generator=rng)
    return Dataset("cifar10", x[:130], y[:130], x[130:], y[130:], 10, (3, 32, 32), True, (0.5,) * 3, (0.25,) * 3)


def trained() -> dict[str, dict[str, str]]:
    """{case: {"spec": hash of the spec, file: sha256}} of the tree that is imported, resumed ones as `case, resumed`."""
    from creditscope import CreditscopeError, train
    from creditscope.data import load_dataset
    from creditscope.training.spec import make_spec

    full = load_dataset("quadratic")
    few = replace(
        full,
        train_x=full.train_x[:TRAIN],
        train_y=full.train_y[:TRAIN],
        test_x=full.test_x[:TEST],
        test_y=full.test_y[:TEST],
    )

    class Stop(Exception):
        pass

    def stop(done: int, total: int, line: dict[str, Any]) -> None:
        if done == 1:
            raise Stop

    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case, settings in CASES.items():
            image = settings.get("dataset") == "cifar10"
            small = {"width": 16, "epochs": 2} if image else SMALL
            try:
                spec, data = make_spec({**small, **settings}), images() if image else few
            except CreditscopeError:  # the older tree does not know that rule or option
                continue
            for way in ("", ", resumed"):
                out = Path(scratch) / hashlib.sha256((case + way).encode()).hexdigest()[:8]
                if way:
                    with suppress(Stop):
                        train(spec, out, dataset=data, progress=stop)
                train(spec, out, dataset=data)
                found[case + way] = {"spec": spec.hash} | {
                    name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in FILES
                }
    return found


def of_tree(src: str) -> dict[str, dict[str, str]]:
    env = {**os.environ, "PYTHONPATH": src, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{src}: {done.stderr[-2000:]}")
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(old: str, new: str) -> int:
    before, after = of_tree(old), of_tree(new)
    width = max(map(len, before))
    wrong = 0
    print(f"{'run':<{width}}  {'spec':<10}  {'weights':<10}  {'equal'}")
    for case, files in before.items():
        other = [name for name in files if files[name] != after[case][name]]
        wrong += bool(other)
        print(f"{case:<{width}}  {files['spec'][:10]}  {files[FILES[0]][:10]}  {', '.join(other) or 'all'}")
    for case in CASES:
        if case not in before:
            print(f"{case}: not in the old tree")
        if after[case] != after[f"{case}, resumed"]:
            print(f"{case}: the resumed run differs")
            wrong += 1
    print(f"{len(before)} runs, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(main(sys.argv[1], sys.argv[2]))
    print(json.dumps(trained()))
