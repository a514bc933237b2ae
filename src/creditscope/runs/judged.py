"""A stored run judged as a page judges it: with its other seeds and its frozen-blocks nulls, where the store has them."""

from __future__ import annotations

import json

from creditscope.protocol.report import DiagnosticReport
from creditscope.runs.archive import Archive
from creditscope.runs.groups import NULL_KINDS, alone, audit, nulls_for, recipe, relatives
from creditscope.runs.store import Store
from creditscope.training.spec import recorded_spec


def judged(store: Store | Archive, key: str) -> tuple[DiagnosticReport, str]:
    """The report of a run, and the words that say with what it was judged."""
    run = store.read(key)
    if run.spec.frozen:
        return alone(run), "a null (random-blocks baseline): it is not judged"
    specs = {r["hash"]: recorded_spec(json.loads(r["spec"])) for r in store.rows() if not r["problem"]}
    mine = recipe(run.spec)
    # one run per seed: the same network may be there twice, with other checkpoints kept
    twins = {s.seed: h for h, s in sorted(specs.items(), reverse=True) if recipe(s) == mine} | {run.spec.seed: key}
    members = [run, *(store.read(h) for h in twins.values() if h != key)]
    wanted = {h for m in members for h in relatives(m.spec).values()}
    pool = [*members, *(store.read(h) for h in sorted(wanted & specs.keys() - set(twins.values())))]
    report = next(r for g in audit(pool) for r in g.reports if r.run == key)
    seeds = ", ".join(str(s) for s in sorted(m.spec.seed for m in members))
    kinds = [kind for kind in NULL_KINDS if all(kind in nulls_for(m, pool) for m in members)]
    nulls = (
        f"against its {' and '.join(kinds)} null{'s' if len(kinds) > 1 else ''}"
        if kinds
        else "without a null: one of the seeds has none there"
    )
    return report, f"judged on seed{'s' if len(members) > 1 else ''} {seeds} in {store.root}, {nulls}"
