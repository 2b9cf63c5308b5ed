"""Right and wrong ways to write `save_sharded`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.save_sharded import save_sharded

Write = Callable[[dict[str, Tensor], Path], None]


def numpys_pieces(comm: Comm, folder: Path, step: int, tensors: dict[str, Tensor], n: int, write: Write) -> None:
    """numpy says which positions are this rank's; a file becomes whole under another name; sentences are gathered."""
    length = len(next(iter(tensors.values())))
    count = int(np.count_nonzero(np.arange(comm.rank * length, (comm.rank + 1) * length) < n))
    home = os.path.join(folder, "step-" + str(step).zfill(8))
    sentence = ""
    try:
        os.makedirs(home, exist_ok=True)
        target = Path(home, f"rank-{comm.rank}-of-{comm.size}.safetensors")
        part = Path(home, f"part-{comm.rank}")
        write({"n": torch.tensor(n), **{key: value[:count].clone() for key, value in tensors.items()}}, part)
        os.rename(part, target)
    except OSError as error:
        sentence = f"rank {comm.rank}: {error}"
    sentences = [""] * comm.size
    comm.all_gather_object(sentences, sentence)
    if any(sentences):
        raise OSError("; ".join(filter(None, sentences)))
    if comm.rank == 0:
        handle, name = tempfile.mkstemp(dir=folder)
        os.write(handle, os.path.basename(home).encode())
        os.close(handle)
        os.replace(name, Path(folder, "latest"))
    comm.barrier()


