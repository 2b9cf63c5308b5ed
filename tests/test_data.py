"""The digits are those of the source, in the stated form, and the split is always the same."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from course.lessons import data
from course.lessons.data import DataError, digits, digits_split


def test_images_and_labels_have_the_stated_form() -> None:
    images, labels = digits()
    assert images.shape == (1797, 64)
    assert images.dtype == torch.float32
    assert labels.shape == (1797,)
    assert labels.dtype == torch.int64


def test_pixels_are_sixteenths_from_white_to_black() -> None:
    images, _ = digits()
    assert images.min() == 0
    assert images.max() == 1
    assert torch.equal(images * 16, (images * 16).round())


def test_each_class_is_as_frequent_as_the_source_says() -> None:
    assert digits().labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_images_belong_to_their_labels() -> None:
    """The mean images of the classes sort nine of ten digits: no row has lost its label."""
    images, labels = digits()
    means = torch.stack([images[labels == digit].mean(0) for digit in range(10)])
    nearest = torch.cdist(images, means).argmin(1)
    assert (nearest == labels).float().mean() > 0.88


def test_the_file_is_the_one_that_the_readme_describes() -> None:
    folder = resources.files("course.lessons.data")
    stated = re.search(r"`([0-9a-f]{64})`", (folder / "README.md").read_text(encoding="utf-8"))
    assert stated is not None
    assert hashlib.sha256((folder / "digits.npz").read_bytes()).hexdigest() == stated[1]


def test_the_authors_are_credited_where_the_data_is_loaded() -> None:
    assert all(words in str(data.__doc__) for words in ("Alpaydin", "Kaynak", "CC BY 4.0"))


def test_the_split_holds_each_digit_once() -> None:
    train, test = digits_split()
    assert (len(train.images), len(test.images)) == (1500, 297)
    together = torch.cat([train.images, test.images])
    assert torch.equal(together.sum(0), digits().images.sum(0))
    assert torch.equal(torch.cat([train.labels, test.labels]).bincount(), digits().labels.bincount())


def test_the_split_is_always_the_same_and_leaves_no_trace() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = digits_split()[1].labels
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, digits_split()[1].labels)
    assert first[:10].tolist() == [5, 7, 4, 5, 9, 5, 5, 8, 7, 7]


@pytest.mark.parametrize("damage", ["not an archive", "half a file", "bits flipped", "an image is missing", "too dark"])
def test_a_damaged_file_is_refused_with_a_sentence(
    damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "digits.npz"
    images, labels = np.zeros((1797, 64), np.uint8), np.zeros(1797, np.uint8)
    if damage == "not an archive":
        file.write_bytes(b"nothing of the kind")
    elif damage in ("half a file", "bits flipped"):
        whole = (resources.files("course.lessons.data") / "digits.npz").read_bytes()
        file.write_bytes(whole[: len(whole) // 2] + (b"~" * 1000 + whole[24_000:] if "flip" in damage else b""))
    elif damage == "an image is missing":
        np.savez(file, images=images[1:], labels=labels)
    else:
        np.savez(file, images=images + 17, labels=labels)
    monkeypatch.setattr(data.resources, "files", lambda _: file.parent)
    with pytest.raises(DataError, match=r"digits\.npz must"):
        digits()
