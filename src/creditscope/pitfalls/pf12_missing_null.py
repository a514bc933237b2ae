"""PF12: accuracy is read as depth at work, without a null in which the blocks are random."""

from __future__ import annotations

from creditscope.pitfalls.base import Answer, Evidence, Numbers, clear, found

STEPS = 60


def reproduce() -> Numbers:
    from creditscope.pitfalls import tiny

    task = tiny.make_task()
    trained = tiny.train_dfa(tiny.make_net(12), task, STEPS)
    null = tiny.train_dfa(tiny.make_net(12), task, STEPS, frozen=True)
    acc, base = (tiny.accuracy(net, task.test_x, task.test_y) for net in (trained, null))
    wrong, right = 100 * (acc - 1 / tiny.CLASSES), 100 * (acc - base)
    return {"wrong": wrong, "right": right, "acc": acc, "base": base}


def tensors(accuracy: float, chance: float, frozen: float | None) -> str | None:
    """Accuracies as fractions: is the gain over chance larger than what the blocks explain?"""
    over = f"accuracy {accuracy:.3f} is {100 * (accuracy - chance):.1f} pp over chance"
    return f"{over}, and no null (random-blocks baseline) says what the blocks add" if frozen is None else None


def audit(evidence: Evidence) -> Answer:
    spec = evidence.spec
    if spec.frozen:
        return clear("this run is a null (random-blocks baseline) itself")
    if evidence.report is not None and evidence.report.facts.depth is not None:
        margins = ", ".join(f"{m.margin_pp:+.1f} pp to {m.null}" for m in evidence.report.facts.depth.margins)
        return clear(f"the report has a depth margin: {margins}")
    wanted = {spec.null("matched").hash: "matched", spec.null("bp").hash: "bp"}
    beside = sorted({wanted[n.spec.hash] for n in evidence.neighbours if n.spec.hash in wanted}, reverse=True)
    if beside:
        return clear(f"the null is beside it ({', '.join(beside)})")
    return found("no null (random-blocks baseline) of this run is in the report or beside it: D3 is not measured")
