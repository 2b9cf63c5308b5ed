"""`save_sharded(comm, folder, step, tensors, n, write)`: each rank writes its shards, and `latest` names what is whole.

Each rank has a folder of its own here: in grading it has a disk of its own, so that no rank can write for another.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course.exercises.fsdp.checkpoints import (
    differ_beyond_float64,
    file_of,
    in_all_dtypes,
    padded,
    raced,
    replaced,
    stored,
    write_file,
    write_half,
)
from course.exercises.fsdp.small_talk import few_words
from course.performing.compare import same_bits
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.tree import plain

BEFORE = 7  # the step that `latest` names before
FOUR, FIVE, ONE = "4 ranks", "5 ranks, one with padding alone", "one rank, for the first time"
FAILS, FIRST, TWO, ALONE = "rank 2 fails", "rank 0 fails", "ranks 1 and 3 fail", "the only rank fails"
AGAIN, RACE = "after an interrupted save", "another rank makes the folder first"
WHOLE, BROKEN = (FOUR, FIVE, ONE), (FAILS, FIRST, TWO, ALONE)
SMALL = 1_000  # bytes from each rank
NO_FILE, NOTHING = "no such file", "nothing"


def cases(rng: torch.Generator) -> list[Case]:
    """Saves that succeed, with padding and without, and saves in which some ranks cannot write."""

    def case(name: str, n: int, size: int, *failing: int, first: bool = False, **more: bool) -> Case:
        whole = in_all_dtypes(rng, n)
        whole["first_moment"][-1] = 0  # and is no padding
        old = normal(rng, size, 4)
        inputs: dict[str, Any] = {
            "tensors": [{key: padded(each, rank, size) for key, each in whole.items()} for rank in range(size)],
            "old": [] if first else [*old],
            "failing": [rank in failing for rank in range(size)],
            "n": n,
            "step": integer(rng, 10, 10_000),
            "again": False,
            "race": False,
        }
        return Case(name=name, inputs=inputs | more)

    return [
        case(FOUR, 1_001, 4),
        case(FIVE, 7, 5),  # 2, 2, 2, 1, 0
        case(ONE, 5, 1, first=True),
        case(FAILS, 11, 4, 2),
        case(FIRST, 10, 3, 0),
        case(TWO, 13, 4, 1, 3, again=True),
        case(ALONE, 3, 1, 0),
        case(AGAIN, 8, 2, again=True),
        case(RACE, 6, 2, race=True),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its shards, what its file of the step before holds, and whether its disk is full."""
    size = len(inputs["tensors"])
    same = {**{name: inputs[name] for name in ("n", "step", "again", "race")}, "failed": any(inputs["failing"])}
    parts = zip(inputs["tensors"], inputs["old"] or [None] * size, inputs["failing"], strict=True)
    return [{"tensors": mine, "old": old, "fails": fails, **same} for mine, old, fails in parts]


def probe(answer: Answer, comm: Any, inputs: Inputs) -> Observation:
    """What the files of this rank hold afterwards, and what was raised.

    A second name of the file `latest` shows whether that file was written into. Where an interrupted save was before,
    the folder holds another rank's file too, as it does where ranks share it. An OSError where every `write` succeeds
    is none of a failed save: it ends the run, which then says what was raised, and on which rank.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, step, old, tensors = Path(name), inputs["step"], inputs["old"], inputs["tensors"]
        latest, link = folder / "latest", folder / "link-to-latest"
        before, mine = (file_of(folder, which, comm.rank, comm.size) for which in (BEFORE, step))
        neighbour = file_of(folder, step, (comm.rank + 1) % comm.size, comm.size)
        if old is not None:
            before.parent.mkdir()
            write_file({"weight": old}, before)
            if comm.rank == 0:
                latest.write_text(before.parent.name)
                os.link(latest, link)
        if inputs["again"]:
            mine.parent.mkdir()
            mine.write_bytes(b"half a fi")
            neighbour.write_bytes(b"another's")
        written: list[Path] = []
        with replaced(latest) as held, raced(mine.parent) if inputs["race"] else contextlib.nullcontext():
            raised = _raised(answer, comm, folder, inputs, written)
        own = re.compile(rf"rank-{comm.rank}\b")  # also under another name, before it is moved
        others = [path.name for path in folder.rglob("rank-*") if not own.match(path.name)]
        left, kept = stored(before), stored(mine)
        return observe(
            {
                "raised": raised,
                "stored": plain(kept) if not inputs["fails"] else "",
                "entries": " ".join(sorted(kept)) if isinstance(kept, dict) else "",
                "latest": latest.read_text().strip() if latest.exists() else NO_FILE,
                "link": link.read_text() if link.exists() else NO_FILE,
                "held": ", ".join(each or NO_FILE for each in held) or "not replaced",
                "old": left if isinstance(left, str) else left.get("weight", "no weights"),
                "others": len(others),
                "neighbour": _text(neighbour) if inputs["again"] and neighbour.exists() else "",
                "no_rank_in": _without_rank([*written, *folder.rglob("*")], folder, comm.rank),
                "kept": plain(tensors),
                "names": " ".join(sorted(tensors)),
            }
        )


def _text(path: Path) -> str:
    """What stands in a file: a short text, or how many bytes that are none."""
    found = path.read_bytes()
    text = found.decode("latin-1")
    return text if text.isprintable() else f"{len(found)} bytes that are no text"


def _without_rank(paths: list[Path], folder: Path, rank: int) -> str:
    """Those of files under folder that do not name this rank, in lines: other ranks' may have the same names."""
    names = {path.relative_to(folder).as_posix() for path in paths if path.is_relative_to(folder) and not path.is_dir()}
    return "\n".join(sorted(name for name in names if not re.search(rf"(?<!\d){rank}(?!\d)", name)))


