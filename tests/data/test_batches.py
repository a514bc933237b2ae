"""Batches: order, augmentation, normalisation and the sample hash, each against a second computation."""

import hashlib

import numpy as np
import pytest
import torch
from tests.refusals import refusal

from creditscope.data import Dataset, epoch_batches, eval_batches, samples_hash
from creditscope.data import test_batches as all_test_batches
from creditscope.data.augment import crops, flipped_windows, padded, random_crops
from creditscope.data.dataset import _mix

MEAN, STD = (0.5, 0.25, 0.125), (0.25, 0.5, 0.2)


def images(n_train: int = 37, n_test: int = 40) -> Dataset:
    rng = np.random.default_rng(7)
    # 0 is left out of the pixels, so that padding can be told from image
    train = torch.from_numpy(rng.integers(1, 256, (n_train, 3, 32, 32), dtype=np.uint8))
    test = torch.from_numpy(rng.integers(1, 256, (n_test, 3, 32, 32), dtype=np.uint8))
    return Dataset("images", train, torch.arange(n_train), test, torch.arange(n_test), 64, (3, 32, 32), True, MEAN, STD)


def vectors(n_train: int = 10, n_test: int = 12) -> Dataset:
    train, test = torch.arange(n_train * 4.0).view(-1, 4), -torch.arange(n_test * 4.0).view(-1, 4)
    return Dataset("vectors", train, torch.arange(n_train), test, torch.arange(n_test), 12, (4,), False, (), ())


def reference_normalise(pixels: np.ndarray) -> np.ndarray:
    return (pixels.astype(np.float64) / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))


def crop(image: np.ndarray, top: int, left: int) -> np.ndarray:
    """One [3, 32, 32] window of an image, pixel by pixel from the definition: outside the image is 0."""
    out = np.zeros_like(image)
    for row in range(32):
        for column in range(32):
            y, x = row + top - 4, column + left - 4
            if 0 <= y < 32 and 0 <= x < 32:
                out[:, row, column] = image[:, y, x]
    return out


def test_plain_epoch_visits_every_sample_once_and_keeps_the_last_batch():
    ds = images()
    batches = list(epoch_batches(ds, 16, seed=1, epoch=0, augment=False))
    assert [len(y) for _, y in batches] == [16, 16, 5]
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert sorted(y.tolist()) == list(range(37))
    assert y.tolist() != list(range(37))
    np.testing.assert_allclose(x.numpy(), reference_normalise(ds.train_x.numpy()[y.numpy()]), atol=1e-6)


def test_augmented_batches_are_crops_and_mirrored_crops_of_the_padded_raw_image():
    ds = images()
    generator = torch.Generator().manual_seed(_mix(5, 2))
    order = torch.randperm(37, generator=generator)
    flips, tops, lefts = random_crops(37, generator)
    assert 0 < flips.sum() < 37
    batches = list(epoch_batches(ds, 16, seed=5, epoch=2, augment=True))
    assert torch.equal(torch.cat([y for _, y in batches]), order)
    x = torch.cat([x for x, _ in batches])
    assert x.dtype == torch.float32
    assert all(part.is_contiguous() for part, _ in batches)
    for k, (row, flip, top, left) in enumerate(zip(order.tolist(), flips, tops, lefts, strict=True)):
        image = ds.train_x[row].numpy()
        expected = crop(np.flip(image, axis=2) if flip else image, top, left)
        np.testing.assert_allclose(x[k].numpy(), reference_normalise(expected), atol=2e-6)


def test_crops_by_index_arithmetic_are_the_windows_of_the_padded_copy():
    """How an accelerator augments, against how the CPU does."""
    ds = images()
    flip, top, left = random_crops(37, torch.Generator().manual_seed(3))
    rows = torch.randperm(37, generator=torch.Generator().manual_seed(4))
    windows = flipped_windows(ds.train_x)[flip.numpy(), rows.numpy(), top.numpy(), left.numpy()]
    assert np.array_equal(crops(padded(ds.train_x), rows, flip, top, left).numpy(), windows)


def test_padding_is_black_before_normalisation():
    ds = images(n_train=200)
    black = torch.tensor([-m / s for m, s in zip(MEAN, STD, strict=True)])
    x = torch.cat([x for x, _ in epoch_batches(ds, 64, 0, 0, augment=True)])
    padded_corner = (x[:, :, 0, 0] - black).abs().amax(1) < 1e-6
    # a corner is padding unless both offsets point inwards: 1 - (5/9)^2 = .69
    assert 0.55 < padded_corner.float().mean() < 0.83


