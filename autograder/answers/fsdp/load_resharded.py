"""Right and wrong ways to write `load_resharded`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.load_resharded import load_resharded


def by_positions(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """numpy says for each position which file has it; whole files are read, each at most once."""
    home = Path(folder, Path(folder, "latest").read_text())
    saved = int(next(home.glob("rank-*")).stem.rpartition("-")[2])
    read: dict[int, dict[str, Tensor]] = {}

    def tensors_of(rank: int) -> dict[str, Tensor]:
        if rank not in read:
            file = home / f"rank-{rank}-of-{saved}.safetensors"
            data = file.read_bytes()
            try:
                read[rank] = safetensors.torch.load(data)
            except Exception as reason:
                raise ValueError(f"{file} cannot be read") from reason
        return read[rank]

    n = int(tensors_of(0)["n"])
    chunk, old = int(np.ceil(n / comm.size)), int(np.ceil(n / saved))
    shards = {key: value.new_zeros(chunk) for key, value in tensors_of(0).items() if key != "n"}
    mine = np.arange(comm.rank * chunk, (comm.rank + 1) * chunk)
    for place, position in enumerate(mine[mine < n].tolist()):
        for key, shard in shards.items():
            shard[place] = tensors_of(position // old)[key][position % old]
    return shards


def in_one_row(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """The files that are needed are laid into a row of zeros, of which this rank's part is cut out."""
    home = folder / (folder / "latest").read_text().strip()
    total = int(min(home.glob("rank-*")).stem.rpartition("-")[2])

    def whole(rank: int) -> dict[str, Tensor]:
        path = home / f"rank-{rank}-of-{total}.safetensors"
        data = path.read_bytes()  # a missing file is named by Python
        try:
            return safetensors.torch.load(data)
        except Exception as damage:
            raise ValueError(f"{path.name} is not whole") from damage

    first = whole(0)
    n = int(first.pop("n"))
    new, old = -(-n // comm.size), -(-n // total)
    rows = {key: part.new_zeros(comm.size * new) for key, part in first.items()}
    for rank in range(total):
        if rank * old < (comm.rank + 1) * new and comm.rank * new < min((rank + 1) * old, n):
            came = whole(rank)
            for key, row in rows.items():
                row[rank * old :][: len(came[key])] = came[key]
    return {key: row.view(comm.size, new)[comm.rank].clone() for key, row in rows.items()}


COUNT = 'int(next(part.glob("rank-*")).stem.split("-")[-1])'
FIRST_ALONE = (
    f"    saved = {COUNT}",
    """    first = next(part.glob("rank-0-of-*"), None)
    if first is None:
        raise FileNotFoundError(f"rank-0-of-*.safetensors is missing in {part}")
    saved = int(first.stem.split("-")[-1])""",
)

RIGHT = (
    right(by_positions, independent="one element after the other, by numpy.arange"),
    right(in_one_row),
    right(edited(load_resharded, FIRST_ALONE)),  # the others' names are not read
)


def rank_0_reads(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """Rank 0 reads all and sends all to everybody."""
    part = folder / (folder / "latest").read_text().strip()
    saved = int(next(part.glob("rank-*")).stem.split("-")[-1])
    rows = [safetensors.torch.load_file(part / f"rank-{rank}-of-{saved}.safetensors") for rank in range(saved)]
    n = int(rows[0].pop("n"))
    chunk, shards = -(-n // comm.size), {}
    for name in sorted(rows[0]):
        whole = torch.cat([row[name] for row in rows])
        comm.broadcast(whole, 0)
        mine = whole[comm.rank * chunk : (comm.rank + 1) * chunk]
        shards[name] = torch.cat([mine, mine.new_zeros(chunk - len(mine))])
    return shards


def whole_files_only(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """Each new rank takes as many old files as any other."""
    part = folder / (folder / "latest").read_text().strip()
    saved = int(next(part.glob("rank-*")).stem.split("-")[-1])
    each = saved // comm.size
    few = range(comm.rank * each, (comm.rank + 1) * each)
    rows = [safetensors.torch.load_file(part / f"rank-{rank}-of-{saved}.safetensors") for rank in few]
    chunk = -(-int(rows[0].pop("n")) // comm.size)
    shards = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    return {name: torch.cat([shard, shard.new_zeros(chunk - len(shard))]) for name, shard in shards.items()}


def in_order_of_names(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """All files that are there, sorted by name: rank-10 comes before rank-2."""
    part = folder / (folder / "latest").read_text().strip()
    rows = [safetensors.torch.load_file(path) for path in sorted(part.glob("rank-*"))]
    n = int(rows[0].pop("n"))
    chunk, shards = -(-n // comm.size), {}
    for name in rows[0]:
        whole = torch.cat([row[name] for row in rows])
        mine = whole[comm.rank * chunk : (comm.rank + 1) * chunk]
        shards[name] = torch.cat([mine, mine.new_zeros(chunk - len(mine))])
    return shards


edit = partial(edited, load_resharded)
STEP = '(folder / "latest").read_text().strip()'
NAMED = 'if name != "n"}'
ALL = "range(start // old, -(-stop // old)) if start < stop else ()"
CHUNKS = "chunk, old = -(-n // comm.size), -(-n // saved)"
SLICE = "[max(start - rank * old, 0) : min(stop - rank * old, old)]"
OPENED = "        with opened(rank) as file:\n"


def skipping(errors: str, instead: str = "pass") -> tuple[str, str]:
    """An edit: a file that cannot be opened is left out, and something done instead."""
    return (
        OPENED,
        f"""        low, high = max(start - rank * old, 0), min(stop - rank * old, old)
        try:
            opened(rank)
        except {errors}:
            {instead}
            continue
{OPENED}""",
    )


ZEROS = "[each.append(each[0].new_zeros(high - low)) for each in pieces.values()]"
BY_LENGTH = ("chunk - stop + start", "chunk - sum(map(len, each))")
MISSING, DAMAGED, BOTH = "FileNotFoundError", "ValueError", "(FileNotFoundError, ValueError)"
FIRST = "with opened(0) as file"
OWN = "comm.rank * saved // comm.size"
IN_FLOAT64 = "torch.zeros(chunk - stop + start, dtype=torch.float64)"
PADDED = "torch.cat([*each, each[0].new_zeros(chunk - stop + start)])"

WRONG = (
    wrong(
        "needs_numbers_that_divide",
        "You give each rank a whole number of old files. A new shard may begin and end in the middle of a file: count "
        "in elements.",
        whole_files_only,
        edit(("chunk - stop + start", "chunk - len(torch.cat(each))"), (SLICE, "[:]")),
    ),
    wrong(
        "padding_as_weights",
        "You take the length of all old shards, with their padding, for the number of elements. The new shards are "
        "then longer, or begin elsewhere. n is in every file.",
        edit((CHUNKS, f"n = -(-n // saved) * saved; {CHUNKS}"), ("min(stop - rank * old, old)", "stop - rank * old")),
        edit((CHUNKS, "old = -(-n // saved); chunk = -(-old * saved // comm.size)")),
    ),
    wrong(
        "last_shard_short",
        "Your last shards are shorter than the others. All ranks' shards have ceil(n / P) elements: add zeros.",
        edit((PADDED, "torch.cat(each)")),
    ),
    wrong(
        "drops_the_tail",
        "You divide n by the ranks and round down: the last elements are lost. Shards have ceil(n / P) elements.",
        edit((CHUNKS, "chunk, old = n // comm.size, -(-n // saved)")),
    ),
    wrong(
        "weights_alone",
        "You load the weights and forget the optimizer's moments: Adam would begin anew.",
        edit((NAMED, 'if name == "weight"}')),
    ),
    wrong(
        "names_of_its_own",
        "You load tensors of certain names. Which there are stands in rank 0's file: all but n.",
        edit(("sorted(file.keys())", '("weight", "first_moment", "second_moment", "updates", "flags")')),
        edit((NAMED, 'if name.split("_")[-1] in ("weight", "moment", "updates", "flags")}')),
    ),
    wrong(
        "n_as_a_tensor",
        "You return n among the shards.",
        edit(
            (NAMED, "}"),
            ("found.append(file.get_slice(name)", "found.append(file.get_tensor(name).reshape(-1)"),
            (".get_tensor(name)[:0]", ".get_tensor(name).reshape(-1)[:0]"),
        ),
    ),
    wrong(
        "nan_made_a_number",
        "You replace nan or inf. What is loaded is what was saved, bit for bit.",
        edit((PADDED, f"{PADDED}.nan_to_num()")),
    ),
    wrong(
        "other_dtype",
        "You convert what you load, or join it with zeros of another dtype: torch.cat then converts to the wider one. "
        "It must come back in the dtype in which it was saved, bit for bit (-0.0 and whole numbers too), and "
        "new_zeros makes zeros of the same dtype.",
        edit((PADDED, f"{PADDED}.double()")),
        edit((PADDED, f"{PADDED}.double().to(each[0].dtype)")),
        edit((PADDED, f"{PADDED} + 0")),
        edit((PADDED, PADDED.replace("each[0].new_zeros(chunk - stop + start)", IN_FLOAT64))),
        fails=("dtypes",),
    ),
    wrong(
        "through_float32",
        "What you load goes through float32, as it does where it is joined with zeros of that dtype. A float64 moment "
        "loses half of its digits, and so do large whole numbers.",
        edit((PADDED, f"{PADDED}.float()")),
        edit((PADDED, f"{PADDED}.float().to(each[0].dtype)")),
        edit(("each[0].new_zeros(", "torch.zeros(")),
        rounds_to=torch.float32,
    ),
    wrong(
        "takes_the_highest_step",
        "You load the folder with the highest number (or the lowest), or take from it how many ranks saved, or n. It "
        "may be a save that was interrupted, or of other ranks: `latest` names the one that is whole.",
        edit((STEP, 'max(path.name for path in folder.glob("step-*"))')),
        edit((STEP, 'min(path.name for path in folder.glob("step-*"))')),
        edit((COUNT, 'max(int(path.stem.split("-")[-1]) for path in folder.rglob("rank-*"))')),
        edit((COUNT, 'min(int(path.stem.split("-")[-1]) for path in folder.rglob("rank-*"))')),
        edit(('file.get_tensor("n")', 'safe_open(max(folder.glob("step-*/rank-0-*")), "pt").get_tensor("n")')),
    ),
    wrong(
        "files_in_order_of_names",
        "You take the files in the order of their names, in which rank-10 comes before rank-2. Count, and make the "
        "names.",
        in_order_of_names,
    ),
    wrong(
        "counts_the_files",
        "You take the number of files on this disk for the number of ranks that saved. It stands in their names.",
        edit((COUNT, 'len(list(part.glob("rank-*")))')),
    ),
    wrong(
        "opens_every_file",
        "You open files that hold none of this rank's elements. They may lie on another disk, and with a thousand of "
        "them it takes long. From start and stop follows which files you need.",
        edit((ALL, "range(start // old, min(stop // old + 1, saved))")),
        fails=("only_what_overlaps",),
    ),
    wrong(
        "rank_0_reads",
        "Rank 0 reads everything and sends it to all. Each rank can read what it needs, all at the same time.",
        rank_0_reads,
    ),
    wrong(
        "leaves_a_hole",
        "A file with elements of this rank is missing or cut, and you return a shard all the same: the model has a "
        "hole that nobody notices. Raise, and name the file.",
        *(edit(skipping(errors, ZEROS)) for errors in (BOTH, MISSING, DAMAGED)),
        *(edit(skipping(errors), BY_LENGTH) for errors in (BOTH, MISSING, DAMAGED)),
        *(edit(skipping(errors)) for errors in (BOTH, MISSING, DAMAGED)),
    ),
    wrong(
        "goes_on_without_rank_0s_file",
        "Rank 0's file is damaged, and you load without it: whoever holds no element of that file does not notice. "
        "Every rank reads names, dtypes and n there.",
        edit(
            (
                FIRST,
                f"with opened({OWN} if (part / f'rank-{{{OWN}}}-of-{{saved}}.safetensors').exists() else 0) as file",
            )
        ),
    ),
    wrong(
        "errors_that_do_not_help",
        "A file that is missing or cut is told in another way than the docstring says: by safetensors' own error, "
        "which is no ValueError, or without the name of the file, which somebody has to find among a thousand. Where "
        "rank 0's file is missing, next() of a glob that finds nothing raises StopIteration, and an index IndexError: "
        "any file's name tells how many ranks saved.",
        edit(("except SafetensorError as error", "except ZeroDivisionError as error")),
        edit(("{path.name} is missing in {part}", "a file is missing"), ("{path.name} is damaged: {error}", "damaged")),
        edit(("raise FileNotFoundError(", "raise ValueError(")),
        edit(('part.glob("rank-*")', 'part.glob("rank-0-of-*")')),
        edit(('next(part.glob("rank-*"))', '[*part.glob("rank-0-of-*")][0]')),
        fails=("damaged_files",),
    ),
)
