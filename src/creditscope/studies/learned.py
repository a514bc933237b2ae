"""What the runs of the real audit teach, one computed paragraph each; only what the numbers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from creditscope.render.numbers import num, signed
from creditscope.studies.audit import Group, audit, margin_pp
from creditscope.studies.credit_norm import contrasts, weighed
from creditscope.studies.published import NUDGING
from creditscope.studies.published_claims import INFERRED, claims
from creditscope.studies.reproduction import NOT_REPRODUCED, ONE_NORM, REPRODUCED, held_against, outcomes
from creditscope.studies.result import Run, geometric, known, mean, named, over, shared_seeds
from creditscope.studies.seeds import TEN, runs_by_seed, selection_text, selections, share_interval

FLOOR = 1e-7
"""The published floor of ‖g_L‖, stated for the batch-mean gradient at B = 128."""
LARGE_BATCH = 1024
ETA, LAMBDA = 0.01, 1e-2
"""Step of the nudging, and the penalty under which it was published."""
G_L = "‖g_L‖ (ours at B = 128)"


def lessons(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(title, paragraph); a lesson whose runs are missing is left out by name, not silently."""
    made: list[tuple[str, Callable[[Sequence[Run]], str]]] = [
        ("Normalisation of the credit", credit_norm),
        ("The normalisation that the published values fit", fitting_norm),
        ("Site of the credit", credit_site),
        ("The two kinds of frozen-blocks null, matched and bp", nulls),
        ("Batch size behind ‖g_L‖", batch_size),
        ("The exact layer in FA's deep cosine", exact_layer),
        ("The length of the nudging step", nudging_step),
        ("Selection of seeds", seeds),
    ]
    return [(title, make(runs) or "The runs for this comparison are not there yet.") for title, make in made]


def _primary(run: Run, epochs: int = 100) -> bool:
    s = run.spec
    if s.train_last not in (None, 0) or s.precision != "fp32" or (s.lr, s.head_lr, s.grad_clip) != (1e-3, None, None):
        return False
    return (s.dataset, s.arch, s.width, s.depth, s.terminal_norm, s.penalty, s.targets, s.epochs) == (
        "cifar10", "resmlp", 256, 4, True, 0.0, "labels", epochs,
    )  # fmt: skip


def _cells(runs: Sequence[Run], epochs: int, site: str) -> dict[tuple[str, str], Group]:
    pool = [r for r in runs if _primary(r, epochs)]
    return {
        (g.spec.method, str(g.spec.credit_norm)): g
        for g in audit(pool)
        if g.spec.method in ("fa", "dfa") and g.spec.credit_site == site
    }


def _cell(g: Group) -> str:
    return (
        f"{g.spec.method.upper()} {g.spec.credit_norm}: accuracy {mean(g.accuracies):.3f}, growth "
        f"{num(geometric(g.values('growth')), 2)}, ‖g_L‖/128 {num(geometric(g.values('reference')), 2)} (n={len(g.seeds)})"
    )


def credit_norm(runs: Sequence[Run]) -> str:
    cells = _cells(runs, 100, "input")
    if len(cells) < 4:
        return ""
    told = "; ".join(_cell(g) for g in cells.values())
    shared = shared_seeds({k: g.seeds for k, g in cells.items()})
    if not shared:
        return f"{told}. No seed has all four, so their ratios are not stated."
    growth = {k: over(shared, g.seeds, g.values("growth"), geometric) for k, g in cells.items()}
    by_norm, by_method = contrasts(growth)
    by = [num(x, 2) for x in (*by_norm, *by_method)]
    return (
        f"{told} (growth and ‖g_L‖: geometric means over seeds). Over {named(shared)}, from none to rms the growth changes by a "
        f"factor {by[0]} (FA) and {by[1]} (DFA); from FA to DFA by {by[2]} (none) and {by[3]} (rms); "
        f"{weighed(cells, shared)}. The text gives a_l = B_l a_(l+1) for FA and a_l = B_lᵀe for DFA, without a normalisation: "
        "read to the letter, credit_norm none for both."
    )


