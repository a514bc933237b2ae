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
    ("measure/locality:taught", "change if bound else", "change if False else", "a clip is no teaching signal", STYLES),
    ("measure/locality:inputs_in_update", "others = True", "others = False", "runs at other weights are undetermined", STYLES),
    ("training/certify:_equal", "if left:", "if False:", "a block that gets no update is not trained by backpropagation", STYLES),
    ("training/certify:_feedback", "if seen and not forward:", "if seen:", "dropout is no feedback drawn anew", STYLES),
    ("measure/null_run:_identity", "shapes, frozen, metric", "shapes, metric", "nulls of other blocks are others",
     "measure/test_null_run.py::test_finished_seeds_are_not_trained_again"),
    ("runs/measured:lacking", "not facts.get('profile') and", "False and", "a missing profile is measured",
     "runs/test_measured.py::test_profile_and_certificate_are_added"),
    ("runs/record:measure_full", "spec.frozen or epoch is not None", "True", "the profile is added to older runs",
     "runs/test_measured.py::test_profile_and_certificate_are_added"),
]  # fmt: skip
