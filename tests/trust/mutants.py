"""One-line defects: where, what stands there, what is put in its place, which behaviour that breaks, which test must fail.

`test` is a node below tests/; it runs alone against the defect. Files are below src/creditscope/.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    breaks: str
    test: str


SWEEP = "measure/test_sweep.py::"
FACTS = SWEEP + "test_every_fact_equals_a_numpy_recomputation_from_the_raw_vectors"
GROWTH = SWEEP + "test_growth_of_a_known_sequence"
DEPTH = "measure/test_depth.py::"
RHO = "measure/test_perturbation.py::"
CHECKS = "protocol/test_checks.py::"
POLICY = "protocol/test_policies.py::"
FEEDBACK = "credit/test_fa_dfa.py::"
BRIDGES = "credit/test_bridges.py::"
EP = "credit/test_ep.py::"
OBJECTIVE = "training/test_objective.py::"
LOCAL = OBJECTIVE + "test_local_gradients_equal_autograd_of_the_stated_objective"
LOOP = "training/test_loop.py::"
PLAIN_LOOP = LOOP + "test_training_equals_a_plain_loop_with_torchs_own_scheduler"
ZOO = "trust/test_zoo.py::"

MEASURE = [
    ("scale", "float(after / before)", "float(before / after)", "growth is after over before", GROWTH),
    ("scale", "return max(ratios)", "return min(ratios)", "growth is the largest ratio", GROWTH),
    ("scale", "np.median(norms, axis=1)", "np.median(norms, axis=0)[: len(norms)]", "median over samples", FACTS),
    ("scale", "range(0, n - size + 1, size)", "range(0, n, size)", "a remainder is no group", FACTS),
    ("scale", "means[-1] / means[0])", "means[-1] / means[1])", "total growth starts at h_0", FACTS),
    ("reference", "float, means / GROUP)", "float, means)", "batch-mean convention divides by 128",
     SWEEP + "test_mean_reduced_gradient_at_batch_128_is_what_the_second_convention_states"),
    ("reference", "means / (10 * COSINE_EPS)", "means / COSINE_EPS", "clamp batch size is at 10 eps", FACTS),
    ("reference", "norms[-1, part]", "norms[0, part]", "groups of D2 are of the deepest layer", FACTS),
    ("reference", "(row == 0)", "(row != 0)", "samples without gradient are counted",
     SWEEP + "test_reference_counts_samples_whose_gradient_is_exactly_zero"),
    ("alignment", "size = np.sqrt(aa) * np.sqrt(gg)", "size = np.maximum(np.sqrt(aa) * np.sqrt(gg), 1e-8)", "no eps clamp",
     SWEEP + "test_perfect_alignment_of_a_tiny_gradient_is_one_without_clamp"),
    ("alignment", "out=np.full(dot.shape, np.nan)", "out=np.zeros(dot.shape)", "a zero vector is not a cosine of 0",
     SWEEP + "test_samples_with_a_zero_vector_are_counted_out_never_scored"),
    ("alignment", "np.nanstd(row, ddof=1)", "np.nanstd(row, ddof=0)", "sample standard deviation", FACTS),
    ("alignment", "np.sqrt(row) / GROUP < floor", "np.sqrt(row) < floor", "floor is stated for batch 128",
     SWEEP + "test_share_under_the_floor_is_in_the_convention_of_batch_128"),
    ("alignment", "cosine(dot.sum(0), aa.sum(0), gg.sum(0))", "cosine(dot.sum(1), aa.sum(1), gg.sum(1))",
     "concatenation is over layers", FACTS),
    ("alignment", "g / GROUP, dim=1", "g, dim=1", "clamp at the gradient of batch 128",
     SWEEP + "test_clamped_cosine_is_the_eps_formula_at_batch_128"),
    ("alignment", "sum(abs(c) for c in", "sum(c for c in", "share of the sum of sizes",
     SWEEP + "test_concentration_of_a_known_profile_with_and_without_exact_layers"),
    ("alignment", "range(1, len(layer_means))", "range(len(layer_means))", "deep mean leaves out layer 0",
     SWEEP + "test_concentration_of_a_known_profile_with_and_without_exact_layers"),
    ("alignment", "layer not in exact_layers", "layer in exact_layers", "exact layers are left out",
     SWEEP + "test_concentration_of_a_known_profile_with_and_without_exact_layers"),
    ("alignment", "min(known) < -SIGN_MATTERS", "min(known) < SIGN_MATTERS", "a flip has both signs",
     SWEEP + "test_small_positive_aggregates_are_no_flip_of_the_sign"),
    ("stability", "(total @ total - n) / (n * (n - 1))", "(total @ total) / (n * n)", "pairs, not a vector with itself",
     SWEEP + "test_mean_pairwise_cosine_equals_the_mean_over_all_pairs"),
    ("stability", "[v / v.norm() for v", "[v for v", "directions are normalised",
     SWEEP + "test_mean_pairwise_cosine_equals_the_mean_over_all_pairs"),
    ("stability", "deepest=per_layer[-1], per", "deepest=per_layer[0], per", "stability is of the deepest layer",
     SWEEP + "test_stability_is_that_of_the_deepest_layer"),
    ("stability", "self._count == self.size", "self._count >= self.size - 1", "groups of exactly 128",
     SWEEP + "test_group_means_do_not_depend_on_the_way_samples_arrive"),
    ("sweep", "grad(losses.sum(), leaf[0])", "grad(losses.mean(), leaf[0])", "g is of the summed loss", FACTS),
    ("sweep", 'got.note(f"h_{layer}", norm)', "pass", "Inf in a hidden state is noted",
     "trust/test_numerics.py::test_a_bad_number_in_the_stream_is_named"),
    ("sweep", "got.correct / got.scored", "got.correct / got.n", "accuracy over scored labels",
     "trust/test_numerics.py::test_accuracy_of_tokens_is_over_scored_labels"),
    ("perturbation", "x = x - x.mean(1, keepdims=True)", "x = x - 0", "correlation is centred",
     RHO + "test_formula_against_a_loop_in_numpy"),
    ("perturbation", "(after - probe.losses[part].unsqueeze(1))", "(probe.losses[part].unsqueeze(1) - after)", "sign of ρ",
     RHO + "test_a_loss_that_is_linear_in_h_gives_exactly_one_for_the_gradient"),
    ("perturbation", "& (spread >= least_spread)", "", "below the resolution is not measurable",
     RHO + "test_pearson_counts_out_what_it_cannot_measure"),
    ("perturbation", "v.mul_(epsilon / v.norm(dim=2, keepdim=True))", "v.mul_(epsilon)", "directions have unit norm",
     RHO + "test_formula_against_a_loop_in_numpy"),
    ("nudging", "delta = -step *", "delta = step *", "a nudge goes against the credit",
     "measure/test_nudging.py::test_quadratic_loss_exactly"),
    ("nudging", "return a / a.norm(dim=1, keepdim=True)", "return a", "a nudge has the stated length",
     "measure/test_nudging.py::test_linear_loss_and_any_credit"),
    ("functional", "copy.deepcopy(model).double()", "copy.deepcopy(model)", "ρ is measured in float64",
     RHO + "test_the_network_that_is_probed_is_a_float64_copy"),
    ("nulls", "set(range(1, depth + 1))", "set(range(depth + 1))", "the null is of deep layers",
     "measure/test_nulls.py::test_trained_is_the_deep_mean_without_exact_layers"),
    ("nulls", "np.std(known, ddof=1)", "np.std(known)", "spread of the draws", "measure/test_nulls.py::test_dfa_against_a_loop"),
    ("nulls", "z = (trained - mean) / std", "z = (mean - trained) / std", "sign of z",
     "measure/test_nulls.py::test_dfa_against_a_loop"),
    ("growth", "return losses[-1] - losses[0]", "return losses[0] - losses[-1]", "a loss that falls is negative",
     "measure/test_growth.py::test_loss_decrease_from_the_first_epoch_and_from_the_start"),
    ("growth", "return moved / start", "return moved", "growth is relative to the start",
     "measure/test_growth.py::test_growth_of_known_vectors"),
    ("depth", "margin = mean_trained - mean_frozen", "margin = mean_frozen - mean_trained", "sign of the margin",
     DEPTH + "test_paired_t"),
    ("depth", "/ (len(values) - 1)", "/ len(values)", "sample variance", DEPTH + "test_paired_t"),
    ("depth", "t_975(n - 1) * math.sqrt(_variance(differences) / n)",
     "1.7 * math.sqrt(_variance(differences) / n)", "two-sided 95 %", DEPTH + "test_paired_t"),
    ("depth", "if len(trained) == len(frozen):", "if len(trained) != len(frozen):", "seeds are paired", DEPTH + "test_paired_t"),
    ("depth", " + mean_frozen * (1 - mean_frozen)", "", "both networks have a binomial error",
     DEPTH + "test_one_network_with_a_known_test_set"),
    ("depth", "half = Z_95 * binomial_se", "half = binomial_se", "binomial interval is of 95 %",
     DEPTH + "test_one_network_with_a_known_test_set"),
    ("depth", "depth_margin(bp_acc, nulls[BP]", "depth_margin(bp_acc, next(iter(nulls.values()))", "BP against its own null",
     DEPTH + "test_depth_to_both_nulls_and_of_bp"),
]  # fmt: skip

PROTOCOL = [
    ("checks", "lambda growth: growth > limit", "lambda growth: growth < limit", "direction of D1", CHECKS + "test_scale"),
    ("checks", "lambda growth: growth > limit", "lambda growth: growth >= limit", "at the threshold D1 is not raised",
     ZOO + "test_truth_of_a_known_network"),
    ("checks", "facts.reference.batch_mean_128[-1]", "facts.reference.per_sample[-1]", "convention of D2",
     CHECKS + "test_reference_sentence"),
    ("checks", "facts.reference.batch_mean_128[-1]", "facts.reference.batch_mean_128[0]", "D2 is of the deepest layer",
     ZOO + "test_truth_of_a_known_network"),
    ("checks", "lambda norm: norm < floor", "lambda norm: norm <= floor", "at the floor D2 is not raised",
     CHECKS + "test_reference"),
    ("checks", "lambda pp: pp < needed", "lambda pp: pp <= needed", "2 pp exactly is enough", CHECKS + "test_depth"),
    ("checks", "not bp.margin_pp >= needed", "bp.margin_pp >= needed", "a task must show depth utility",
     CHECKS + "test_depth_is_not_measurable_where_bp_does_not_beat_its_null"),
    ("checks", "(MATCHED, UNSTATED, BP)", "(BP, UNSTATED, MATCHED)", "the matched null decides",
     CHECKS + "test_depth_uses_the_matched_null_first_and_says_which"),
    ("checks", 'answer = "fail" if fact.deepest > ceiling', 'answer = "fail" if abs(fact.deepest) > ceiling',
     "opposite directions are no drift", ZOO + "test_truth_of_a_known_network"),
    ("checks", "if len(flags) == 2:", "if len(flags) == 3:", "a straddling interval does not decide", CHECKS + "test_depth"),
    ("checks", "(*facts.non_finite, *_non_finite_values(facts))", "(*_non_finite_values(facts),)", "a NaN that was met fails",
     CHECKS + "test_a_diverged_network_never_passes_and_never_crashes"),
    ("policies", 'if raised == {"fail"}:', 'if "fail" in raised:', "Mode 1 needs D1 and D2", POLICY + "test_three_check"),
    ("policies", ' or by_id["D2"].answer == "fail"', "", "Γ is withheld at the floor",
     POLICY + "test_gamma_is_withheld_where_the_reference_fails"),
    ("policies", 'return ("incomplete" if missing else "pass")', 'return ("pass" if missing or True else "pass")',
     "no null is incomplete", POLICY + "test_three_check"),
    ("policies", 'if id_ != "D3"}', 'if id_ != "D2"}', "the alternative leaves out (d)", POLICY + "test_four_diagnostic"),
    ("policies", '"fail": " (drift-dominated)", "pass": " (noise-dominated)"',
     '"pass": " (drift-dominated)", "fail": " (noise-dominated)"', "names of the sub-modes",
     POLICY + "test_stability_names_the_sub_mode_of_four_diagnostic"),
    ("intervals", "math.sqrt(variance / n)", "math.sqrt(variance)", "error of a mean",
     "protocol/test_intervals.py::test_t_interval_of_one_two_three"),
    ("intervals", "for value in scaled) / (n - 1)", "for value in scaled) / n", "sample variance of groups",
     "protocol/test_intervals.py::test_t_interval_of_one_two_three"),
    ("thresholds", "return max(self.g_norm_floor", "return min(self.g_norm_floor", "float16 raises the floor",
     "protocol/test_thresholds.py::test_floor_of_each_dtype"),
    ("strategies", "case.n_test).low > case.chance", "case.n_test).mean > case.chance", "S0 looks at the interval",
     "protocol/test_strategies.py::test_s0"),
    ("warnings", "if share > thresholds.concentration_share:", "if share < thresholds.concentration_share:",
     "direction of Mode 2", POLICY + "test_concentration_names_layer_and_share"),
    ("warnings", "if margin.n == 1:", "if margin.n == 0:", "one network speaks of itself only",
     POLICY + "test_one_network_speaks_of_itself_only"),
]  # fmt: skip

CREDIT = [
    ("base", "e.new_full((), -1.0)", "e.new_full((), 1.0)", "error is softmax minus one-hot",
     FEEDBACK + "test_error_is_softmax_minus_one_hot"),
    ("base", "(a * a).mean(dim=1, keepdim=True)", "(a * a).mean(dim=0, keepdim=True)", "RMS is per sample",
     FEEDBACK + "test_rms_normalisation_is_the_stated_formula"),
    ("base", "rms if n == 1 else rms.mul_(n)", "rms", "the mean over 2^k samples is taken with the RMS", LOCAL),
    ("base", "credit < descend", "False", "a mixin's credit is descended with", FEEDBACK + "test_a_mixin_is_descended_with_too"),
    ("base", "            credits.close()", "            pass", "a refused descent is closed",
     FEEDBACK + "test_a_refused_descent_leaves_grad_mode_as_it_was"),
    ("base", "cls.descend = CreditRule.descend", "pass", "a changed credit descends with its own",
     "credit/test_fa_dfa.py::test_a_rule_that_changes_a_parents_credit_descends_with_its_own"),
    ("base", "cls.linear = False", "pass", "another credit is not linear because its parent was",
     OBJECTIVE + "test_a_mean_over_a_power_of_two_is_taken_before_a_linear_rule_to_the_same_bits"),
    ("base", "if a.requires_grad:", "if False:", "credit is detached",
     FEEDBACK + "test_credit_that_does_not_fit_names_rule_and_layer_in_one_line"),
    ("base", "yield from reversed(credit_of(", "yield from list(credit_of(", "credit comes from the top",
     ZOO + "test_numbers_of_a_known_network_are_those_of_its_construction"),
    ("fa", "return a @ b.t()", "return a @ b", "B_l sends credit down, not up",
     FEEDBACK + "test_fa_chain_starts_at_the_exact_gradient_and_is_raw"),
    ("fa", "widths[layer + 1] ** -0.5", "widths[layer + 1] ** -1", "scale of B",
     FEEDBACK + "test_feedback_matrices_have_the_stated_distribution"),
    ("fa", "return (depth,)", "return ()", "FA is exact at h_L",
     FEEDBACK + "test_exact_layers_are_all_for_bp_the_last_for_fa_none_for_dfa"),
    ("fa", "in reversed(range(len(self.B))):", "in range(len(self.B)):", "the chain starts at the top",
     FEEDBACK + "test_fa_chain_starts_at_the_exact_gradient_and_is_raw"),
    ("dfa", "n_classes**-0.5", "n_classes**0.5", "scale of B", FEEDBACK + "test_feedback_matrices_have_the_stated_distribution"),
    ("dfa", "for b in reversed(self.B))", "for b in self.B)", "layers arrive from the top",
     FEEDBACK + "test_dfa_credit_is_the_error_through_the_transposed_matrix"),
    ("dfa", "fresh.setup(stream, n_classes, generator)", "fresh.B = self.B", "the null is drawn anew",
     FEEDBACK + "test_redraw_draws_every_matrix_anew_and_leaves_the_rule_alone"),
    ("ep", "t * (-weight / beta)", "t * (weight / beta)", "credit has the sign of a gradient",
     EP + "test_error_credit_is_the_gradient_in_the_limit"),
    ("ep", "weight = 1 / len(points)", "weight = 1", "symmetric credit is a mean",
     EP + "test_linear_stream_has_the_closed_form_equilibrium"),
    ("ep", "falls = change <= 0", "falls = change >= 0", "the energy falls", EP + "test_energy_never_rises"),
    ("ep", "norm.track_running_stats = False", "pass", "batch statistics see the free phase only",
     EP + "test_batch_statistics_see_the_free_phase_only"),
    ("state_bridge", "/ (variance + 1e-12)", "", "error in units of the variance",
     BRIDGES + "test_normalised_error_is_one_minus_r_squared"),
    ("credit_bridge", "old.lerp_(new, 1 - keep)", "old.lerp_(new, keep)", "share of the old copy",
     BRIDGES + "test_moving_average"),
    ("credit_bridge", " - math.log(len(targets))", "", "soft-minimum is of a mean",
     BRIDGES + "test_soft_minimum_lies_between_minimum_and_mean"),
    ("credit_bridge", "epoch - 1 < self", "epoch < self", "warm-up is a fifth of the epochs",
     BRIDGES + "test_warm_up_is_dfa_for_the_first_fifth_of_the_epochs"),
    ("foreign", "losses.sum(), list(places", "losses.mean(), list(places", "foreign credit is of the summed loss",
     "credit/test_foreign.py::test_size_of_foreign_credit_is_that_of_the_summed_loss"),
    ("random", "self.key = torch.randint(2**62, (), generator=generator)", "pass", "another draw is another credit",
     FEEDBACK + "test_random_credit_is_another_one_for_another_generator_and_the_same_for_the_same"),
]  # fmt: skip

TRAINING = [
    ("objective", "else f.detach().to(dtype)", "else f.to(dtype)", "no gradient crosses a block boundary",
     OBJECTIVE + "test_no_gradient_crosses_a_block_boundary"),
    ("objective", "output_grad if early else output_grad * n", "output_grad", "rules see the per-sample gradient",
     OBJECTIVE + "test_rule_is_given_the_per_sample_gradient_at_the_last_state"),
    ("objective", "n & (n - 1) == 0", "True", "only a power of two divides without rounding",
     OBJECTIVE + "test_a_mean_over_a_power_of_two_is_taken_before_a_linear_rule_to_the_same_bits"),
    ("objective", "self.rule.linear and not learns and", "self.rule.linear and", "a rule learns from per-sample gradients",
     OBJECTIVE + "test_what_a_rule_learns_from_is_the_gradient_of_each_sample"),
    ("objective", "push if n == 1 else push / n", "push", "mean over the batch", LOCAL),
    ("objective", 'or self.credit_site == "output" else 0', 'or self.credit_site != "output" else 0',
     "credit site", LOCAL),
    ("objective", "(2 * penalty / n)", "(penalty / n)", "gradient of λ‖f‖²", LOCAL),
    ("objective", "(embedded, 0.0)", "(embedded, self.penalty)", "the penalty is on branches, not on the embedding", LOCAL),
    ("objective", "(2 * self.penalty / len(y))", "(2 * self.penalty)", "BP's penalty is a mean over the batch",
     OBJECTIVE + "test_bp_with_penalty_is_autograd_of_loss_plus_penalty_end_to_end"),
    ("objective", 'if self.credit_norm == "rms":', 'if self.credit_norm != "rms":', "credit norm", LOCAL),
    ("objective", "list(stream.blocks)[:first]", "list(stream.blocks)[first:]", "the first blocks are frozen",
     OBJECTIVE + "test_only_the_last_k_blocks_are_trained_and_the_rest_gets_its_gradient_all_the_same"),
    ("loop", "0.5 * (1 + math.cos", "0.5 * (1 - math.cos", "the schedule falls", PLAIN_LOOP),
    ("loop", "(epoch - 1) * steps + step", "epoch * steps + step", "the schedule starts at its top", PLAIN_LOOP),
    ("loop", "self.optimizer.zero_grad()", "pass", "gradients of one batch", PLAIN_LOOP),
    ("loop", "            self.model.train()\n", "            self.model.eval()\n", "trains in train mode",
     "trust/test_numerics.py::test_training_is_in_train_mode_and_accuracy_in_eval_mode"),
    ("loop", "        self.model.eval()\n", "        self.model.train()\n", "accuracy is of eval mode",
     "trust/test_numerics.py::test_training_is_in_train_mode_and_accuracy_in_eval_mode"),
    ("loop", "[: epoch + 1]", "[: epoch]", "a resumed trajectory has every epoch",
     LOOP + "test_interrupted_and_resumed_gives_the_files_of_an_uninterrupted_run"),
    ("loop", "mean.double() * n", "mean.double()", "train loss is a mean over samples",
     "trust/test_numerics.py::test_train_loss_weighs_a_short_last_batch_by_its_samples"),
    ("spec", 'content["options"] = self.options', "pass", "options are part of a run's name",
     "training/test_spec.py::test_options_of_a_rule_are_part_of_the_name"),
    ("spec", '{"train_last": 0, "penalty"', '{"train_last": None, "penalty"', "a null has frozen blocks",
     "training/test_spec.py::test_matched_null_keeps_rule_norm_and_site_and_the_strong_null_is_bp"),
    ("bundle", "sha256_file(path / name) != digest", "False", "an altered file is refused",
     "training/test_bundle.py::test_an_altered_part_is_named"),
]  # fmt: skip

HAND = "models/test_local.py::test_branch_and_gradients_are_those_of_the_modules"
MODELS = [
    ("local", "(w1 * m).sum(0)", "(w1 * m).sum(1)", "dγ_j sums over i", HAND),
    ("local", "total @ w1", "w1 @ total", "dβ = Wᵀ Σ G", HAND),
    ("local", "m.mul_(scale)", "m", "dW has the scale of the norm", HAND),
    ("local", "_add(weight, push.t() @ h)", "_add(weight, push.t() @ h.relu())", "dW of a stage meets its own input",
     "models/test_local.py::test_a_linear_map_behind_modules_without_parameters_is_that_of_the_modules"),
    ("local", "m._parameters or m._modules", "m._modules", "a stage with parameters in front goes to autograd",
     "models/test_local.py::test_other_sequences_are_left_to_autograd"),
    ("local", "else parameter.grad + grad", "else grad", "gradients add up", HAND),
    ("local", "not p.is_contiguous()", "False", "a weight in another order goes to autograd",
     "models/test_local.py::test_nor_with_a_weight_that_lies_otherwise_or_is_no_parameter"),
    ("local", "h = h.detach()", "h = h", "gradients have no graph",
     "training/test_objective.py::test_gradients_have_no_graph_whatever_is_marked"),
    ("local", "not p.requires_grad or", "", "a frozen weight stays frozen",
     "models/test_local.py::test_a_changed_branch_has_no_short_way"),
]  # fmt: skip

STREAM = [
    ("adamw", "(0.9, 0.999)", "(0.9, 0.99)", "betas of AdamW", "training/test_adamw.py::test_it_follows_the_formula"),
    ("adamw", "groups[self._steps[name], ", "groups[0, ", "a parameter's own count of steps",
     "training/test_adamw.py::test_a_parameter_that_joins_later_counts_its_own_steps"),
    ("adamw", '("exp_avg", "exp_avg_sq"), strict', '("exp_avg_sq", "exp_avg"), strict', "the state comes back as it was",
     "training/test_adamw.py::test_what_state_gave_goes_on_to_the_same_bits"),
    ("adamw", "grad if grad.stride() == p.stride() else", "grad if True else", "gradient and parameter lie alike",
     "training/test_adamw.py::test_memory_may_be_in_any_order"),
    ("stream", "            module.training = mode\n", "            module.training = False\n", "train mode is restored",
     "test_diagnose.py::test_untouched_restores_after_the_code_inside_changed_everything"),
    ("stream", "else g.sum(1)", "else g.mean(1)", "gradient of a common shift",
     "stream/test_interface.py::test_read_state_read_grad_and_write_credit_are_consistent"),
]  # fmt: skip

CLAIMS = "studies/test_reproduction.py::"
VERDICTS = "studies/test_verdicts.py::"
SEEDS = "studies/test_analyses.py::test_seeds_counts_every_choice_of_three"
STUDIES = [
    ("reproduction", "100 * (value - null)", "100 * value", "a margin is over its null",
     CLAIMS + "test_margins_are_to_the_null_of_the_same_seed"),
    ("reproduction", "low * value > 0 and ", "", "an order of magnitude has a sign",
     CLAIMS + "test_orders_of_magnitude_need_a_factor_of_three_and_the_sign"),
    ("reproduction", "claim.published.std or 0.0, ours.std or 0.0", "0.0, 0.0", "the spread of the seeds counts",
     CLAIMS + "test_the_spread_over_seeds_widens_what_counts"),
    ("reproduction", "if o.trained == claim.epochs", "if o.trained", "another length of training is not comparable",
     CLAIMS + "test_other_lengths_of_training_are_not_comparable_and_nothing_is_not_run"),
    ("claims", '"credit_norm": "rms", "credit_site": "input"}', '"credit_norm": "none", "credit_site": "input"}',
     "the published null", CLAIMS + "test_the_published_null_is_that_of_dfa_with_rms"),
    ("verdicts", "report.checks[check].answer if check else report.status", "report.status", "a verdict of one check",
     VERDICTS + "test_a_check_is_held_against_that_check"),
    ("verdicts", "if o.trained == wanted", "if o.trained", "another length of training is not comparable",
     VERDICTS + "test_another_network_or_length_is_another_verdict"),
    ("verdicts", 'ONE_OPEN if True in by_answer', 'ONE_OPEN if False in by_answer', "which norm reproduces it",
     VERDICTS + "test_an_interval_over_its_threshold_is_inconclusive"),
    ("credit_norm", 'if low > 1', 'if low > 0', "no factor is larger while its interval holds 1",
     "studies/test_analyses.py::test_depth_ladder_and_credit_norm"),
    ("verdicts", '"reject": "fail"', '"reject": "pass"', "a strategy that rejects fails",
     VERDICTS + "test_a_strategy_decides_as_the_ablation_does"),
    ("seeds", "c.value < c.threshold", "c.value < 0", "a choice of seeds is read against the threshold", SEEDS),
    ("coverage", "self.run == self.planned", "bool(self.run)", "a missing seed is not as planned",
     "studies/test_coverage.py::test_one_missing_seed_is_named"),
    ("coverage", "self.there.get(self.length, ())", "{s for x in self.there.values() for s in x}",
     "another length of training is not the planned one",
     "studies/test_coverage.py::test_a_shorter_training_does_not_count_for_the_longer_and_is_shown"),
    ("audit", 'margin.null != "bp"', 'margin.null == "bp"', "a verdict against the bp null says so",
     "studies/test_analyses.py::test_a_verdict_against_the_bp_null_says_so"),
    ("functional", "i.cosine_of_all if exact_layers else i.cosine", "i.cosine_of_all",
     "the exact layer is left out of our own ranks", "studies/test_analyses.py::test_functional_rank_correlation_by_hand"),
    ("seeds", "all(by_method.values())", "any(by_method.values())", "a choice of seeds for all methods at once", SEEDS),
]  # fmt: skip

MUTANTS = [
    Mutant(f"{room}{name}.py", old, new, breaks, test)
    for room, rows in (
        ("measure/", MEASURE),
        ("protocol/", PROTOCOL),
        ("credit/", CREDIT),
        ("training/", TRAINING),
        ("models/", MODELS),
        ("", STREAM),
        ("studies/", STUDIES),
    )
    for name, old, new, breaks, test in rows
]