def fitting_norm(runs: Sequence[Run]) -> str:
    """Published values that one norm reproduces and the other does not, by method."""
    found: dict[str, Counter[str]] = {}
    for o in outcomes(runs):
        if o.kind in (ONE_NORM, REPRODUCED, NOT_REPRODUCED) and {x.norm for x in o.ours} == {"none", "rms"}:
            if o.claim.runs.get("train_last") == 0:
                continue  # a null, not a method
            told = o.statement.partition("credit_norm=")[2] if o.kind == ONE_NORM else o.kind
            found.setdefault(str(o.claim.runs["method"]).upper(), Counter())[told] += 1
    parts = [
        f"{method}: {n['rms']} only with rms, {n['none']} only with none, {n[REPRODUCED]} with both, "
        f"{n[NOT_REPRODUCED]} with neither"
        for method, n in sorted(found.items())
    ]
    return (
        f"Published values that we ran with both norms, and where they are reproduced: {'; '.join(parts)}. Many are read from "
        "the same networks, so they are not independent."
        if parts
        else ""
    )


def credit_site(runs: Sequence[Run]) -> str:
    """Over the seeds that both sites have."""
    primary = [r for r in runs if _primary(r, 30) and r.spec.train_last is None]
    seeds = {
        site: {(r.spec.method, r.spec.credit_norm, r.spec.seed) for r in primary if r.spec.credit_site == site}
        for site in ("input", "output")
    }
    shared = seeds["input"] & seeds["output"]
    pool = [r for r in primary if (r.spec.method, r.spec.credit_norm, r.spec.seed) in shared]
    at = {site: _cells(pool, 30, site) for site in ("input", "output")}
    parts = []
    for key, a in at["input"].items():
        b = at["output"][key]
        parts.append(
            f"{key[0].upper()} {key[1]}: accuracy {mean(a.accuracies):.3f} (input) and {mean(b.accuracies):.3f} (output), growth "
            f"{num(geometric(a.values('growth')), 2)} and {num(geometric(b.values('growth')), 2)} (n={len(a.seeds)})"
        )
    if not parts:
        return ""
    return f"At 30 epochs, the same seeds at both sites: {'; '.join(parts)}.{_contrast_by_site(at)}"


def _contrast_by_site(at: dict[str, dict[tuple[str, str], Group]]) -> str:
    """The factor of growth from FA to DFA at either site, over the seeds that all of them have."""
    cells = {(site, *key): g for site, of in at.items() for key, g in of.items()}
    shared = shared_seeds({k: g.seeds for k, g in cells.items()})
    if len(cells) < 8 or not shared:
        return ""
    told = []
    for site in ("input", "output"):
        growth = {k[1:]: over(shared, g.seeds, g.values("growth"), geometric) for k, g in cells.items() if k[0] == site}
        by_norm, by_method = ([num(x, 2) for x in xs] for xs in contrasts(growth))
        told.append(
            f"at the {site} {by_method[0]} (none) and {by_method[1]} (rms), against {by_norm[0]} (FA) and {by_norm[1]} (DFA) "
            "from none to rms"
        )
    return f" From FA to DFA the growth changes by a factor {'; '.join(told)} ({named(shared)})."


def nulls(runs: Sequence[Run]) -> str:
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        if run.spec.frozen and _primary(run):
            found.setdefault(run.spec.label, {})[run.spec.seed] = run.accuracy
    if len(found) < 2:
        return ""
    told = "; ".join(f"{label} {mean(list(v.values())):.3f} (n={len(v)})" for label, v in sorted(found.items()))
    start = f"The blocks are at their random initialisation in all of these; only the credit of the embedding differs: {told}."
    if not (shared := shared_seeds(found)):
        return f"{start} No seed has all of them, so their spread is not stated."
    means = [over(shared, list(v), list(v.values())) for v in found.values()]
    return (
        f"{start} Largest minus smallest over {named(shared)}: {100 * (max(means) - min(means)):.1f} pp, so a margin means "
        "little without the name of its null."
    )


def batch_size(runs: Sequence[Run]) -> str:
    parts = []
    at_100 = audit([r for r in runs if _primary(r)])
    there = {g.spec.label for g in at_100}
    shorter = [
        g
        for g in audit([r for r in runs if _primary(r, 30)])
        if g.spec.label not in there and g.spec.credit_site != "output"
    ]
    groups = [*at_100, *shorter]
    if not groups:
        return ""
    for g in groups:
        for seed, at_128 in zip(g.seeds, g.values("reference"), strict=True):
            at_large = at_128 * 128 / LARGE_BATCH
            if (at_128 < FLOOR) != (at_large < FLOOR):
                parts.append(f"{g.spec.label} seed {seed} ({num(at_128, 2)} and {num(at_large, 2)})")
    told = "; ".join(parts) or "none"
    return (
        f"The batch-mean gradient is the per-sample gradient divided by the batch size, so the same network has an eight times "
        f"smaller ‖g_L‖ at B = {LARGE_BATCH} than at 128. Of the {sum(len(g.seeds) for g in groups)} networks of the primary "
        f"audit ({sum(len(g.seeds) for g in shorter)} of them trained 30 epochs), above the floor {FLOOR:g} at 128 and under it "
        f"at {LARGE_BATCH}: {told}."
    )


