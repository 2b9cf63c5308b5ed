"""The table of city distances fits the coordinates, and a damaged one is refused."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import torch

from course.lessons.data import DataError
from course.lessons.data import cities as module
from course.lessons.data.cities import cities, great_circles

TABLE = (resources.files("course.lessons.data") / "cities.csv").read_text(encoding="utf-8")


def test_names_distances_and_degrees_have_the_stated_form() -> None:
    names, distances, degrees = cities()
    assert len(names) == len(set(names)) == 16
    assert list(names) == sorted(names)
    assert distances.shape == (16, 16)
    assert degrees.shape == (16, 2)
    assert distances.dtype == degrees.dtype == torch.float64


def test_distances_are_whole_symmetric_and_zero_to_itself() -> None:
    _, distances, _ = cities()
    assert torch.equal(distances, distances.T)
    assert torch.equal(distances, distances.round())
    assert torch.equal(distances.diagonal(), torch.zeros(16, dtype=torch.float64))
    assert distances.fill_diagonal_(1).min() > 0


def test_no_way_round_is_shorter_than_the_direct_one() -> None:
    _, distances, _ = cities()
    shortest = (distances[:, :, None] + distances[None]).amin(1)
    assert (distances <= shortest + 1.5).all()  # three distances are rounded


def test_every_city_lies_in_europe() -> None:
    north, east = cities().degrees.T
    assert ((north > 35) & (north < 62)).all()
    assert ((east > -10) & (east < 31)).all()


def test_distances_known_from_geometry_come_out() -> None:
    """A quarter of the equator, pole to pole, a degree along a meridian, and along the parallel of 60 degrees."""
    degrees = torch.tensor([[0, 0], [0, 90], [90, 0], [-90, 0], [1, 0], [60, 0], [60, 180]], dtype=torch.float64)
    found = great_circles(degrees)
    quarter = torch.pi / 2 * 6371
    assert found[0, 1] == pytest.approx(quarter)
    assert found[2, 3] == pytest.approx(2 * quarter)
    assert found[0, 4] == pytest.approx(quarter / 90)
    assert found[5, 6] == pytest.approx(quarter * 60 / 90)  # over the pole, not along the parallel


def test_rounding_leaves_no_doubt() -> None:
    """No distance lies so near to a half that another machine could round it the other way."""
    exact = great_circles(cities().degrees)
    assert ((exact - exact.floor() - 0.5).abs() > 1e-6).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (",1803,", ",1804,"),
        ("37.98376", "38.98376"),
        ("Athens,264371", "Atlantis,264371"),
        (",1598\n", "\n"),
        (",1598\n", ",far\n"),
        (",1598\n", ",nan\n"),
        (TABLE, ""),
        (TABLE[TABLE.index("Warsaw,756135") :], ""),
    ],
    ids=["a distance", "a place", "a name", "a short row", "a word", "nan", "empty", "a city is missing"],
)
def test_a_damaged_file_is_refused_with_a_sentence(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert old in TABLE
    (tmp_path / "cities.csv").write_text(TABLE.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr(module.resources, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match=r"cities\.csv must"):
        cities()


def test_a_missing_file_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.resources, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match=r"cities\.csv must be readable"):
        cities()


def test_the_source_is_credited_where_the_data_is_loaded_and_in_the_readme() -> None:
    readme = (resources.files("course.lessons.data") / "README.md").read_text(encoding="utf-8")
    for text in (str(module.__doc__), readme[readme.index("cities.csv") :]):
        assert all(words in text for words in ("GeoNames", "CC BY 4.0"))
