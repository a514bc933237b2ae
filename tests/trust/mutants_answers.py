"""Defects of profile, certificate and calibration, in the form of `mutants`."""

from __future__ import annotations

STYLES = "measure/test_locality.py::test_programs_in_other_styles"
PROFILE = "measure/test_profile.py::"
ROWS = [
    ("measure/locality:_idle", "return set(names)", "return set()", "readouts of local losses are no forward weights", STYLES),
    ("measure/locality:_moved", "size or max(sizes) or 1.0", "size or 1e-300", "a branch that starts at zero is tested", STYLES),
    ("measure/locality:other_labels", "[other, torch.where(half, other, self.y)]", "[other]", "who shares a class is changed",
     STYLES),
    ("measure/locality:taught", "max(change, abs(compared.scale - 1))", "change", "a reward is a teaching signal", STYLES),
    ("measure/locality:taught",
     "compared.scale != 1.0 and abs(sizes[1] / sizes[0] - 1) <= CLIPPED + 1e-3 * abs(compared.scale - 1)", "False",
     "a clip is no teaching signal", STYLES),
    ("measure/locality:inputs_in_update", "others = True", "others = False", "runs at other weights are undetermined", STYLES),
    ("training/certify:_equal",
     "e.size(exact, n) > e.equal * e.size(exact, *e.names)", "False",
     "a block that gets no update is not trained by backpropagation", STYLES),
    ("training/certify:_feedback", "seen and not forward", "seen", "dropout is no feedback drawn anew", STYLES),
    ("measure/null_run:_identity",
     "[type(null).__name__, shapes, frozen, metric]", "[type(null).__name__, shapes, metric]", "nulls of other blocks are others",
     "measure/test_null_run.py::test_finished_seeds_are_not_trained_again"),
    ("runs/measured:lacking",
     "not facts.get('profile') and not bundle.report.get('facts', {}).get('profile')", "False", "a missing profile is measured",
     "runs/test_measured.py::test_profile_and_certificate_are_added"),
    ("runs/record:measure_full",
     "spec.frozen or epoch is not None or bundle.report.get('facts', {}).get('profile')", "True",
     "the profile is added to older runs",
     "runs/test_measured.py::test_profile_and_certificate_are_added"),
]  # fmt: skip
