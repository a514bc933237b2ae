"""PF04: Γ belongs to the feedback matrices that were trained with; with others it is about zero."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.pitfalls.base import NO_REPORT, Answer, Evidence, Numbers, Tensor, clear, unknown

DRAWS = 20
STEPS = 60
NOT_OURS = "a callable's feedback is not known here: draw it anew, measure Γ again and compare"


def reproduce() -> Numbers:
    from creditscope.pitfalls import tiny

    task = tiny.make_task()
    net = tiny.train_dfa(tiny.make_net(4), task, STEPS)
    e = tiny.error(net, tiny.states(net, task.test_x)[-1], task.test_y)
    g = tiny.reference(net, task.test_x, task.test_y)

    def gamma(feedback: list[Tensor]) -> float:
        cosines = [tiny.cosine(e @ b, g_l).nanmean() for b, g_l in zip(feedback, g, strict=True)]
        return float(sum(cosines) / len(cosines))

    rng = tiny.generator(40)
    fresh = [gamma(tiny.feedback(rng)) for _ in range(DRAWS)]
    wrong, right = gamma(net.B), sum(fresh) / DRAWS
    return {"wrong": wrong, "right": right, "draws": DRAWS}


def tensors(trained: float, fresh: Sequence[float]) -> str | None:
    """Γ with the trained feedback against Γ with redrawn feedback (at least two draws)."""
    mean = sum(fresh) / len(fresh)
    spread = (sum((f - mean) ** 2 for f in fresh) / (len(fresh) - 1)) ** 0.5
    both = f"Γ is {trained:+.3f} with the B of training and {mean:+.3f} ± {spread:.3f} with {len(fresh)} others"
    return f"{both}: quote both" if abs(trained - mean) > 3 * spread and abs(mean) < abs(trained) / 2 else None


def audit(evidence: Evidence) -> Answer:
    facts = evidence.facts
    if evidence.rule.is_exact:
        return clear(f"{evidence.spec.method} has no feedback matrices")
    if facts is None:
        return NO_REPORT
    fact, depth = facts.fresh_b, facts.stream.depth
    if facts.concentration and set(range(1, depth + 1)) <= set(facts.concentration.exact_layers):
        return clear("not applicable: every deep layer is exact by construction, there is no feedback to redraw")
    if fact is not None and fact.reason.startswith("not applicable"):
        return clear(fact.reason) if evidence.credit is not None else unknown(NOT_OURS)
    if fact is None and facts.alignment is None:
        return unknown("no credit was measured: there is no Γ to compare")
    if fact is None:
        own = evidence.report is not None and not evidence.report.run
        level = f"for a CreditRule, level full measures it; {NOT_OURS}" if own else "measure it with level full"
        return unknown(f"the report has no fresh-B null; {level}")
    if fact.trained is None or fact.mean is None or fact.z is None:
        return unknown(f"the fresh-B null has no number: {fact.reason}")
    redrawn = f"{fact.mean:+.3f} redrawn (z = {fact.z:.1f})"
    return clear(f"the fresh-B null stands beside Γ: deep mean {fact.trained:+.3f} trained, {redrawn}")