def _raised(answer: Answer, comm: Any, folder: Path, inputs: Inputs, written: list[Path]) -> str:
    """ "OSError: 1, 3" where these ranks are named."""

    def write(named: dict[str, Tensor], path: Path) -> None:
        written.append(Path(path))
        (write_half if inputs["fails"] else write_file)(named, path)

    try:
        answer(comm, folder, inputs["step"], inputs["tensors"], inputs["n"], write)
    except OSError as error:
        if not inputs["failed"]:
            raise
        ranks = sorted({int(each) for each in re.findall(r"(?i)\brank (\d+)", str(error))})
        return f"OSError: {', '.join(map(str, ranks)) or 'no rank'}"
    return NOTHING


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether each tensor has the dtype of the shard, and n is int64. The reference, in float64, is not asked, but for
    whole numbers: a comparison in float64 does not tell all of them apart.
    """
    for rank, shards in enumerate(inputs["tensors"]):
        for name, dtype in {**{key: each.dtype for key, each in shards.items()}, "n": torch.int64}.items():
            found, right = (seen[f"{rank}/stored/{name}"] for seen in (got, expected))
            if not isinstance(found, Tensor) or not isinstance(right, Tensor):
                return f"no tensor {name}"
            if found.dtype != dtype:
                return f"{name} in {found.dtype}, which should be in {dtype}"
            if differ_beyond_float64(found, right):
                return f"{name} with other whole numbers: was it converted to a float and back?"
            if name in shards and not same_bits(found, shards[name][: len(right)]):
                return f"{name} with other bits: -0.0 and nan are to be stored as they are, too"
    return None


def _apart(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no two ranks have written a file of one name, also one that is moved later."""
    owners: dict[str, int] = {}
    for rank in range(len(inputs["tensors"])):
        for name in filter(None, str(got[f"{rank}/no_rank_in"]).split("\n")):
            if name in owners:
                return f"`{name}` is a file of rank {owners[name]}, and of rank {rank}"
            owners[name] = rank
    return None


