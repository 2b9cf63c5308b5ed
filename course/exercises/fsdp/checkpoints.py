"""Checkpoints of shards as files, in folders that a probe makes and removes.

    folder/latest                                    the name of the newest whole step, "step-00000020"
    folder/step-00000020/rank-1-of-4.safetensors     rank 1's elements of each tensor, without padding, and "n"

A flat tensor of n elements lies on P ranks in pieces of ceil(n / P), the last ones shorter or empty; "n" is int64 ().
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from course.performing.draws import normal


def file_of(folder: Path, step: int, rank: int, size: int) -> Path:
    """Where a rank's part of a step lies."""
    return folder / f"step-{step:08d}" / f"rank-{rank}-of-{size}.safetensors"


def piece(n: int, rank: int, size: int) -> slice:
    """Which of n elements are this rank's."""
    chunk = -(-n // size)
    return slice(min(rank * chunk, n), min((rank + 1) * chunk, n))


def in_all_dtypes(rng: torch.Generator, n: int) -> dict[str, Tensor]:
    """Flat tensors of n elements, as a run has them; the whole numbers have more digits than any float. A diverged run
    has nan and inf, and a moment may be -0.0.
    """
    dtypes = {"weight": torch.bfloat16, "first_moment": torch.float32, "second_moment": torch.float64}
    drawn = {name: normal(rng, n, dtype=dtype) for name, dtype in dtypes.items()}
    drawn["first_moment"][:3] = torch.tensor([-0.0, torch.nan, -torch.inf])
    flags = torch.randint(1, 200, (n,), generator=rng, dtype=torch.uint8)
    return {**drawn, "updates": 2 * torch.randint(2**60, 2**61, (n,), generator=rng) + 1, "flags": flags}


def differ_beyond_float64(got: Tensor, expected: Tensor) -> bool:
    """Whether whole numbers are the same in float64, in which answers are compared, and not the same."""
    return (
        torch.equal(got.double(), expected.double()) and not got.is_floating_point() and not torch.equal(got, expected)
    )


def padded(whole: Tensor, rank: int, size: int) -> Tensor:
    """This rank's shard of a flat tensor, as long as everybody's, with zeros at the end."""
    mine = whole[piece(len(whole), rank, size)]
    return torch.cat([mine, mine.new_zeros(-(-len(whole) // size) - len(mine))])


def write_file(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes a safetensors file. Raises OSError where that is not possible."""
    path.write_bytes(packed(tensors))


def write_half(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Leaves the first half of the file, and raises OSError."""
    whole = packed(tensors)
    path.write_bytes(whole[: len(whole) // 2])
    raise OSError(28, "No space left on device")


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a safetensors file, of tensors with any strides."""
    rows = []
    for name, each in tensors.items():
        flat = each.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
        rows.append((name, each.dtype, tuple(each.shape), flat.view(torch.uint8).numpy().tobytes()))
    return _file(tuple(rows))


@functools.lru_cache(maxsize=1_000)
def _file(rows: tuple[tuple[str, torch.dtype, tuple[int, ...], bytes], ...]) -> bytes:
    """Made once: each rank writes the files of all, and that for every answer; to pack one takes half a millisecond."""
    apart = {name: torch.empty(shape, dtype=dtype) for name, dtype, shape, _ in rows}
    for name, _, _, bits in rows:
        if bits:
            apart[name].reshape(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(bits), dtype=torch.uint8))
    return safetensors.torch.save(apart)


def stored(path: Path) -> dict[str, Tensor] | str:
    """What a file holds; a word where it holds nothing."""
    try:
        return safetensors.torch.load(path.read_bytes())
    except OSError:
        return "no such file"
    except Exception:
        return "no safetensors file"


_watched: dict[str, list[str]] = {}  # absolute path -> what the file held when another was renamed to its name


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[list[str]]:
    """What a file holds each time another takes its place; "" where it was removed before.

    A file that was removed and written anew looks like one that was replaced, but for the moment between. So Python's
    audit events are heard (PEP 578): `os.rename` is what os.replace, pathlib and shutil.move come to.
    """
    _listen()
    held = _watched[os.path.abspath(path)] = []
    try:
        yield held
    finally:
        del _watched[os.path.abspath(path)]


_raced: set[str] = set()  # absolute paths of folders that another makes a moment before


@contextlib.contextmanager
def raced(path: Path) -> Iterator[None]:
    """Whoever makes this folder finds that another has made it since he looked, as where ranks share a disk."""
    _listen()
    _raced.add(os.path.abspath(path))
    try:
        yield
    finally:
        _raced.discard(os.path.abspath(path))


@functools.cache
def _listen() -> None:
    """Once: a hook cannot be removed."""
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.mkdir" and _raced:
        path = Path(os.path.abspath(os.fsdecode(arguments[0])))
        if str(path) in _raced:
            _raced.discard(str(path))
            path.mkdir()
    if event == "os.rename" and _watched:
        path = Path(os.path.abspath(os.fsdecode(arguments[1])))
        held = _watched.get(str(path))
        if held is not None:
            held.append(path.read_text() if path.exists() else "")
