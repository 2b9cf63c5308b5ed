"""What this build of torch does in few bits: bytes of the weight, error of the product, and time beside float32."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course.lessons.int8 import int8_product

M, N, ROWS, GROUP = 512, 512, 64, 32
Path = Callable[[], tuple[int, Callable[[], Tensor]]]


def data() -> tuple[Tensor, Tensor]:
    """x (ROWS, N) and a weight (M, N) of normal numbers."""
    rng = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, N, generator=rng), torch.randn(M, N, generator=rng) / N**0.5


def per_row(rows: Tensor) -> tuple[Tensor, Tensor]:
    """int8 and a step for each row."""
    step = rows.abs().amax(dim=-1, keepdim=True) / 127
    return (rows / step).round().char(), step


def paths() -> dict[str, Path]:
    """By name: what prepares the weight, and gives its bytes and the product."""
    x, w = data()

    def whole() -> tuple[int, Callable[[], Tensor]]:
        return w.nbytes, lambda: x @ w.T

    def integers() -> tuple[int, Callable[[], Tensor]]:
        codes, step = per_row(w)

        def product() -> Tensor:
            mine, size = per_row(x)
            return int8_product(mine, codes.T) * size * step.T

        return codes.nbytes + step.nbytes, product

    def weight_only() -> tuple[int, Callable[[], Tensor]]:
        codes, step = per_row(w)
        half, scales = x.bfloat16(), step.flatten().bfloat16()
        return codes.nbytes + scales.nbytes, lambda: torch._weight_int8pack_mm(half, codes, scales).float()

    def four_bits() -> tuple[int, Callable[[], Tensor]]:
        groups = w.reshape(M, -1, GROUP)
        low, high = groups.amin(-1), groups.amax(-1)
        step = ((high - low) / 15).bfloat16()
        middle = (low + 8 * step.float()).bfloat16()
        codes = ((groups - low[..., None]) / step[..., None].float()).round().clamp(0, 15).int().reshape(M, N)
        packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
        scales = torch.stack([step, middle], dim=-1).transpose(0, 1).contiguous()
        half = x.bfloat16()
        return packed.nbytes + scales.nbytes, lambda: torch._weight_int4pack_mm_for_cpu(
            half, packed, GROUP, scales
        ).float()

    return {
        "float32": whole,
        "int8 codes and inputs, _int_mm": integers,
        "int8 weight, bfloat16 inputs": weight_only,
        "4 bits, groups of 32, bfloat16": four_bits,
    }


def lines(repeat: int = 30) -> Iterator[str]:
    """A line for each path; one that this build lacks says so."""
    x, w = data()
    exact, unit = x @ w.T, None
    yield f"{'':32}  {'bytes':>9}  {'error':>6}  time of float32's"
    for name, prepare in paths().items():
        try:
            bytes_, product = prepare()
            error = float((product() - exact).norm() / exact.norm())
        except (AttributeError, NotImplementedError, RuntimeError) as missing:
            yield f"{name:32}  not in this build ({type(missing).__name__})"
            continue
        seconds = min(_timed(product) for _ in range(repeat))
        unit = unit or seconds
        yield f"{name:32}  {bytes_:9,}  {error:6.2%}  {seconds / unit:8.1f}"


def _timed(call: Callable[[], Tensor]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