def exact_layer(runs: Sequence[Run]) -> str:
    parts = []
    for g in audit([r for r in runs if _primary(r) and r.spec.method == "fa"]):
        facts = [r.facts.concentration for r in g.reports if r.facts.concentration]
        with_ = known(c.deep_mean_all_layers for c in facts)
        without = known(c.deep_mean_without_exact for c in facts)
        if with_ and without:
            parts.append(
                f"{g.label}: {signed(mean(with_))} with layer L, {signed(mean(without))} without (n={len(without)})"
            )
    if not parts:
        return ""
    return f"FA's credit at h_L is the gradient itself, cosine 1 by construction. Deep cosine: {'; '.join(parts)}."


def nudging_step(runs: Sequence[Run]) -> str:
    """Published loss changes against η‖g_L‖ of the same published table, and ours against our own."""
    known_claims = {c.what: c for c in claims()}
    parts = []
    for method, change in NUDGING.items():
        reference = known_claims[f"{method.upper()} λ = {LAMBDA:g}: {G_L}"].published
        published = abs(change) / (ETA * 128 * reference.value)
        inferred = ", its ‖g_L‖ read at B ≈ 1024" if INFERRED in reference.source else ""
        ours = []
        for o in held_against(known_claims[f"{method.upper()}: nudging (all layers)"], runs):
            mine = [r for r in runs if r.spec.hash in o.hashes and r.spec.seed in o.seeds]
            if o.values:
                ratio = abs(mean(o.values)) / (ETA * 128 * mean([r.facts.reference.batch_mean_128[-1] for r in mine]))
                ours.append(f"{num(ratio, 2)} ({o.norm}, n={len(o.values)})")
        if ours:
            parts.append(f"{method.upper()} published {num(published, 2)}{inferred}, ours {' and '.join(ours)}")
    if not parts:
        return ""
    return (
        f"A step of length η = {ETA:g} changes the loss by at most η‖g‖ to first order. Nudging under λ = {LAMBDA:g}, divided by "
        f"η times the per-sample ‖g_L‖ of the same networks: {'; '.join(parts)}. Above 1, for example, the step is longer than "
        "the one defined here, the gradient is larger at other layers than at h_L, or ‖g_L‖ was taken by another convention "
        f"(where nothing else is said the published one is read at B = 128; read at {LARGE_BATCH}, its ratio is an eighth)."
    )


def seeds(runs: Sequence[Run]) -> str:
    wide = [r for r in runs if (r.spec.width, r.spec.depth, r.spec.dataset) == (512, 2, "cifar10")]
    wide = [r for r in wide if r.spec.seed in TEN and (r.spec.method in ("fa", "dfa") or r.spec.frozen)]
    lengths = Counter(r.spec.epochs for r in wide)
    wide = [r for r in wide if r.spec.epochs == lengths.most_common(1)[0][0]]  # one study, one length of training
    verdicts: dict[str, list[tuple[int, str]]] = {}
    for seed, those in sorted(runs_by_seed(wide).items()):
        for g in audit(those):
            if margin_pp(g) is not None:  # its matched null is there
                verdicts.setdefault(g.label, []).append((seed, g.reports[0].checks["D3"].answer))
    parts = []
    for label, found in verdicts.items():
        k, n = sum(v == "fail" for _, v in found), len(found)
        low, high = share_interval(k, n)
        undecided = sum(v == "inconclusive" for _, v in found)
        parts.append(
            f"{label} fails D3 in {k} of {n} seeds (95 % interval of the share {low:.2f} to {high:.2f}; {undecided} inconclusive)"
        )
    if not parts:
        return ""
    alone = (
        f"CIFAR-10, ResMLP d=512, L=2, {wide[0].spec.epochs} epochs, each seed judged alone: {'; '.join(parts)}. Published, "
        "after 100 epochs: both methods fail D3 in the three seeds that are shown."
    )
    return " ".join(filter(None, (alone, selection_text(selections(wide)))))
