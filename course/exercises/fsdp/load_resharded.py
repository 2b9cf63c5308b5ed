"""`load_resharded(comm, folder)`: this rank's shards, from a checkpoint that another number of ranks wrote.

Each rank has a folder of its own, in which the files that it does not need may be missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course.exercises.fsdp.checkpoints import (
    differ_beyond_float64,
    file_of,
    in_all_dtypes,
    packed,
    padded,
    piece,
)
from course.exercises.fsdp.small_talk import few_words
from course.performing.compare import same_bits
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

FEWER, ONE, SAME = "4 ranks saved, 3 load", "4 ranks saved, 1 loads", "3 ranks saved, 3 load"
SINGLE = "1 rank saved, 3 load"
MORE, SHORT = "2 ranks saved, 5 load", "5 ranks saved, one of them padding alone, 2 load"
MANY, ALONE = "12 ranks saved, 5 load", "each rank has only the files that it needs"
EVEN, NOTHING = "6 ranks saved, 3 load, only the files that they need", "a rank that gets padding alone"
MISSING, CUT, EMPTY, FIRST = "a file is missing", "a file is cut", "a file is empty", "rank 0's file is cut"
NAMES, GONE = "tensors of other names", "rank 0's file is missing"
RESHARDED, ONLY, BROKEN = (
    (FEWER, ONE, SAME, SINGLE, MORE, SHORT, MANY, NAMES),
    (ALONE, EVEN, NOTHING),
    (MISSING, CUT, EMPTY, FIRST, GONE),
)


def cases(rng: torch.Generator) -> list[Case]:
    """Numbers of ranks that do and do not divide each other, folders with few files, and files that are damaged."""

    def case(name: str, n: int, saved: int, ranks: int) -> Case:
        whole: dict[str, Any] = {**in_all_dtypes(rng, n)}
        numbers = {"saved": saved, "ranks": ranks, "step": integer(rng, 10, 10_000)}
        if name == NAMES:
            whole = {f"layers.0.{key}": whole[key] for key in ("weight", "updates")}
        damage = {MISSING: "missing", CUT: "cut", EMPTY: "empty", FIRST: "cut", GONE: "missing"}.get(name, "")
        damaged = 0 if name in (FIRST, GONE) else 2
        inputs: dict[str, Any] = {"whole": whole, **numbers, "few": name in ONLY, "damage": damage, "damaged": damaged}
        return Case(name=name, inputs=inputs)

    return [
        case(FEWER, 301, 4, 3),
        case(ONE, 10, 4, 1),
        case(SAME, 8, 3, 3),
        case(SINGLE, 11, 1, 3),
        case(MORE, 7, 2, 5),
        case(SHORT, 7, 5, 2),
        case(MANY, 23, 12, 5),
        case(ALONE, 23, 4, 3),
        case(EVEN, 12, 6, 3),
        case(NOTHING, 7, 3, 5),
        case(MISSING, 23, 4, 3),
        case(CUT, 23, 4, 3),
        case(EMPTY, 23, 4, 3),
        case(FIRST, 23, 4, 3),
        case(GONE, 9, 2, 3),
        case(NAMES, 7, 2, 3),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank the files of its folder: nothing else of the checkpoint is in its process."""
    told = {key: inputs[key] for key in ("step", "saved", "damage", "damaged")}
    return [{**told, "files": _files(inputs, rank)} for rank in range(inputs["ranks"])]


def probe(answer: Answer, comm: Any, inputs: Inputs) -> Observation:
    """What is loaded, and what is raised where a file is damaged. Other steps lie beside the one that counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for step, files in inputs["files"].items():
            (folder / step).mkdir()
            for file, held in files.items():
                (folder / step / file).write_bytes(held.numpy().tobytes())
        (folder / "latest").write_text(f"step-{inputs['step']:08d}")
        seen: dict[str, Any] = {}

        def load() -> None:
            found = {key: each.clone() for key, each in answer(comm, folder).items()}
            seen.update({"loaded": found, "names": " ".join(sorted(found))})

        if inputs["damage"]:
            seen["refused"] = {"load": _raised(load, _named(inputs))}
        else:
            load()
        return observe(seen)


def _files(inputs: Inputs, rank: int) -> dict[str, dict[str, Tensor]]:
    """By the names of steps and files: the bytes that a rank's folder holds, uint8 of shape (bytes,)."""
    found: dict[str, dict[str, Tensor]] = {}
    for shift in (-1, 0, 1):
        for path, held in _saved(inputs["step"] + shift, rank, _shifted(inputs, shift) if shift else inputs):
            found.setdefault(path.parent.name, {})[path.name] = torch.tensor([*held], dtype=torch.uint8)
    return found


def _shifted(inputs: Inputs, shift: int) -> Inputs:
    """Another step, of a longer tensor that a neighbouring number of ranks saved: one more before, one less after.

    Where one rank saved all, one saved the step after it, too.
    """
    whole = {key: torch.cat([each, each[:3]]) + shift for key, each in inputs["whole"].items()}
    return {**inputs, "whole": whole, "saved": max(inputs["saved"] - shift, 1), "damage": ""}


