"""course/judging/sheet.py: answer sheets go there and back, and a damaged one is refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys

import pytest
import safetensors.torch
import torch
import toy
from conftest import same_record, same_tree
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_tree import KEYS, LEAVES, TREES

from course.errors import SheetError
from course.judging import sheet
from course.judging.sheet import Record, read, write
from course.judging.verdict import Suspect, Witness
from course.performing.exercise import Case, Failure, Observation

RECORDS = {toy.ID: toy.record()}
SHEET = write("start_here", RECORDS)
HEADER = 8 + int.from_bytes(SHEET[:8], "little")

NUMBERS = st.floats(0, 1e9)
FAILURES = st.builds(
    Failure, type=st.text(), message=st.text(), where=st.lists(st.text()).map(tuple), rank=st.none() | st.integers()
)
NAMED = st.dictionaries(KEYS, LEAVES, max_size=3)
OBSERVATIONS = st.builds(
    Observation,
    values=NAMED,
    ledger=NAMED,
    sources=st.dictionaries(KEYS, st.sampled_from(["claimed", "broker"])),
    error=st.none() | FAILURES,
)


@st.composite
def witnesses(draw):
    count = draw(st.integers(0, 2))
    return Witness(
        observations=tuple(draw(OBSERVATIONS) for _ in range(count)),
        free=tuple(draw(st.frozensets(KEYS)) for _ in range(count)),
        sensitivity=tuple(draw(st.dictionaries(KEYS, NUMBERS)) for _ in range(count)),
    )


@st.composite
def records(draw):
    cases = draw(st.lists(st.builds(Case, name=st.text(), inputs=st.dictionaries(KEYS, TREES, max_size=2)), max_size=2))
    suspects = st.builds(
        Suspect,
        name=st.text(),
        hint=st.text(),
        witnesses=st.lists(witnesses(), max_size=1).map(tuple),
        fails=st.frozensets(st.text(), max_size=2),
        same_as=st.frozensets(st.text(), max_size=2),
    )
    references = tuple(draw(OBSERVATIONS) for _ in cases)
    return Record(cases=tuple(cases), references=references, suspects=tuple(draw(st.lists(suspects, max_size=2))))


# there and back


@given(st.dictionaries(st.text(max_size=5), records(), max_size=2))
@settings(max_examples=40)
def test_what_was_written_is_read(written):
    found = read(write("unit", written))
    assert found.keys() == written.keys()
    assert all(same_record(found[name], written[name]) for name in written)


@given(st.dictionaries(KEYS, TREES, max_size=3))
def test_what_a_case_hides_is_read_too(hidden):
    case = Case(name="only", inputs={"x": 1}, hidden=hidden)
    written = Record(cases=(case,), references=(Observation(),), suspects=())
    assert same_tree(read(write("unit", {"a.b": written}))["a.b"].cases[0].hidden, hidden)


def test_a_real_record_is_read_as_it_was_written():
    assert same_record(read(SHEET)[toy.ID], RECORDS[toy.ID])


@given(st.dictionaries(st.text(max_size=5), records(), max_size=3))
@settings(max_examples=20)
def test_the_same_records_give_the_same_bytes_in_any_order(written):
    assert write("unit", written) == write("unit", dict(reversed(written.items())))


@given(OBSERVATIONS, st.dictionaries(KEYS, NUMBERS, min_size=2))
def test_the_order_inside_an_observation_is_not_written(seen, row):
    parts = {part: dict(reversed(getattr(seen, part).items())) for part in ("values", "ledger", "sources")}
    assert _with_witness(seen, row) == _with_witness(dataclasses.replace(seen, **parts), dict(reversed(row.items())))


def _with_witness(seen: Observation, row: dict[str, float]) -> bytes:
    witness = Witness(observations=(seen,), free=(frozenset(),), sensitivity=(row,))
    suspect = Suspect(name="it", hint="Cure.", witnesses=(witness,))
    return write("unit", {"a.b": Record(cases=(), references=(), suspects=(suspect,))})


def test_another_process_writes_the_same_bytes():
    folders = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]
    code = f"import sys; sys.path[:0] = {folders}; import test_sheet; sys.stdout.buffer.write(test_sheet.SHEET)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert done.stdout == SHEET


def test_a_sheet_without_tensors_is_read():
    empty = Record(cases=(), references=(), suspects=())
    assert read(write("unit", {"a.b": empty})) == {"a.b": empty}


def test_a_sheet_keeps_numbers_that_are_not_finite():
    seen = Observation(values={"a": math.inf, "b": -math.inf, "c": math.nan})
    case = Case(name="only", inputs={})
    found = read(write("unit", {"a.b": Record(cases=(case,), references=(seen,), suspects=())}))
    assert repr(found["a.b"].references[0].values) == "{'a': inf, 'b': -inf, 'c': nan}"


# damage


def refused(data: bytes) -> str:
    """The sentence with which these bytes are refused."""
    with pytest.raises(SheetError) as caught:
        read(data, name="the answer sheet toy")
    return str(caught.value)


def is_a_sentence(text: str) -> bool:
    """One line that says what must be, what came, and what to do."""
    starts = text.startswith("the answer sheet toy must ")
    return starts and "\n" not in text and ("install the course again" in text or "from the same release" in text)


CUTS = sorted({0, 1, 7, 8, 9, HEADER // 2, HEADER - 1, HEADER, HEADER + 1, len(SHEET) // 2, len(SHEET) - 1})


@pytest.mark.parametrize("length", CUTS)
def test_a_truncated_sheet_is_refused(length):
    assert is_a_sentence(refused(SHEET[:length]))


@given(st.integers(0, len(SHEET) - 1), st.integers(0, 7))
@settings(max_examples=300)
@example(SHEET.index(b"e-16") - 1, 0)
def test_a_sheet_with_one_flipped_bit_is_refused_or_says_the_same(position, bit):
    damaged = bytearray(SHEET)
    damaged[position] ^= 1 << bit
    found = _read_or_told(bytes(damaged))
    # the last of 17 digits may change, and the number stay
    assert is_a_sentence(found) if isinstance(found, str) else same_record(found[toy.ID], RECORDS[toy.ID])


def _read_or_told(data: bytes) -> dict[str, Record] | str:
    try:
        return read(data, name="the answer sheet toy")
    except SheetError as error:
        return str(error)


@given(st.integers(0, len(SHEET)), st.binary(min_size=1, max_size=20))
def test_a_sheet_with_foreign_bytes_inside_is_refused(position, more):
    assert is_a_sentence(refused(SHEET[:position] + more + SHEET[position:]))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data):
    assert is_a_sentence(refused(data))


def _foreign(header: object) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


FOREIGN = {
    "text": b"# a notebook\n" * 10,
    "zip": b"PK\x03\x04" + bytes(100),
    "weights": safetensors.torch.save({"weight": torch.zeros(2)}),
    "other metadata": safetensors.torch.save({"weight": torch.zeros(2)}, {"format": "pt"}),
    "sheet is no JSON": safetensors.torch.save({"a": torch.zeros(1)}, {"sheet": "{"}),
    "sheet is a list": safetensors.torch.save({"a": torch.zeros(1)}, {"sheet": "[]"}),
    "sheet is deep": safetensors.torch.save({"a": torch.zeros(1)}, {"sheet": "[" * 10**5}),
    "header is a list": _foreign([]),
    "header is null": _foreign(None),
    "no offsets": _foreign({"a": {"dtype": "F32", "shape": [1]}}),
    "endless header": b"\xff" * 16,
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_a_foreign_file_is_refused(name):
    assert "must be an answer sheet of this course, but it cannot be read" in refused(FOREIGN[name])


def _resealed(change, *, seal=True) -> bytes:
    """The sheet with its JSON changed by somebody who can make a checksum."""
    header = json.loads(SHEET[8:HEADER])
    body = json.loads(header["__metadata__"]["sheet"])
    tensors = safetensors.torch.load(SHEET)
    change(body)
    if seal:
        body.pop("sha256", None)
        body["sha256"] = sheet._digest(body, tensors)
    return safetensors.torch.save(tensors, {"sheet": json.dumps(body)})


def test_resealing_changes_nothing_by_itself():
    assert same_record(read(_resealed(lambda body: None))[toy.ID], RECORDS[toy.ID])


@pytest.mark.parametrize("version", [0, 1, "1", None, "x" * 1000])
def test_another_schema_version_is_refused(version):
    sentence = refused(_resealed(lambda body: body.update(schema=version)))
    assert is_a_sentence(sentence)
    assert f"must have schema version {sheet.SCHEMA}, got {version!r:.20}; " in sentence


@pytest.mark.parametrize("seal", [None, "", 3, "0" * 64])
def test_a_sheet_with_another_checksum_is_refused(seal):
    assert "checksum differs" in refused(_resealed(lambda body: body.update(sha256=seal), seal=False))


def _record(body: dict) -> dict:
    return body["exercises"][toy.ID]


CHANGES = {
    "no checksum": lambda body: body.pop("sha256"),
    "no exercises": lambda body: body.pop("exercises"),
    "exercises are a list": lambda body: body.update(exercises=[1]),
    "no cases": lambda body: _record(body).pop("cases"),
    "a case less": lambda body: _record(body)["cases"].pop(),
    "a tensor less": lambda body: _record(body)["cases"][0]["inputs"]["$dict"].update(x={"$tensor": "t999"}),
    "inputs are a list": lambda body: _record(body)["cases"][0].update(inputs=[1]),
    "values are a number": lambda body: _record(body)["references"][0].update(values=1),
    "sources are a number": lambda body: _record(body)["references"][0].update(sources=1),
    "error is a text": lambda body: _record(body)["references"][0].update(error="broken"),
    "error has more": lambda body: _record(body)["references"][0].update(error={"where": [], "more": 1}),
    "suspects are null": lambda body: _record(body).update(suspects=None),
    "free keys are short": lambda body: _record(body)["suspects"][0]["witnesses"][0]["free"].pop(),
    "not JSON's nan": lambda body: _record(body).update(more=math.nan),
    "nested": lambda body: _record(body)["cases"][0]["inputs"]["$dict"].update(x=_nested(900)),
}


def _nested(depth: int) -> list:
    inner: list = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_sheet_that_lost_a_part_is_refused(name):
    seal = name not in ("no checksum", "not JSON's nan")
    sentence = refused(_resealed(CHANGES[name], seal=seal))
    assert is_a_sentence(sentence)
    assert "is damaged" in sentence


def test_every_kind_of_tensor_is_under_the_checksum():
    kinds = [torch.zeros(()), torch.ones(2).bfloat16(), torch.ones(0), torch.ones(2) > 0, torch.ones(2, 2).half()]
    record = Record(cases=(Case(name="c", inputs={"x": list(kinds)}),), references=(Observation(),), suspects=())
    assert same_record(read(write("unit", {"a.b": record}))["a.b"], record)


def test_moving_a_value_to_another_shape_is_seen():
    tensors = {"t0": torch.zeros(2, 3)}
    assert sheet._digest({}, tensors) != sheet._digest({}, {"t0": torch.zeros(3, 2)})
    assert sheet._digest({}, tensors) != sheet._digest({}, {"t0": torch.zeros(2, 3, dtype=torch.int32)})
    assert sheet._digest({}, tensors) != sheet._digest({}, {"t1": torch.zeros(2, 3)})


# the shipped sheet


def test_a_sheet_is_loaded_from_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(sheet, "FOLDER", tmp_path)
    (tmp_path / "start_here.safetensors.gz").write_bytes(sheet.compressed(SHEET))
    assert same_record(sheet.load("start_here")[toy.ID], RECORDS[toy.ID])


def test_a_sheet_that_is_not_there_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(sheet, "FOLDER", tmp_path)
    with pytest.raises(SheetError, match=r"unit start_here must lie at .*, but No such file.*; install"):
        sheet.load("start_here")


DAMAGES = {
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "not compressed": lambda data: SHEET,
    "a changed byte": lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:],
    "a sheet that was cut": lambda data: sheet.compressed(SHEET[:-1]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_sheet_of_the_package_is_named(monkeypatch, tmp_path, damage):
    monkeypatch.setattr(sheet, "FOLDER", tmp_path)
    (tmp_path / "start_here.safetensors.gz").write_bytes(damage(sheet.compressed(SHEET)))
    with pytest.raises(SheetError, match=r"the answer sheet start_here\.safetensors\.gz must .* install"):
        sheet.load("start_here")


def test_a_failure_keeps_its_message_and_lines():
    broke = dataclasses.replace(RECORDS[toy.ID].references[0], error=Failure(type="E", message="m", where=("line 1",)))
    case = RECORDS[toy.ID].cases[0]
    found = read(write("unit", {"a.b": Record(cases=(case,), references=(broke,), suspects=())}))
    assert found["a.b"].references[0].error == broke.error
