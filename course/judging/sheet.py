"""Answer sheets: recorded observations of references and misconceptions on the public cases. Data, no code.

One file per unit: safetensors whose tensors are those of the tree, and whose header holds the rest as JSON under the
key `sheet`. Most of it is names that recur, so the file is compressed. The cases lie in the sheet too, so that every
machine judges the same numbers.

    {exercise id: Record} --write--> bytes --compressed--> file --from_file--> {exercise id: Record}
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from course.errors import SheetError
from course.judging.verdict import Suspect, Witness
from course.performing.exercise import Case, Failure, Observation
from course.tree import pack, unpack

SCHEMA = 3  # 2: cases with a hidden part; 3: cases in hard forms
FOLDER = Path(__file__).parents[1] / "sheets"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a sheet holds of one exercise: public cases, the reference's observations, and the misconceptions."""

    cases: tuple[Case, ...]
    references: tuple[Observation, ...]
    suspects: tuple[Suspect, ...]


def path_of(unit: str) -> Path:
    """Where the sheet of a unit lies inside the package."""
    return FOLDER / f"{unit}.safetensors.gz"


def write(unit: str, records: dict[str, Record]) -> bytes:
    """The sheet of a unit as bytes; the same records give the same bytes."""
    tensors: dict[str, Tensor] = {}
    exercises = {name: _pack_record(records[name], tensors) for name in sorted(records)}
    tensors.setdefault("none", torch.zeros(1))  # a file without tensors is refused by some readers
    body = {"schema": SCHEMA, "unit": unit, "exercises": exercises}
    sealed = {**body, "sha256": _digest(body, tensors)}
    # one key only: safetensors writes several in an order that changes from run to run
    return safetensors.torch.save(tensors, {"sheet": json.dumps(sealed, sort_keys=True, allow_nan=False)})


def read(data: bytes, *, name: str = "the answer sheet") -> dict[str, Record]:
    """The records of a sheet. Raises SheetError where it is damaged, foreign or of another schema version."""
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        body = json.loads(header["__metadata__"]["sheet"])
        version = body["schema"]
        tensors = safetensors.torch.load(data)
    except Exception as error:
        raise _unreadable(name, error) from None
    if version != SCHEMA:
        raise SheetError(
            f"{name} must have schema version {SCHEMA}, got {version!r:.20}; "
            "install course and sheets from the same release"
        )
    try:
        return _unsealed(body, tensors)
    except Exception as error:
        raise SheetError(
            f"{name} must be as it was written, but it is damaged ({type(error).__name__}: {error}); "
            "install the course again"
        ) from None


def _unreadable(name: str, error: Exception) -> SheetError:
    return SheetError(
        f"{name} must be an answer sheet of this course, but it cannot be read ({type(error).__name__}); "
        "install the course again"
    )


def compressed(data: bytes) -> bytes:
    """The bytes of a sheet as its file holds them: a tenth of them."""
    return gzip.compress(data, compresslevel=6, mtime=0)


def from_file(data: bytes, *, name: str = "the answer sheet") -> dict[str, Record]:
    """The records of a sheet's file. Raises SheetError as `read` does, and where it cannot be decompressed."""
    try:
        whole = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(name, error) from None
    return read(whole, name=name)


def _unsealed(body: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Record]:
    if body.pop("sha256") != _digest(body, tensors):
        raise ValueError("its checksum differs")
    return {name: _unpack_record(record, tensors) for name, record in body["exercises"].items()}


def _digest(body: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """SHA-256 of everything that a sheet says, however the file lays it out."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode())
    for name in sorted(tensors):
        flat = tensors[name].reshape(-1)
        digest.update(f"{name} {flat.dtype} {tuple(tensors[name].shape)} ".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def load(unit: str) -> dict[str, Record]:
    """The records of the sheet that ships with the course. Raises SheetError."""
    path = path_of(unit)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SheetError(
            f"the answer sheet of unit {unit} must lie at {path}, but {error.strerror}; install the course again"
        ) from None
    return from_file(data, name=f"the answer sheet {path.name}")


# --- records ---------------------------------------------------------------------------------------


def _pack_record(record: Record, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {
        "cases": [_pack_case(case, tensors) for case in record.cases],
        "references": [_pack_observation(seen, tensors) for seen in record.references],
        "suspects": [
            {
                "name": suspect.name,
                "hint": suspect.hint,
                "fails": sorted(suspect.fails),
                "same_as": sorted(suspect.same_as),
                "witnesses": [_pack_witness(witness, tensors) for witness in suspect.witnesses],
            }
            for suspect in record.suspects
        ],
    }


def _unpack_record(packed: dict[str, Any], tensors: dict[str, Tensor]) -> Record:
    cases = tuple(_unpack_case(case, tensors) for case in packed["cases"])
    references = tuple(_unpack_observation(seen, tensors) for seen in packed["references"])
    if len(references) != len(cases):
        raise ValueError(f"{len(cases)} cases but {len(references)} references")
    suspects = tuple(
        Suspect(
            name=suspect["name"],
            hint=suspect["hint"],
            fails=frozenset(suspect["fails"]),
            same_as=frozenset(suspect["same_as"]),
            witnesses=tuple(_unpack_witness(witness, tensors) for witness in suspect["witnesses"]),
        )
        for suspect in packed["suspects"]
    )
    return Record(cases=cases, references=references, suspects=suspects)


def _pack_case(case: Case, tensors: dict[str, Tensor]) -> dict[str, Any]:
    parts = {part: pack(dict(getattr(case, part)), tensors) for part in ("inputs", "hidden")}
    return {"name": case.name, "lies": dict(case.lies), "hard": case.hard, **parts}


def _unpack_case(packed: dict[str, Any], tensors: dict[str, Tensor]) -> Case:
    inputs, hidden = (_mapping(packed[part], tensors) for part in ("inputs", "hidden"))
    return Case(name=packed["name"], inputs=inputs, hidden=hidden, lies=dict(packed["lies"]), hard=packed["hard"])


def _mapping(packed: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tree = unpack(packed, tensors)
    if not isinstance(tree, dict):
        raise TypeError(f"a dict is needed, got {type(tree).__name__}")
    return tree


def _pack_observation(seen: Observation, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {
        "values": pack(dict(seen.values), tensors),
        "ledger": pack(dict(seen.ledger), tensors),
        "sources": dict(seen.sources),
        "error": dataclasses.asdict(seen.error) if seen.error else None,
    }


def _unpack_observation(packed: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
    error = packed["error"]
    return Observation(
        values=_mapping(packed["values"], tensors),
        ledger=_mapping(packed["ledger"], tensors),
        sources=dict(packed["sources"]),
        error=Failure(**{**error, "where": tuple(error["where"])}) if error else None,
    )


def _pack_witness(witness: Witness, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {
        "observations": [_pack_observation(seen, tensors) for seen in witness.observations],
        "free": [sorted(keys) for keys in witness.free],
        "sensitivity": list(witness.sensitivity),
    }


def _unpack_witness(packed: dict[str, Any], tensors: dict[str, Tensor]) -> Witness:
    rows = zip(packed["observations"], packed["free"], packed["sensitivity"], strict=True)
    parts = [(_unpack_observation(seen, tensors), frozenset(keys), dict(row)) for seen, keys, row in rows]
    return Witness(
        observations=tuple(seen for seen, _, _ in parts),
        free=tuple(keys for _, keys, _ in parts),
        sensitivity=tuple(row for _, _, row in parts),
    )
