"""`make test-gpu`: on the accelerator of this machine, the numbers of the CPU within stated tolerances, and a table of speed.

One line and exit code 0 where there is no accelerator; exit code 1 where a number is outside its tolerance.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from creditscope.credit.registry import all_rules
from creditscope.data import Dataset, load_dataset
from creditscope.data.dataset import eval_batches, on_device
from creditscope.protocol.diagnosis import diagnose
from creditscope.runs.record import record_of
from creditscope.runs.verify import verify
from creditscope.stream.devices import CPU, accelerator, described, device_text, find_device, has_products
from creditscope.training import loop
from creditscope.training.bundle import Bundle
from creditscope.training.certify import certify_bundle
from creditscope.training.loop import settled, train
from creditscope.training.objective import AUTOCAST
from creditscope.training.spec import RunSpec, make_spec

INITIAL = 1e-4
"""Relative, of norms; absolute, of cosines: before training, where only one pass has been rounded."""
FACTS = 1e-3
"""The same for all facts of level basic of one trained network, measured on both."""
NOT_COMPARED = ("random", "fgrad", "nodepert")
"""Their draws follow from the logits; `source=labels` makes them those of the CPU."""


def few() -> Dataset:
    """A tenth of the embedded task."""
    full = load_dataset("quadratic")
    return replace(full, train_x=full.train_x[:2000], train_y=full.train_y[:2000])


def spec_of(rule: str) -> RunSpec:
    norm = {"credit_norm": "rms"} if all_rules()[rule].uses_norm else {}
    options = {"source": "labels"} if rule in NOT_COMPARED else {}
    return make_spec({"method": rule, "width": 64, "epochs": 2, **norm, "options": options})


def far(then: Any, now: Any, limit: float) -> bool:
    """Is a number, or one of a list, further off than `limit`: relatively, or absolutely where it is less than 1?"""
    if isinstance(then, list):
        return any(far(a, b, limit) for a, b in zip(then, now, strict=True))
    if not isinstance(then, float) or not isinstance(now, float):
        return False
    return not abs(then - now) <= limit * max(1.0, abs(then))


def compared(rule: str, device: torch.device, dataset: Dataset, root: Path) -> list[str]:
    """What is wrong with a rule on this device; one line each."""
    made = spec_of(rule)
    here, there = (train(made, root / f"{rule}-{d.type}", dataset=dataset, device=d) for d in (CPU, device))
    again = train(made, root / f"{rule}-again", dataset=dataset, device=device)
    first = [name for name, value in here.trajectory[0].items() if far(value, there.trajectory[0].get(name), INITIAL)]
    found = [f"{name} differs before training" for name in first]
    if there.files["model.safetensors"] != again.files["model.safetensors"]:
        found.append("a second run has other weights")
    found += [f"{name} of the same network differs" for name in _facts_apart(here, device, dataset)]
    return [f"{rule}: {line}" for line in found]


def _facts_apart(made: Bundle, device: torch.device, dataset: Dataset) -> list[str]:
    facts = []
    for place in (CPU, device):
        moved = on_device(dataset, place)
        report = diagnose(made.model(moved), eval_batches(moved), credit=made.rule(device=place))
        facts.append(report.to_dict()["facts"])
    named = [("scale", "mean"), ("scale", "growth"), ("reference", "per_sample"), ("alignment", "mean")]
    here, there = facts
    return [f"{part}.{name}" for part, name in named if far(here[part][name], there[part][name], FACTS)]


def judged(device: torch.device, dataset: Dataset, root: Path) -> list[str]:
    """A certificate, and a run of the CPU verified on the device."""
    made = train(spec_of("dfa"), root / "judged", dataset=dataset)
    labels = {certify_bundle(made, on_device(dataset, place)).label for place in (CPU, device)}
    found = [] if len(labels) == 1 else [f"the certificates of dfa are {' and '.join(sorted(labels))}"]
    with patch.object(loop, "load_dataset", lambda name, data_dir=None: dataset):
        other = verify(record_of(made), device=device)
    if other.status == "not reproduced" or other.same_device:
        found.append(f"runs verify says {other.status} on {device}")
    return found


@contextmanager
def waits() -> Iterator[list[str]]:
    """Where the host waits for a CUDA device, as torch tells it."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
            found += [f"{w.filename}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]


def waits_of(rule: str, device: torch.device, dataset: Dataset) -> list[str]:
    """One epoch of a rule must make the host wait once, for its mean loss."""
    with settled(device):
        run = loop._Run(spec_of(rule), dataset, Path(), device)
        run._epoch(1)  # what is made once is made here
        with waits() as found:
            run._epoch(2)
    return [] if len(found) <= 1 else [f"{rule}: the host waits {len(found)} times in an epoch: {sorted(set(found))}"]


def steps_per_second(made: RunSpec, dataset: Dataset, device: torch.device, steps: int = 100) -> float:
    with settled(device):
        run = loop._Run(made, dataset, Path(), device)
        run.model.train()
        x, y = run.dataset.train_x[:128], run.dataset.train_y[:128]
        for step in range(steps + 10):
            if step == 10:
                float(x.sum())  # the queue is empty
                started = time.perf_counter()
            run.optimizer.zero_grad()
            run.objective.backward(x, y)
            run.optimizer.step()
        float(next(run.model.parameters()).sum())
        return steps / (time.perf_counter() - started)


def speed(device: torch.device, dataset: Dataset, steps: int = 100) -> list[str]:
    """Training steps per second at batch 128: the CPU (one thread) and the device in every precision that it has."""
    precisions = ["fp32", *(name for name, dtype in AUTOCAST.items() if has_products(device, dtype))]
    lines = [
        f"{'ResMLP L=4, batch 128':<22} {'cpu fp32':>10} "
        + " ".join(f"{device.type + ' ' + p:>12}" for p in precisions)
    ]
    for rule in ("bp", "dfa"):
        for width in (256, 2048):
            made = spec_of(rule).changed(width=width)
            rates = [steps_per_second(made, dataset, CPU, max(1, steps // 10))]
            rates += [steps_per_second(made.changed(precision=p), dataset, device, steps) for p in precisions]
            cells = " ".join(f"{rate:>12.0f}" for rate in rates[1:])
            lines.append(f"{rule + f' d={width}':<22} {rates[0]:>10.0f} {cells}")
    return lines


def main() -> int:
    kind = accelerator()
    if kind is None:
        print("creditscope: there is no accelerator here; make test-gpu is skipped")
        return 0
    device, dataset = find_device(kind), few()
    print(f"{device}: {device_text(described(device))}, torch {torch.__version__}")
    print(f"before training within {INITIAL:g}, facts of one network within {FACTS:g}, a second run equal to the bit")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        for rule in sorted(all_rules()):
            found = compared(rule, device, dataset, Path(root))
            if device.type == "cuda":
                found += waits_of(rule, device, dataset)
            print(f"  {rule:<14} {'; '.join(found) or 'as on the CPU'}", flush=True)
            wrong += found
        wrong += judged(device, dataset, Path(root))
    print("\n".join(speed(device, dataset)))
    print("\n".join(wrong) or "everything is within its tolerance")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
