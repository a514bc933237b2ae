"""Small defects in what reads arrays, records and JAX networks: rows (place, old, new, breaks, test) as in `mutants`.

A place is a file below src/creditscope/ without its ending, and the function in it.
"""

from __future__ import annotations

ARRAYS = "test_arrays.py::"
RECORD = "test_record.py::"
CHANGES = "test_changes.py::"
JAX = "integrations/test_jax.py::"
MEAN = ARRAYS + "test_a_gradient_of_a_mean_is_taken_back_to_one_sample"
ONE_LINE = "test_what_does_not_fit_is_one_line"

ROWS = [
    ("stream/recorded:Reduction.__call__", "self.reduction == 'sum'", "True", "a mean is undone", MEAN),
    ("stream/recorded:Reduction.__call__", "n if self.size == EACH else int(self.size or 1)", "n",
     "the stated batch size counts, not that of the array", MEAN),
    ("arrays:_proof", "error is not None and error > tolerance", "False", "a wrong convention is refused",
     ARRAYS + "test_a_wrong_convention_is_found_by_loss_from"),
    ("arrays:_proof", "finite and max(errors) > SAME_LOSS", "False", "loss_from must be of the same network",
     ARRAYS + ONE_LINE),
    ("arrays:_probe", "Probe(few.y, few.y, states, runs[-1], coarse, credits, runs)",
     "Probe(few.y, few.y, states, runs[0] + 1, coarse, credits)", "a change of the loss starts at the loss of the state itself",
     ARRAYS + "test_the_same_network_in_numpy_gives_the_same_report"),
    ("arrays:_Seen.add", "[stream.read_grad(each) for each in g]", "[stream.read_state(each) for each in g]",
     "a gradient is read as one", ARRAYS + "test_token_states_are_read_as_stated"),
    ("arrays:diagnose_arrays", "not seen.losses_known", "False", "a loss that is not known is not measured",
     ARRAYS + "test_what_arrays_do_not_show_is_not_measured_and_says_why"),
    ("credit/given:GivenCredit.trained_layers", "k not in self.missing", "True", "a layer without credit does not count",
     ARRAYS + "test_layers_that_train_and_layers_that_are_exact"),
    ("credit/given:GivenCredit.exact_layers", "self._exact", "()", "exact layers are stated by the caller",
     ARRAYS + "test_layers_that_train_and_layers_that_are_exact"),
    ("stream/recorded:_converted", "array.view(np.uint16).astype(np.int32)", "array.astype(np.int32)",
     "bfloat16 keeps its bits", ARRAYS + "test_bfloat16_of_numpy_and_of_torch_are_the_same_numbers"),
    ("measure/profile:_Known.run", "(self.twin, states.twin or [])", "(self.twin, states.h)",
     "the twin's readout is that of the twin", ARRAYS + "test_the_profile_of_recorded_states_is_that_of_the_network"),
    ("record:npy", "count * dtype.itemsize != len(data) - file.tell()", "False",
     "memory is taken for data that are there", RECORD + ONE_LINE),
    ("record:npy", "dtype.kind not in 'fiuU' or dtype.hasobject", "False", "objects are refused", RECORD + ONE_LINE),
    ("record:_npz", "len(members) > MAX_ARRAYS or total > MAX_BYTES", "False", "a bomb is not unpacked",
     RECORD + "test_a_file_that_unpacks_to_more_than_a_record_is_refused_before_it_is_read"),
    ("record:npy", "'F' if by_columns else 'C'", "'C'", "columns first is read as such",
     RECORD + "test_every_way_to_write_it_gives_the_same_report"),
    ("record:_entries", "missing and kind != 'a'", "False", "every layer is there", RECORD + ONE_LINE),
    ("changes:_outside", "other_low > high or other_high < low", "other_low > high", "a fall lies outside too",
     CHANGES + "test_changes_and_their_intervals_by_hand"),
    ("changes:_mean", "t_975(n - 1) * std / math.sqrt(n)", "t_975(n - 1) * std", "the interval is of the mean",
     CHANGES + "test_changes_and_their_intervals_by_hand"),
    ("changes:_row", "b.number - a.number", "a.number - b.number", "change is b minus a",
     CHANGES + "test_changes_and_their_intervals_by_hand"),
    ("integrations/jax:_Network._losses", "self.blocks[layer:]", "self.blocks", "a run starts at the state's own layer",
     JAX + "test_float32_gives_the_report_of_torch"),
]  # fmt: skip