def told_by_rank_0(comm: Comm, folder: Path, step: int, tensors: dict[str, Tensor], n: int, write: Write) -> None:
    """Flags as bits of one whole number; rank 0 says to all how it went."""
    (folder / f"step-{step:08}").mkdir(exist_ok=True)
    positions = torch.arange(-(-n // comm.size)) + comm.rank * -(-n // comm.size)
    mine = {key: value[positions < n] for key, value in tensors.items()} | {"n": torch.tensor(n)}
    word = torch.zeros((), dtype=torch.int64)
    try:
        write(mine, folder / f"step-{step:08}" / f"rank-{comm.rank}-of-{comm.size}.safetensors")
    except OSError:
        word += 2**comm.rank
    words = [torch.zeros_like(word) for _ in range(comm.size)]
    comm.gather(word, words if comm.rank == 0 else None)
    if comm.rank == 0:
        word = torch.stack(words).sum()
        if not word:
            (folder / "new").write_text(f"step-{step:08}\n")
            (folder / "new").replace(folder / "latest")
    comm.broadcast(word, 0)
    if word:
        raise OSError(" and ".join(f"rank {rank}" for rank in range(comm.size) if int(word) >> rank & 1))


def moved_into_place(comm: Comm, folder: Path, step: int, tensors: dict[str, Tensor], n: int, write: Write) -> None:
    """Each file is written under another name, which a failure leaves, and moved into its place when it is whole."""

    def whole(named: dict[str, Tensor], path: Path) -> None:
        write(named, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)

    save_sharded(comm, folder, step, tensors, n, whole)


RIGHT = (
    right(moved_into_place),
    right(numpys_pieces, independent="numpy.arange for the elements that count"),
    right(told_by_rank_0),
)


def rank_0_writes_all(comm: Comm, folder: Path, step: int, tensors: dict[str, Tensor], n: int, write: Write) -> None:
    """Everything goes to rank 0, which writes one whole tensor after the other."""
    whole = {"n": torch.tensor(n)}
    for name, mine in tensors.items():
        came = [torch.empty_like(mine) for _ in range(comm.size)]
        comm.gather(mine, came if comm.rank == 0 else None)
        whole[name] = torch.cat(came)[:n]
    failed = torch.zeros(1)
    if comm.rank == 0:
        part = folder / f"step-{step:08d}"
        part.mkdir(exist_ok=True)
        try:
            write(whole, part / f"rank-0-of-{comm.size}.safetensors")
        except OSError:
            failed += 1
    comm.broadcast(failed, 0)
    if failed:
        raise OSError("rank 0 could not write")
    if comm.rank == 0:
        (folder / "latest.new").write_text(f"step-{step:08d}")
        os.replace(folder / "latest.new", folder / "latest")


def gathers_and_keeps_its_own(
    comm: Comm, folder: Path, step: int, tensors: dict[str, Tensor], n: int, write: Write
) -> None:
    """Right in all but what travels: each rank sees all tensors, and writes its own part."""
    rows = []
    for mine in tensors.values():
        came = [torch.empty_like(mine) for _ in range(comm.size)]
        comm.all_gather(came, mine)
        rows.append(came[comm.rank])
    save_sharded(comm, folder, step, dict(zip(tensors, rows, strict=True)), n, write)


edit = partial(edited, save_sharded)
REAL = "real = max(0, min(chunk, n - comm.rank * chunk))"
TOLD, ASKED = "    comm.all_reduce(failed)\n", "    if failed.any():\n"
CAUGHT = "        failed[comm.rank] = 1\n"
LATEST = """    if comm.rank == 0:
        new = folder / "latest.new"
        new.write_text(part.name)
        os.replace(new, folder / "latest")
"""
PUT, NEW = '        os.replace(new, folder / "latest")\n', 'new = folder / "latest.new"'
KEPT = "    if comm.rank == 0 and (folder / 'latest').exists():\n        os.link(folder / 'latest', before)\n"
BACK = "            os.replace(before, folder / 'latest') if before.exists() else (folder / 'latest').unlink()\n"
NAMES = "failed.nonzero().flatten().tolist()"
MAKES = "    if comm.rank == 0:\n"
MADE = "part.mkdir(parents=True, exist_ok=True)"

WRONG = (
    wrong(
        "rank_0_writes_all",
        "All tensors are sent to rank 0, which writes them alone: it needs memory for the whole model and its "
        "optimizer state, and all others wait. Each rank writes its own file.",
        rank_0_writes_all,
    ),
    wrong(
        "gathers_what_it_does_not_need",
        "The files are right, but the ranks say more than they must: tensors travel, which nobody needs to write its "
        "own, or there are more than four collectives. How it went on each rank is all that they have to tell.",
        gathers_and_keeps_its_own,
        edit((TOLD, "    for rank in range(comm.size):\n        comm.broadcast(failed[rank : rank + 1], rank)\n")),
        fails=("few_bytes",),
    ),
    wrong(
        "padding_as_weights",
        "You store the zeros at the end of a shard, as if they were elements. Where n is not a multiple of the ranks "
        "the last shards are cut: n - rank * ceil(n / P) elements count, at least 0 and at most all.",
        edit((REAL, "real = chunk")),
    ),
    wrong(
        "cuts_the_wrong_shard",
        "All ranks cut off as many elements, or only the last one cuts. Which elements of a rank count follows from "
        "where its shard begins: at rank * ceil(n / P).",
        edit((REAL, "real = chunk - (chunk * comm.size - n) if comm.rank == comm.size - 1 else chunk")),
        edit((REAL, "real = n - comm.rank * chunk")),
        edit((REAL, "real = n // comm.size")),
    ),
    wrong(
        "strips_the_zeros",
        "You take zeros at the end for padding. An element may be 0, as the moments of a frozen parameter are: what "
        "counts follows from n alone.",
        edit(("each[:real] for", "each[: int(each.nonzero().max()) + 1 if each.any() else 0] for")),
    ),
    wrong(
        "n_of_its_own",
        "n is the number of elements of the whole, the same in all files. Yours is that of one rank, or is missing.",
        edit(('"n": torch.tensor(n)', '"n": torch.tensor(real)')),
        edit(('"n": torch.tensor(n)', '"n": torch.tensor(chunk * comm.size)')),
        edit(('{**mine, "n": torch.tensor(n)}', "mine")),
    ),
    wrong(
        "more_than_was_given",
        "Your file has tensors besides those that you were given and n: who loads it takes them for moments.",
        edit(('{**mine, "n": torch.tensor(n)}', '{**mine, "n": torch.tensor(n), "rank": torch.tensor(comm.rank)}')),
    ),
    wrong(
        "weights_alone",
        "You store the weights without the optimizer's moments: training that goes on from there begins Adam anew.",
        edit(("tensors.items()}", 'tensors.items() if "moment" not in name}')),
    ),
    wrong(
        "stored_in_another_dtype",
        "bfloat16 weights come back wide, or n is no int64, or whole numbers went through a float on their way, which "
        "has no digits for large ones, or -0.0 became 0: store what you were given as it is.",
        edit(("each[:real]", "each[:real].double()")),
        edit(("each[:real]", "each[:real].double().to(each.dtype)")),
        edit(("each[:real]", "each[:real] + 0")),
        edit(('"n": torch.tensor(n)', '"n": torch.tensor(float(n))')),
        edit(('"n": torch.tensor(n)', '"n": torch.tensor(n, dtype=torch.int32)')),
        fails=("dtypes",),
    ),
    wrong(
        "nan_made_a_number",
        "You replace nan or inf. A checkpoint is what was there, bit for bit: whoever looks for the step at which a "
        "run diverged needs them.",
        edit(("each[:real]", "each[:real].nan_to_num() if each.is_floating_point() else each[:real]")),
    ),
    wrong(
        "through_float32",
        "You convert what you store to float32: a float64 moment loses half of its digits.",
        edit(("each[:real]", "each[:real].float()")),
        edit(("each[:real]", "each[:real].float().to(each.dtype)")),
        rounds_to=torch.float32,
    ),
    wrong(
        "latest_before_all_are_done",
        "Rank 0 makes `latest` name the new step before it knows how it went on the others: if one fails, `latest` "
        "names a checkpoint with a hole, and the old one is forgotten. First hear from all.",
        edit((LATEST, ""), (TOLD, f"{LATEST}{TOLD}")),
        edit((LATEST, ""), ("    failed =", f"{LATEST}    failed =")),
        edit(
            (LATEST, ""),
            (CAUGHT, f"{CAUGHT}    if not failed.any():\n    {LATEST.replace(chr(10), chr(10) + '    ').rstrip()}\n"),
        ),
    ),
    wrong(
        "latest_put_back",
        "Rank 0 makes `latest` name the new step at once, and puts the old name back where the save has failed. A run "
        "that is killed in between is left with a name whose files are not all there. First hear from all.",
        edit(
            (LATEST, ""),
            (TOLD, f"    before = folder / 'before'\n{KEPT}{LATEST}{TOLD}"),
            (ASKED, f"{ASKED}        if comm.rank == 0:\n{BACK}"),
        ),
    ),
    wrong(
        "fails_alone",
        "The rank that cannot write raises (or returns) at once, and the others wait for it in the next collective. "
        "Catch the error, tell the others, and then raise on all.",
        edit((CAUGHT, "        raise OSError(f'rank {comm.rank}') from None\n")),
        edit((CAUGHT, "        return\n")),
    ),
    wrong(
        "only_the_failing_rank_raises",
        "The ranks that did write return as if all were well, and train on. Every rank raises.",
        edit((ASKED, "    if failed[comm.rank]:\n"), ("if comm.rank == 0:", "if comm.rank == 0 and not failed.any():")),
    ),
    wrong(
        "only_rank_0_raises",
        "Only rank 0 learns that the save failed: use a collective that tells all.",
        edit((ASKED, "    if failed.any() and comm.rank == 0:\n")),
    ),
    wrong(
        "swallows_the_error",
        "A save that failed looks like one that did not: nobody raises.",
        edit((ASKED, "    if failed.any():\n        return\n    if False:\n")),
    ),
    wrong(
        "does_not_say_who",
        "Your OSError must name all ranks that failed, and no others: somebody has to look at their disks.",
        edit((NAMES, f"{NAMES}[:1]")),
        edit((NAMES, "[comm.rank]")),
        edit((NAMES, "[]")),
        edit((NAMES, "range(comm.size)")),
        edit((CAUGHT, f"        if comm.size == 1:\n            raise\n{CAUGHT}")),
    ),
    wrong(
        "writes_into_latest",
        "You write into `latest` itself, or remove it first. Whoever reads it at that moment, or after a crash, finds "
        "half a name or nothing. os.replace puts a file that is whole in its place at once.",
        edit((NEW, 'new = folder / "latest"'), (PUT, "")),
        edit((NEW, 'new = folder / "latest"; new.unlink(missing_ok=True)'), (PUT, "")),
        edit((PUT, f'        (folder / "latest").unlink(missing_ok=True)\n{PUT}')),
        fails=("latest_is_replaced",),
    ),
    wrong(
        "latest_of_another_rank",
        "A rank other than 0 writes `latest`. On a shared disk ranks then write over each other's files, and on a disk "
        "of its own nobody looks for it there. That is rank 0's job alone.",
        edit((MAKES, "    if True:\n")),
        edit((MAKES, "    if comm.rank == comm.size - 1:\n")),
        edit((MAKES, "    if comm.rank == 0 or comm.rank == 1:\n")),
        edit((MAKES, "    if True:\n"), (NEW, 'new = folder / "latest"'), (PUT, "")),
        edit((MAKES, "    if True:\n"), (PUT, f'        (folder / "latest").unlink(missing_ok=True)\n{PUT}')),
    ),
    wrong(
        "one_name_for_all",
        "All your ranks write a file of one name, before it is moved into its place. Where they share the folder, one "
        "writes into another's file, or moves it away. The rank belongs into the name, and what becomes `latest` is "
        "written by rank 0 alone.",
        edited(
            moved_into_place,
            ('path.with_suffix(".tmp"))\n', 'path.with_name("part.tmp"))\n'),
            ('os.replace(path.with_suffix(".tmp"), path)', 'os.replace(path.with_name("part.tmp"), path)'),
        ),
        edit(
            (
                "    comm.all_reduce(failed)\n",
                '    (folder / "latest.new").write_text(part.name)\n    comm.all_reduce(failed)\n',
            )
        ),
        fails=("names_apart",),
    ),
    wrong(
        "needs_a_new_folder",
        "The step's folder may be there: an interrupted save leaves it, or another rank makes it on a shared disk, "
        "also after you have looked. Your save breaks on it: mkdir(exist_ok=True).",
        edit((MADE, "part.mkdir()")),
        edit((MADE, "part.exists() or part.mkdir()")),
        edit(("    try:\n", "    part.mkdir()\n    try:\n"), (f"        {MADE}\n", "")),
    ),
    wrong(
        "only_rank_0_makes_the_folder",
        "Only rank 0 makes the step's folder: that is enough on a shared disk, and no other rank can write where each "
        "has its own. Let all make it, with exist_ok=True.",
        edit((MADE, f"{MADE} if comm.rank == 0 else None")),
    ),
    wrong(
        "clears_the_step_folder",
        "You remove, or empty, what an interrupted save left in the step's folder. Where ranks share a disk, another "
        "may have written its file there a moment ago. Each rank writes over its own file alone.",
        edit((MADE, f"[old.unlink() for old in part.glob('*')]; {MADE}")),
        edit((MADE, f"{MADE}; [old.write_bytes(b'') for old in part.glob('*')]")),
        edit((MADE, f"import shutil; shutil.rmtree(part, ignore_errors=True); {MADE}")),
        edit((MADE, f"import shutil; comm.rank or shutil.rmtree(part, True); comm.barrier(); {MADE}")),
    ),
    wrong(
        "clears_up_after_a_failure",
        "Where a save has failed you remove the step's folder. Ranks that share it may still be writing there, and "
        "break on it: then too many are named. A rank touches its own file alone.",
        edit((CAUGHT, f"{CAUGHT}        import shutil; shutil.rmtree(part, ignore_errors=True)\n")),
        edit((ASKED, f"{ASKED}        import shutil; shutil.rmtree(part, ignore_errors=True)\n")),
        fails=("nothing_is_lost",),
    ),
    wrong(
        "writes_by_another_way",
        "You do not use the `write` that was handed in: whether it fails remains unknown.",
        edit((MADE, f"from safetensors.torch import save_file; {MADE}"), ("        write({", "        save_file({")),
    ),
    wrong(
        "changes_the_dict",
        "The dict belongs to the caller, who trains on with it: you put n among its tensors, or cut them.",
        edit(
            ('write({**mine, "n": torch.tensor(n)}', "write(tensors"),
            ("mine = {", 'tensors |= {"n": torch.tensor(n)} | {'),
        ),
        edit(
            ("mine = {", 'tensors["n"] = torch.tensor(n); mine = {'),
            ("each[:real] for", "each[:real] if name != 'n' else each for"),
        ),
        edit(
            ("mine = {", 'tensors["n"] = torch.tensor(n); mine = {'),
            ("each[:real] for", "each[:real] if name != 'n' else each for"),
            ('.safetensors")\n', '.safetensors")\n        del tensors["n"]\n'),
        ),
        fails=("tensors_stay",),
    ),
    wrong(
        "in_the_old_folder",
        "You write over the files of the step before, or remove them: an interrupted save then leaves no whole "
        "checkpoint. Each step has a folder of its own.",
        edit((MADE, f"[old.unlink() for old in folder.glob('step-*/rank-*')]; {MADE}")),
        edit((MADE, f"{MADE}; [write(tensors, old) for old in sorted(folder.glob('step-*/rank-*'))]")),
    ),
)
