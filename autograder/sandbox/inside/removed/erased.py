"""The machine code of what is removed, overwritten in this process's own copy of torch's library.

    names, symbol table of torch's library --code_of--> where functions lie --erase--> traps: who gets there dies

What cut and override change is data, and whoever writes to memory can change it back. Code that is gone nobody can,
once no memory becomes executable any more (`policy.EXECUTABLE`). So those two tell an answer what it may not use, and
this holds behind them. Equal functions are one to the linker: what others are called as well stays.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

Spans: TypeAlias = tuple[tuple[int, int], ...]  # first address and length of each, in order

PROCESSOR = "x86_64"
TRAP = 0xCC  # int3: one byte, so that who jumps into the middle of a function meets it as well
READ, WRITE, EXECUTE = 1, 2, 4
LIBRARY = "libtorch_cpu.so"
DISPATCHING = b"_ZN2at4_ops"  # begins names of what only asks the dispatcher, which tells who may not
SYMTAB, FUNCTION = 2, 2
SYMBOL = np.dtype([("name", "<u4"), ("kind", "u1"), ("", "u1"), ("section", "<u2"), ("at", "<u8"), ("size", "<u8")])
PADDING = 16  # bytes: functions begin at multiples of it
APART = 2**24  # bytes between functions that are made writable by themselves

# Parts of mangled names. A pattern that begins with plain text is found in milliseconds, any other takes a second.
_AUTOGRAD = (
    rb"_ZN5torch8autograd9generated(?!17get_)",  # derivatives; not the names of what torch.max and others return
    # Kernels that record; those that write into `out` do not, and stay in use.
    rb"_ZN5torch8autograd12VariableType12_GLOBAL__N_1(?!\d+\w+?_outE)\d+\w+?EN3c1014DispatchKeySetE",
    rb"5torch8autograd(?:6Engine|9GraphTask|10CopySlices|14AccumulateGrad|12AutogradMeta11set_fw_grad)",
    rb"5torch8autograd4impl17set_gradient_edge",
    rb"_ZN2at6native(?:12_GLOBAL__N_1)?\d+(?:\w+?_backward|_make_dual)",
    rb"5torch3jit13differentiate",
)
CODE = {
    "torch": _AUTOGRAD,
    "torch.autograd": _AUTOGRAD,
    "torch.nn.functional.silu": (rb"silu(?<!hardsilu)",),
    "torch.nn.functional.cross_entropy": (rb"cross_entropy(?<!binary_cross_entropy)",),
    "torch.nn.functional.nll_loss": (rb"nll_loss(?<!gaussian_nll_loss)(?<!poisson_nll_loss)",),
    "torch.nn.functional.scaled_dot_product_attention": (rb"scaled_dot_product", rb"flash_attention"),
    "torch.optim": (rb"fused_(?:sgd|ada[mg])", rb"sgd_fused_step", rb"adam_fused_step", rb"adagrad_fused_step"),
    "torch.Tensor.sum_to_size": (rb"sum_to_size",),
}


def code_of(name: str) -> Spans:
    """Where the machine code of what is removed by this name lies; () where nothing is to be erased, or can be."""
    look_up([name])
    return _found.get(name, ())


def erase(spans: Iterable[tuple[int, int]]) -> None:
    """Overwrite it, for this process and its forks. Raises OSError where the system refuses."""
    found = sorted(set(spans))
    if found:
        torch._C._set_mkldnn_enabled(False)  # it writes machine code of its own, and dies where that is denied
    regions = list(_regions(found))
    for region in regions:
        _protect(*region, READ | WRITE | EXECUTE)  # the collector of garbage may call torch meanwhile
    for at, size in found:
        ctypes.memset(at, TRAP, size)
    for region in regions:
        _protect(*region, READ | EXECUTE)
    for region in writable_code() if found else ():
        _protect(*region, READ | WRITE)


@functools.cache
def writable_code() -> Spans:
    """Memory that can be written and executed: first address and length. Some libraries keep what they compile so."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, allowed, *_ = line.split()
        if "w" in allowed and "x" in allowed:
            first, last = (int(end, 16) for end in span.split("-"))
            found.append((first, last - first))
    return tuple(found)


