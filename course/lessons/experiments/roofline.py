"""Is an operator limited by arithmetic or by memory, and what does a narrower format change?

    operator --FLOPs / bytes--> intensity;  machine --min(peak, intensity * bandwidth)--> the FLOP/s it can reach

words
    intensity   FLOPs that an operator does for each byte that it moves between memory and processor (FLOP/byte)
    peak        FLOP/s of matrix products in a format; bandwidth: bytes/s of memory
    ridge       the intensity from which on the peak is the limit: peak / bandwidth
    bytes       every input is read once and the output written once, as if the cache held all that is used again

FLOPs of element-wise operators are those of the textbook formula, an exp or an erf as one. Source: Williams, Waterman
and Patterson, Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}  # TF32 numbers lie in memory as fp32
SIDES = {"cpu": (128, 256, 1024), "cuda": (256, 1024, 8192)}  # of the matrices that are multiplied
ROWS, COLUMNS = 8192, 4096  # of the matrices on which element-wise operators are measured: larger than most caches
PIECE = 2**16  # numbers of a fused chain that stay in the cache: 256 KiB in fp32
REPEATS = 2
PATIENCE = 0.5  # seconds: some processors take 50 times as long for a product in bf16 as in fp32
Run = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A processor: FLOP/s of matrix products by format, bytes/s of memory."""

    name: str
    peaks: Mapping[str, float]
    bandwidth: float

    def ridge(self, form: str) -> float:
        """FLOP/byte from which on matrix products, not memory, are the limit."""
        return self.peaks[form] / self.bandwidth

    def reachable(self, intensity: float, form: str) -> float:
        """FLOP/s at this intensity: the roof."""
        return min(self.peaks[form], intensity * self.bandwidth)


