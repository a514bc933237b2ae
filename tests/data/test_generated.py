"""The generated tasks: labels recomputed from the definition, balance, and what `load_dataset` hands out."""

import numpy as np
import pytest
import torch
from tests.refusals import refusal

from creditscope.data import DATASET_NAMES, load_dataset, quadratic, student


@pytest.mark.parametrize(("name", "dim"), [("quadratic", 48), ("student", 128)])
def test_shapes_types_and_balance(name, dim):
    ds = load_dataset(name)
    assert ds.name == name
    assert ds.n_classes == 10
    assert ds.input_shape == (dim,)
    assert not ds.augmentable
    assert ds.train_x.shape == (20_000, dim)
    assert ds.test_x.shape == (4_000, dim)
    assert ds.train_x.dtype == ds.test_x.dtype == torch.float32
    assert ds.train_y.dtype == ds.test_y.dtype == torch.int64
    for y in (ds.train_y, ds.test_y):
        share = torch.bincount(y, minlength=10) / len(y)
        assert share.min() > 0.06
        assert share.max() < 0.14
    assert abs(ds.train_x.mean()) < 0.01
    assert abs(ds.train_x.std() - 1) < 0.01
    assert load_dataset(name) is ds


def test_quadratic_labels_follow_the_definition():
    x, forms, linear = quadratic.draw_teacher()
    scores = np.einsum("ni,cij,nj->nc", x[:500], forms, x[:500], optimize=True)
    mean = np.einsum("cii->c", forms)
    # Var x'Ax = |A|^2 + <A, A'> for standard normal x and any square A
    variance = (forms**2).sum((1, 2)) + np.einsum("cij,cji->c", forms, forms)
    scores = (scores - mean) / np.sqrt(variance) + 0.5 * np.einsum("ci,ni->nc", linear, x[:500])
    ds = quadratic.load_quadratic()
    assert ds.train_y[:500].tolist() == scores.argmax(1).tolist()
    np.testing.assert_array_equal(ds.train_x[:500].numpy(), x[:500].astype(np.float32))


def test_quadratic_forms_are_standardised_and_the_linear_part_has_half_their_size():
    x, forms, linear = quadratic.draw_teacher()
    form = quadratic.teacher_scores(x, forms, np.zeros_like(linear))
    assert np.abs(form.mean(0)).max() < 0.03
    assert np.abs(form.std(0) - 1).max() < 0.03
    both = quadratic.teacher_scores(x, forms, linear)
    assert abs((both - form).std() - 0.5) < 0.05


def test_quadratic_is_the_same_on_every_machine():
    x, forms, linear = quadratic.draw_teacher()
    rng = np.random.Generator(np.random.PCG64(48))
    assert np.array_equal(forms, rng.standard_normal((10, 48, 48)))
    assert np.array_equal(linear, rng.standard_normal((10, 48)) / np.sqrt(48))
    assert np.array_equal(x, rng.standard_normal((24_000, 48)))


def test_student_labels_follow_the_definition():
    x, blocks, readout = student.draw_teacher()
    ds = student.load_student()
    for k in range(50):
        h = x[k]
        for weight in blocks:
            h = h + student.BRANCH_SCALE * np.tanh(weight @ h)
        assert int(ds.train_y[k]) == int(np.argmax(readout @ h))
    np.testing.assert_allclose(np.linalg.norm(readout, axis=1), 1)
    assert blocks.shape == (4, 128, 128)
    assert abs(blocks.std() * np.sqrt(128) - 1) < 0.02


def test_phi_runs_from_identity_to_tanh():
    z = np.linspace(-3, 3, 7)
    np.testing.assert_array_equal(student.phi(z, 0.0), z)
    np.testing.assert_array_equal(student.phi(z, 1.0), np.tanh(z))
    np.testing.assert_allclose(student.phi(z, 0.25), 0.75 * z + 0.25 * np.tanh(z))


def test_student_task_is_odd_so_no_class_is_favoured():
    x, blocks, readout = student.draw_teacher()
    np.testing.assert_allclose(
        student.teacher_scores(-x[:20], blocks, readout), -student.teacher_scores(x[:20], blocks, readout), atol=1e-12
    )


def test_unknown_name_lists_the_known_ones():
    said = refusal(load_dataset, "mnist")
    assert said.startswith("unknown data set 'mnist'")
    assert all(name in said for name in DATASET_NAMES)