def look_up(removed: Iterable[str]) -> None:
    """For `code_of`, all at once: most of the time goes into each pattern, but some into the table of symbols.

    Without a whole table, as where a library was stripped, nobody can tell what else code is.
    """
    new = {CODE[name] for name in removed if name in CODE and name not in _found}
    found: dict[tuple[bytes, ...], list[tuple[int, int]]] = {patterns: [] for patterns in new}
    for path, base in _libraries() if new and platform.machine() == PROCESSOR else ():
        symbols, names = _symbols(path)
        code = symbols[(symbols["kind"] & 15 == FUNCTION) & (symbols["section"] != 0) & (symbols["size"] > 0)]
        known, starts = np.sort(symbols["name"]), np.sort(code["at"])
        for patterns, spans in found.items():
            hits = [at for pattern in patterns for at in _hits(pattern, names)]
            found_names = set(known[np.searchsorted(known, hits, side="right") - 1].tolist())
            wanted = [at for at in found_names if not names.startswith(DISPATCHING, at)]
            meant = code[_among(code["name"], np.array(wanted, "<u4"))]
            own = np.sort(meant["at"])
            meant = meant[_count(starts, meant["at"]) == _count(own, meant["at"])]
            spans += [(base + first, last - first) for first, last in _joined(meant, starts)]
    _found.update({name: tuple(sorted(found[patterns])) for name, patterns in CODE.items() if patterns in new})


_found: dict[str, Spans] = {}


def _hits(pattern: bytes, names: bytes) -> Iterator[int]:
    """Where it is found, by way of the plain text with which it begins: that takes a tenth of the time."""
    plain, compiled = re.match(rb"\w+", pattern)[0], re.compile(pattern)  # type: ignore[index]
    at = names.find(plain)
    while at >= 0:
        if compiled.match(names, at):
            yield at
        at = names.find(plain, at + 1)


def _among(values: Any, wanted: Any) -> Any:
    """Which of the values are wanted."""
    ordered = np.append(np.sort(wanted), 0)
    return ordered[np.searchsorted(ordered[:-1], values)] == values


def _count(ordered: Any, values: Any) -> Any:
    """How often each of the values is there."""
    return np.searchsorted(ordered, values, side="right") - np.searchsorted(ordered, values)


def _libraries() -> Iterator[tuple[Path, int]]:
    """Torch's library of operators, and the address at which it begins."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, _, *path = line.split(maxsplit=5)
        if path and Path(path[0]).name == LIBRARY and int(offset, 16) == 0:
            yield Path(path[0]), int(span.partition("-")[0], 16)


def _symbols(path: Path) -> tuple[Any, bytes]:
    """The table of all symbols of a library (ELF, 64 bits), and the bytes in which their names stand."""
    with path.open("rb") as file:
        header = file.read(64)
        (start,), (size, count) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<HH", header, 58)
        file.seek(start)
        sections = [struct.unpack("<IIQQQQIIQQ", file.read(size)) for _ in range(count)]
        table = next((each for each in sections if each[1] == SYMTAB), None)
        parts = []
        for _, _, _, _, offset, length, *_ in (table, sections[table[6]]) if table else ():
            file.seek(offset)
            parts.append(file.read(length))
    symbols, names = parts or (b"", b"")
    return np.frombuffer(symbols, SYMBOL), names


def _joined(code: Any, starts: Any) -> list[tuple[int, int]]:
    """First and last addresses, neighbours as one. `starts` are those of all functions, in order."""
    ordered = np.sort(code, order="at")
    first, last = ordered["at"], np.maximum.accumulate(ordered["at"] + ordered["size"])
    is_next = first[1:] < last[:-1] + PADDING
    is_next &= np.searchsorted(starts, last[:-1]) >= np.searchsorted(starts, first[1:])  # no other one lies between
    begins = np.flatnonzero(np.append(True, ~is_next)[: len(first)])
    ends = np.append(begins[1:], len(first))[: len(begins)] - 1
    return list(zip(first[begins].tolist(), last[ends].tolist(), strict=True))


def _regions(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Whole pages around them, first address and length."""
    page = os.sysconf("SC_PAGE_SIZE")
    first, last = 0, 0
    for at, size in [*spans, (2**63, 0)]:
        if at > last + APART:
            if last:
                yield first, -(-last // page) * page - first
            first = at // page * page
        last = at + size


def _protect(first: int, length: int, allowed: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(length), allowed) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "mprotect")