EXERCISE = Exercise(
    id="fsdp.save_sharded",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "all_gather", "gather", "broadcast", "barrier"),
    properties=(
        Property(
            "own_shards",
            "Each rank's file holds its own elements of every tensor it was given. The files of others are theirs "
            "alone, also where an interrupted save left them. Where ranks share a disk, another may make the step's "
            "folder at any moment.",
            keys=(
                *("*/stored/weight", "*/stored/*_moment", "*/stored/updates", "*/stored/flags", "*/entries"),
                *("*/others", "*/neighbour"),
            ),
            roundings=0,
            cases=(ONE, AGAIN, RACE),
        ),
        Property(
            "names_apart",
            "Ranks may share the folder: where two write a file of one name, also one that is moved later, each takes "
            "the other's. Put the rank into its name. What becomes `latest` is written by rank 0 alone.",
            holds=_apart,
            cases=(FOUR, FIVE),
            needs=("own_shards",),
        ),
        Property(
            "no_padding",
            "The zeros at the end of the last shards belong to nobody: whoever loads on another number of ranks would "
            "take them for weights. A rank with nothing but padding writes tensors without elements; n is in every "
            "file.",
            points=2,
            keys=("*/stored/*", "*/entries", "*/others"),
            roundings=0,
            cases=(FOUR, FIVE),
        ),
        Property(
            "dtypes", "Stored is what was given, bit for bit, in its own dtype; n in int64.", holds=_dtypes, cases=WHOLE
        ),
        Property(
            "latest_names_the_step",
            "When all is written, rank 0's `latest` holds the name of the step's folder; the other ranks make no such "
            "file. Nothing is raised, and the step before is as it was.",
            points=2,
            keys=("*/latest", "*/raised", "*/old"),
            cases=(*WHOLE, AGAIN, RACE),
        ),
        Property(
            "latest_is_replaced",
            "Whoever reads `latest` while it is written, or after it was removed, sees half a name, or nothing. Write "
            "another file, and put it in the place of the old one with os.replace.",
            keys=("*/link", "*/held", "*/latest"),
            cases=(FOUR, FIVE),
            needs=("latest_names_the_step",),
        ),
        Property(
            "nothing_is_lost",
            "Where one rank cannot write, `latest` names the step before, whose files are as they were, and so are the "
            "files of other ranks. So rank 0 must not touch it before it knows of every rank.",
            points=2,
            keys=("*/latest", "*/link", "*/held", "*/old", "*/others", "*/neighbour"),
            cases=BROKEN,
            needs=("latest_names_the_step",),
        ),
        Property(
            "all_raise",
            "A failed save must be known to all: each rank raises an OSError that names every rank which failed. None "
            "may leave before it has told the others, who wait for it: one that `has returned` may have raised.",
            points=2,
            keys=("*/raised",),
            cases=BROKEN,
        ),
        Property(
            "tensors_stay",
            "The tensors and their dict belong to the caller, who trains on with them. Cut off the padding, and add n, "
            "in a dict of your own.",
            keys=("*/kept/*", "*/names"),
            roundings=0,
            cases=(FOUR, FIVE, *BROKEN),
            needs=("own_shards",),
        ),
        Property(
            "few_bytes",
            "No rank needs another's tensors. How it went is all that they have to tell each other.",
            evidence="ledger",
            holds=few_words(calls=4, nbytes=SMALL),
            beside=("*/latest",),  # what is stored the same runs show, in `no_padding`
            shows="bytes_sent",
            cases=(FOUR, FIVE, *BROKEN),
            needs=("own_shards", "no_padding", "latest_names_the_step"),
        ),
    ),
    hints=(
        "A disk is full on rank 2. At which moment may rank 0 make `latest` name the new step, and what must it know "
        "by then?",
        "Catch the OSError of your own write, and do not raise it yet: first tell the others. Which collective tells "
        "all ranks how it went on each of them?",
        "Cut the padding off; make the folder; write; all_reduce a tensor with one entry for each rank; where an entry "
        "is set all raise; else rank 0 writes a new file and os.replace puts it in the place of `latest`.",
    ),
    promises={
        "on any number of ranks": (ONE, FOUR, FIVE),
        "The ranks may share it": (AGAIN, RACE, "names_apart"),
        "touches no file of another rank": ("own_shards", "nothing_is_lost"),
        "left the step's folder, with files or parts of files": (AGAIN,),
        "a number of up to 8 digits": ("own_shards", "latest_names_the_step"),
        "all 1-D with ceil(n / P) elements": ("own_shards", "no_padding"),
        "of any dtypes": ("dtypes",),
        "They are not changed, nor is the dict": ("tensors_stay",),
        "zeros that do not count": ("no_padding",),
        "which may be none": (FIVE,),
        "it may raise an OSError and leave a part of a file": BROKEN,
        "of each of the tensors, those elements that count": ("own_shards", "no_padding"),
        'and n as an int64 tensor () under "n"': ("no_padding", "dtypes"),
        "rank 0, and no other, makes the file `latest`": ("latest_names_the_step",),
        "the name of the step's folder": ("latest_names_the_step",),
        "the old file is replaced, not written into": ("latest_is_replaced",),
        "on every rank, with a message that names all ranks which failed and no other rank, as in `rank 2`": (
            "all_raise",
        ),
        "`latest` and the files of other steps are then as they were": ("nothing_is_lost",),
        "at most 4 collectives and 1,000 bytes from each rank": ("few_bytes",),
    },
)
