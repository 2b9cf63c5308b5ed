"""A table of distances between 16 European cities, and where they lie.

Source of the coordinates: GeoNames, https://www.geonames.org, CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). The distances were computed from them, along great circles of a sphere.
`README.md` beside this file says how.
"""

from __future__ import annotations

import csv
from importlib import resources
from typing import NamedTuple

import torch
from torch import Tensor

from course.lessons.data import DataError

COUNT = 16
EARTH = 6371.0  # kilometres: the mean radius
PLACE = ("city", "geonameid", "latitude", "longitude")  # the first columns; the others are distances


class Cities(NamedTuple):
    """Names; distances float64 (16, 16) in whole kilometres; degrees float64 (16, 2), latitude and longitude."""

    names: tuple[str, ...]
    distances: Tensor
    degrees: Tensor


def cities() -> Cities:
    """The table, in alphabetical order. Raises DataError if the file is damaged: the distances must fit the places."""
    names, numbers = _read()
    degrees, distances = numbers[:, :2], numbers[:, 2:]
    if len(names) != COUNT or not (great_circles(degrees).round() == distances).all():
        raise DataError(
            "cities.csv must hold 16 cities and the great-circle distances between them in whole kilometres, got "
            f"{len(names)} cities and other distances: install the package again"
        )
    return Cities(names, distances, degrees)


def _read() -> tuple[tuple[str, ...], Tensor]:
    """The names of `cities.csv`, and float64 (N, 2 + N): latitude, longitude and the distances of each city."""
    file = resources.files("course.lessons.data") / "cities.csv"
    try:
        header, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
        names = tuple(row[0] for row in rows)
        if header != [*PLACE, *names]:
            raise ValueError("columns that are not those of its rows")
        numbers = torch.tensor([[float(entry) for entry in row[2:]] for row in rows], dtype=torch.float64)
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise DataError(f"cities.csv must be readable, got {error}: install the package again") from error
    return names, numbers


def great_circles(degrees: Tensor) -> Tensor:
    """Distances in km on a sphere of radius 6371.0 km, between places (N, 2) in degrees of latitude and longitude.

    The haversine formula: hav(d / R) = hav(change of latitude) + cos cos hav(change of longitude), with
    hav(a) = sin^2(a / 2). Exact for small distances too, where the law of cosines loses digits. On the real, flattened
    earth a distance differs by up to 0.5%.
    """
    latitude, longitude = degrees.deg2rad().unbind(-1)
    across = _haversine(latitude[:, None] - latitude)
    along = _haversine(longitude[:, None] - longitude)
    return 2 * EARTH * (across + latitude.cos()[:, None] * latitude.cos() * along).sqrt().clamp(max=1).asin()


def _haversine(angle: Tensor) -> Tensor:
    return (angle / 2).sin().square()