def test_every_offset_and_both_orientations_are_drawn_evenly():
    flip, top, left = (t.numpy() for t in random_crops(90_000, torch.Generator().manual_seed(0)))
    assert set(flip) == {0, 1}
    assert abs(flip.mean() - 0.5) < 0.01
    for offsets in (top, left):
        share = np.bincount(offsets, minlength=9) / 90_000
        assert len(share) == 9
        assert np.abs(share - 1 / 9).max() < 0.006
    assert abs(np.corrcoef(top, left)[0, 1]) < 0.02
    assert abs(np.corrcoef(flip, left)[0, 1]) < 0.02


@pytest.mark.parametrize("augment", [False, True])
def test_an_epoch_repeats_bit_by_bit_and_leaves_the_global_state_alone(augment):
    def digest(seed: int, epoch: int) -> str:
        return samples_hash(epoch_batches(images(), 16, seed, epoch, augment))

    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = digest(42, 1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert digest(42, 1) == first
    assert len({first, digest(42, 2), digest(43, 0), digest(43, 1), digest(1, 42)}) == 5


def test_the_order_is_the_same_with_and_without_augmentation():
    ds = images()
    plain = [y.tolist() for _, y in epoch_batches(ds, 16, 4, 4, augment=False)]
    assert plain == [y.tolist() for _, y in epoch_batches(ds, 16, 4, 4, augment=True)]


def test_augmentation_does_not_change_the_data_set():
    ds = images()
    before = ds.train_x.clone()
    for x, _ in epoch_batches(ds, 16, 0, 0, augment=True):
        x.zero_()
    assert torch.equal(ds.train_x, before)
    again = samples_hash(epoch_batches(ds, 16, 0, 0, augment=True))
    assert again == samples_hash(epoch_batches(images(), 16, 0, 0, augment=True))


def test_vectors_are_passed_as_they_are_and_never_augmented():
    ds = vectors()
    for x, y in epoch_batches(ds, 4, 0, 0, augment=True):
        assert torch.equal(x, ds.train_x[y])
        assert x.dtype == torch.float32


def test_test_batches_come_in_order():
    ds = images()
    batches = list(all_test_batches(ds, 16))
    assert [len(y) for _, y in batches] == [16, 16, 8]
    assert torch.equal(torch.cat([y for _, y in batches]), ds.test_y)
    x = torch.cat([x for x, _ in batches])
    np.testing.assert_allclose(x.numpy(), reference_normalise(ds.test_x.numpy()), atol=1e-6)


def test_eval_batches_are_disjoint_fixed_test_samples():
    ds = images()
    batches = eval_batches(ds, n=3, batch_size=10)
    rows = torch.cat([y for _, y in batches]).tolist()
    assert [len(y) for _, y in batches] == [10, 10, 10]
    assert len(set(rows)) == 30
    assert rows != sorted(rows)
    for x, y in batches:
        np.testing.assert_allclose(x.numpy(), reference_normalise(ds.test_x.numpy()[y.numpy()]), atol=1e-6)
    torch.manual_seed(1234)
    assert samples_hash(eval_batches(images(), n=3, batch_size=10)) == samples_hash(batches)
    assert samples_hash(eval_batches(ds, n=2, batch_size=10)) == samples_hash(batches[:2])


@pytest.mark.parametrize(("n", "size"), [(5, 10), (0, 10), (-1, 10), (1, 41)])
def test_eval_batches_refuse_more_than_there_is(n, size):
    assert "40 test samples of images" in refusal(lambda: eval_batches(images(), n=n, batch_size=size))


def test_batch_sizes_and_seeds_are_checked():
    assert "batch size must be at least 1, got 0" in refusal(lambda: list(epoch_batches(vectors(), 0, 0, 0, False)))
    assert "batch size" in refusal(lambda: list(all_test_batches(vectors(), -1)))
    assert "seed -1, epoch 0" in refusal(lambda: list(epoch_batches(vectors(), 4, -1, 0, False)))


def test_samples_hash_is_of_x_then_y_and_does_not_depend_on_the_split():
    ds = images()
    once, parts = samples_hash(all_test_batches(ds, 40)), samples_hash(all_test_batches(ds, 7))
    x, y = next(iter(all_test_batches(ds, 40)))
    assert once == parts == hashlib.sha256(x.numpy().tobytes() + y.numpy().tobytes()).hexdigest()[:16]
    changed = x.clone()
    changed[3, 0, 0, 0] += 1
    assert samples_hash([(changed, y)]) != once
    assert samples_hash([(x, y.flip(0))]) != once
    assert samples_hash([(x.to(memory_format=torch.channels_last), y)]) == once
