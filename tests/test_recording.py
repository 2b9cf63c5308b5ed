"""A recorded experiment comes back as it was, and a damaged file is refused with a sentence that says what to do."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch

from course.errors import CourseError
from course.lessons.experiments.recording import RecordingError, load, record, save


@dataclass(frozen=True, kw_only=True)
class Point:
    batch: int
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Found:
    first: Point
    others: list[Point]
    names: dict[str, list[float]]


FOUND = Found(first=Point(batch=4, loss=0.25), others=[Point(batch=8, loss=None)], names={"sgd": [1.5, 2.0]})


def rewrite(path: Path, **changes: object) -> None:
    """Replaces parts of a recorded file; None takes a part away."""
    tree = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in tree.items() if value is not None}))


def test_what_was_saved_is_loaded_with_its_classes(tmp_path: Path) -> None:
    save("toy", FOUND, seconds=1.26, folder=tmp_path)
    loaded = load("toy", Found, folder=tmp_path)
    assert loaded.data == FOUND
    assert loaded.seconds == 1.3
    assert loaded.command == "python -m course.lessons.experiments.toy"
    assert loaded.torch == torch.__version__


def test_the_machine_is_told_in_words_without_its_name(tmp_path: Path) -> None:
    text = save("toy", FOUND, seconds=1, folder=tmp_path).read_text()
    assert "processors" in text
    assert socket.gethostname() not in text


def test_a_number_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        save("toy", Point(batch=1, loss=float("nan")), seconds=1, folder=tmp_path)


def test_a_long_list_is_broken_into_lines_and_reads_the_same(tmp_path: Path) -> None:
    long = Found(first=FOUND.first, others=[], names={"adam": [number / 7 for number in range(100)]})
    path = save("toy", long, seconds=1, folder=tmp_path)
    assert load("toy", Found, folder=tmp_path).data == long
    assert len(path.read_text().splitlines()) > 100


def test_a_missing_file_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"python -m course\.lessons\.experiments\.toy"):
        load("toy", Found, folder=tmp_path)


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = save("toy", FOUND, seconds=1, folder=tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CourseError, match=r"toy\.json must be readable"):
        load("toy", Found, folder=tmp_path)


def test_a_file_without_its_seconds_is_refused(tmp_path: Path) -> None:
    rewrite(save("toy", FOUND, seconds=1, folder=tmp_path), seconds=None)
    with pytest.raises(RecordingError, match="got no seconds"):
        load("toy", Found, folder=tmp_path)


def test_data_that_lack_a_field_are_refused(tmp_path: Path) -> None:
    rewrite(save("toy", FOUND, seconds=1, folder=tmp_path), data={"first": asdict(FOUND.first), "names": {}})
    with pytest.raises(RecordingError, match=r"data of toy\.json must hold .*got no others"):
        load("toy", Found, folder=tmp_path)


def test_a_foreign_field_in_a_list_entry_is_refused(tmp_path: Path) -> None:
    data = asdict(FOUND) | {"others": [{"batch": 1, "loss": 0.5, "luck": 3}]}
    rewrite(save("toy", FOUND, seconds=1, folder=tmp_path), data=data)
    with pytest.raises(RecordingError, match="got luck too"):
        load("toy", Found, folder=tmp_path)


def test_something_else_than_a_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toy.json").write_text("[1, 2]")
    with pytest.raises(RecordingError, match="got list"):
        load("toy", Found, folder=tmp_path)


def test_record_keeps_what_measure_found(tmp_path: Path) -> None:
    assert record("toy", lambda: FOUND, folder=tmp_path) == tmp_path / "toy.json"
    assert load("toy", Found, folder=tmp_path).data == FOUND
