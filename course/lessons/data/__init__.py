"""Small data sets that ship inside the package; nothing is downloaded.

digits   1,797 handwritten digits of 8 x 8 pixels. Source: E. Alpaydin and C. Kaynak (1998), Optical Recognition of
         Handwritten Digits, UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0
         (https://creativecommons.org/licenses/by/4.0/). `README.md` beside this file says what was changed.
cities   distances between 16 European cities, in the module `cities`; coordinates from GeoNames
         (https://www.geonames.org), CC BY 4.0
"""

from __future__ import annotations

import zlib
from importlib import resources
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from course.errors import CourseError

COUNT, PIXELS, INK = 1797, 64, 16  # images, pixels of one, and the greatest number in a pixel
TRAIN = 1500  # images of the split that are for training
SPLIT_SEED = 0


class DataError(CourseError):
    """A data file of the package is not what it was when the package was made."""


class Digits(NamedTuple):
    """Handwritten digits: images float32 (N, 64) in [0, 1], row by row from the top; labels int64 (N,), 0 to 9."""

    images: Tensor
    labels: Tensor


def digits() -> Digits:
    """All 1,797 digits, in the order of the source.

    They are the test part of the UCI set (13 writers; its training part is by 30 others), which is also what
    scikit-learn calls `load_digits`. A pixel says how many of 4 x 4 dots were black, 0 to 16; here it is divided
    by 16. 460 KB of memory; the file has 45 KB and is read on every call. Raises DataError if it is damaged.
    """
    images, labels = _read()
    whole = images.shape == (COUNT, PIXELS) and labels.shape == (COUNT,)
    if not whole or images.max() > INK or labels.max() > 9:
        raise DataError(
            f"digits.npz must hold 1,797 images of 64 pixels from 0 to 16 and labels from 0 to 9, got images of "
            f"shape {images.shape} and labels of shape {labels.shape}: install the package again"
        )
    return Digits(torch.from_numpy(images).float() / INK, torch.from_numpy(labels).long())


def _read() -> tuple[np.ndarray, np.ndarray]:
    """The two uint8 arrays of `digits.npz`."""
    file = resources.files(__name__) / "digits.npz"
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return arrays["images"], arrays["labels"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise DataError(f"digits.npz must be readable, got {error}: install the package again") from error


def digits_split() -> tuple[Digits, Digits]:
    """The digits in two parts, 1,500 to train on and 297 to test on; always the same ones.

    Simplification: the same 13 people wrote both parts, so the test says how well new digits of known writers are
    read. Digits of people never seen are harder.
    """
    images, labels = digits()
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(SPLIT_SEED))
    train, test = order[:TRAIN], order[TRAIN:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])