def _saved(step: int, rank: int, inputs: Inputs) -> Iterator[tuple[Path, bytes]]:
    """The files of a step that this rank's folder holds, and what is in them."""
    whole, saved = inputs["whole"], inputs["saved"]
    n = len(next(iter(whole.values())))
    mine = piece(n, rank, inputs["ranks"])
    rows = {**whole, "n": torch.tensor(n)}
    for other in range(saved):
        theirs = piece(n, other, saved)
        overlaps = max(mine.start, theirs.start) < min(mine.stop, theirs.stop)
        if other and inputs["few"] and not overlaps:
            continue
        held = packed({key: each[theirs] if key in whole else each for key, each in rows.items()})
        damage = inputs["damage"] if other == inputs["damaged"] else ""
        if damage != "missing":
            left = {"": len(held), "cut": len(held) * 9 // 10, "empty": 0}[damage]
            yield file_of(Path(), step, other, saved), held[:left]


def _named(inputs: Inputs) -> str:
    """What a message must hold. Who looks for rank 0's file alone, and finds none, cannot say how many ranks saved."""
    first = f"rank-{inputs['damaged']}-of-"
    return first if inputs["damage"] == "missing" and not inputs["damaged"] else f"{first}{inputs['saved']}"


def _raised(load: Callable[[], None], file: str) -> str:
    """What was raised, and whether the message names the file."""
    try:
        load()
    except (FileNotFoundError, ValueError) as error:
        kind = "FileNotFoundError" if isinstance(error, FileNotFoundError) else "ValueError"
        return f"{kind} that {'names' if file in str(error) else 'does not name'} the file"
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error).__name__
    return "nothing"


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether each tensor has the dtype in which it was saved. The reference, performed in float64, is not asked, but
    for whole numbers: a comparison in float64 does not tell all of them apart.
    """
    for rank in range(inputs["ranks"]):
        for name, whole in inputs["whole"].items():
            found, right = (seen[f"{rank}/loaded/{name}"] for seen in (got, expected))
            if not isinstance(found, Tensor) or not isinstance(right, Tensor):
                return f"no tensor {name}"
            if found.dtype != whole.dtype:
                return f"{name} in {found.dtype}, which was saved in {whole.dtype}"
            if differ_beyond_float64(found, right):
                return f"{name} with other whole numbers: was it converted to a float and back?"
            if not same_bits(found, padded(whole, rank, inputs["ranks"])):
                return f"{name} with other bits: -0.0 and nan come back as they were saved, too"
    return None


EXERCISE = Exercise(
    id="fsdp.load_resharded",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "all_gather", "broadcast"),
    properties=(
        Property(
            "same_ranks",
            "On as many ranks as saved it, each gets the shard of its own file, padded to ceil(n / P) elements: all "
            "tensors of the step that `latest` names.",
            points=2,
            keys=("*/loaded/*", "*/names"),
            roundings=0,
            cases=(SAME,),
        ),
        Property(
            "other_ranks",
            "Count in elements of the whole: rank r gets those from r * ceil(n / P) on, which lie in pieces of another "
            "length in the files. The files hold no padding; the new shards have it at the end alone.",
            points=3,
            keys=("*/loaded/*", "*/names"),
            roundings=0,
            cases=RESHARDED,
        ),
        Property(
            "dtypes", "What comes back is bit for bit what was saved, in its dtype.", holds=_dtypes, cases=RESHARDED
        ),
        Property(
            "only_what_overlaps",
            "A file that holds none of this rank's elements may lie on another disk: open those that do, and rank 0's "
            "for names, dtypes and n.",
            points=2,
            keys=("*/loaded/*",),
            roundings=0,
            cases=ONLY,
            needs=("other_ranks",),
        ),
        Property(
            "damaged_files",
            "A missing file is a FileNotFoundError and one that is cut a ValueError, each with a message that names "
            "it; a rank that does not need the file loads as ever. All need rank 0's file. safetensors has an error "
            "of its own.",
            points=2,
            keys=("refused/*", "*/loaded/*"),
            cases=BROKEN,
        ),
        Property(
            "nothing_is_sent",
            "Each rank reads what it needs by itself: no rank has to wait for another, or to send.",
            evidence="ledger",
            holds=few_words(calls=0, nbytes=0),
            beside=("*/loaded/*",),
            shows="bytes_sent",
            cases=(FEWER, MORE, ALONE),
            needs=("other_ranks",),
        ),
    ),
    hints=(
        "10 elements were saved by 4 ranks: how many are in each file? Now there are 3 ranks: which elements does "
        "rank 1 get, and in which files do they lie?",
        "Let `start` and `stop` be this rank's elements in the whole, and let old rank r's file begin at r times its "
        "own ceil(n / P). Which r overlap, and what are start and stop in that file's own count?",
        "Read `latest`; the old number of ranks from a file's name; n and the names from rank 0's file; for each file "
        "that overlaps, get_slice of each name; cat, then zeros up to the new length.",
    ),
    promises={
        "its rank and size alone are needed": ("nothing_is_sent", ONE, FEWER),
        "all saved by one number of ranks, which may be another than now": (SAME, "other_ranks"),
        "Other steps may lie beside it, of other numbers of ranks or elements": ("same_ranks",),
        "and the files with elements of its own; others may be missing": ONLY,
        "with zeros behind the n-th element": ("other_ranks", NOTHING),
        "bit for bit what was saved, in its dtype": ("other_ranks", "dtypes"),
        "one that is needed and is missing (FileNotFoundError)": (MISSING, GONE),
        "or is cut or empty (ValueError)": (CUT, EMPTY, FIRST),
        "rank 0's file, which tells names, dtypes and n": ("dtypes", NOTHING),
        "All ranks need rank 0's file": (FIRST, GONE),
        "each those with elements of its own": (MISSING, CUT, EMPTY),
        "A rank that does not need the damaged file loads as ever": ("damaged_files",),
        "nothing is sent": ("nothing_is_sent",),
    },
)