# NVIDIA A100 80 GB SXM, dense products: its data sheet, "NVIDIA A100 Tensor Core GPU" (2021). The 19.5 of fp32 are not
# those of matrix units.
A100 = Machine(name="A100 (data sheet)", peaks={"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12}, bandwidth=2039e9)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an operator does: FLOPs, and numbers moved."""

    name: str
    flops: float
    moved: float

    def intensity(self, form: str) -> float:
        """FLOP/byte where each number has the bytes of the format."""
        return self.flops / (self.moved * BYTES[form])


@dataclass(frozen=True, kw_only=True)
class Point:
    """An operator that was timed."""

    work: Work
    form: str
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.work.intensity(self.form)

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.work.flops / self.seconds

    @property
    def moved(self) -> float:
        """Bytes/s."""
        return self.rate / self.intensity


def product(n: int) -> Work:
    """A product of two n x n matrices."""
    return Work(name=f"matmul {n}", flops=2 * n**3, moved=3 * n**2)


def elementwise(rows: int = ROWS, columns: int = COLUMNS) -> dict[str, Work]:
    """Operators on a matrix: FLOPs a number, and reads and writes of it."""
    numbers = rows * columns
    a_number = {"add": (1, 3), "GELU": (5, 2), "softmax": (5, 2), "layer norm": (7, 2)}
    return {name: Work(name=name, flops=f * numbers, moved=m * numbers) for name, (f, m) in a_number.items()}


def chain(k: int, numbers: int, *, fused: bool) -> Work:
    """k multiplications of every number: one by one each reads and writes memory, fused they do it once."""
    name = f"{k} multiplications, {'fused' if fused else 'one by one'}"
    return Work(name=name, flops=k * numbers, moved=2 * numbers * (1 if fused else k))


def planned(machine: Machine, form: str, *, n: int, k: int) -> list[Point]:
    """Operators on n x n matrices, each where the roof allows no more."""
    works = [product(n), *elementwise(n, n).values(), *(chain(k, n * n, fused=fused) for fused in (False, True))]
    return [
        Point(work=work, form=form, seconds=work.flops / machine.reachable(work.intensity(form), form))
        for work in works
    ]


# --- measuring ---------------------------------------------------------------------------------------------


def multiply(x: Tensor, k: int, *, piece: int | None = None) -> Tensor:
    """x times 1.5 and 1 / 1.5 in turns, k times, in place; with `piece`, so many numbers at a time, all k of them."""
    for part in [x] if piece is None else x.split(piece):  # type: ignore[no-untyped-call]
        for number in range(k):
            part.mul_(1 / 1.5 if number % 2 else 1.5)
    return x


def seconds(run: Run, device: torch.device) -> float:
    """The least of a few runs after a first one, which does not count unless it takes long."""
    found: list[float] = []
    while len(found) < REPEATS + 1 and sum(found) < PATIENCE:
        begin = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - begin)
    return min(found[1:] or found)


def measure(
    device: torch.device | str = "cpu", *, rows: int = ROWS, sides: tuple[int, ...] = (), k: int = 8
) -> tuple[Machine, list[Point]]:
    """This machine's ceilings and its operators, in fp32 and bf16; about 3 s of one thread of a CPU.

    sides  of the products, if not those in SIDES; rows of the other operators' matrices; k multiplications in a chain

    The peak is the best rate of the products; bandwidth is the best of the others and of a copy in fp32 (a product's
    matrices may stay in the cache). On CUDA "fused" is not measured: pieces would not stay in the cache.
    """
    device = torch.device(device)
    sides = sides or SIDES[device.type]
    points = [point for form in DTYPES for point in _points(form, device, rows, sides, k)]
    products = [product(n) for n in sides]
    peaks = {form: max(each.rate for each in points if each.form == form and each.work in products) for form in DTYPES}
    moved = [each.moved for each in points if each.work not in products]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU"
    return Machine(name=name, peaks=peaks, bandwidth=max(_copied(device, rows), *moved)), points


def _copied(device: torch.device, rows: int) -> float:
    """Bytes that a copy reads and writes a second."""
    x = torch.ones(rows * COLUMNS, device=device)
    y = torch.empty_like(x)
    return 2 * x.nbytes / seconds(lambda: y.copy_(x), device)


def _points(form: str, device: torch.device, rows: int, sides: tuple[int, ...], k: int) -> list[Point]:
    dtype = DTYPES[form]
    runs: list[tuple[Work, Run]] = []
    for n in sides:
        a, out = torch.ones(n, n, dtype=dtype, device=device), torch.empty(n, n, dtype=dtype, device=device)
        runs.append((product(n), lambda a=a, out=out: torch.mm(a, a, out=out)))  # type: ignore[misc]
    x = torch.ones(rows, COLUMNS, dtype=dtype, device=device)
    made = _on_a_matrix(x)
    runs += [(work, made[name]) for name, work in elementwise(rows).items()]
    flat = x.view(-1)
    runs.append((chain(k, x.numel(), fused=False), lambda: multiply(flat, k)))
    if device.type == "cpu":
        runs.append((chain(k, x.numel(), fused=True), lambda: multiply(flat, k, piece=PIECE)))
    return [Point(work=work, form=form, seconds=seconds(run, device)) for work, run in runs]


def _on_a_matrix(x: Tensor) -> dict[str, Run]:
    """Each writes into memory that is there already: new pages would be measured with it."""
    y, out, weight = x.clone(), torch.empty_like(x), torch.ones_like(x[0])
    mean, inverse = (torch.empty_like(x[:, :1]) for _ in range(2))
    norm, shape = torch.ops.aten.native_layer_norm.out, [x.shape[1]]
    return {
        "add": lambda: torch.add(x, y, out=out),
        "GELU": lambda: torch.ops.aten.gelu.out(x, out=out),
        "softmax": lambda: torch.ops.aten._softmax.out(x, -1, False, out=out),
        "layer norm": lambda: norm(x, shape, weight, weight, 1e-5, out0=out, out1=mean, out2=inverse),
    }
