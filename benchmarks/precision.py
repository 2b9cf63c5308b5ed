"""What the references of mixed precision cost, beside torch's own: casts, the loss scaler, products in 8 bits.

    python benchmarks/precision.py [--millions 1 10] [--sides 256 1024] [--repeats 7] [--device cpu]

Casts and the scaler's round (unscale_, a step of SGD, update) take so many million float32 numbers, products two square
matrices of each side. Both contestants of a line work on the same numbers, in turns; figures are the median of the
ratios to torch within one turn. Products are compared with torch._scaled_mm, for which our `quantize` works too.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from collections.abc import Iterable, Iterator

import torch
from measuring import machine, table
from optimizers import Step, in_turns, model
from rich.console import Console
from rich.table import Table
from torch import Tensor

from course.reference.mixed_precision.loss_scaler import LossScaler
from course.reference.mixed_precision.round_to import round_to
from course.reference.mixed_precision.scaled_fp8_matmul import E4M3, quantize, scaled_fp8_matmul
from course.reference.mixed_precision.stochastic_round import stochastic_round

BITS = {torch.float16: (5, 10), torch.bfloat16: (8, 7), torch.float8_e5m2: (5, 2)}
BLOCK = 128
Line = tuple[str, Step, Step]  # what, torch's, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 10], help="numbers")
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 1024], help="of the matrices of a product")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each contestant")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    device = torch.device(given.device)
    console = Console(width=130)
    where = torch.cuda.get_device_name() if given.device == "cuda" else machine()
    threads = f"{torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f} at the start"
    console.print(f"{where}, torch {torch.__version__}, {threads}")
    for millions in given.millions:
        lines = [*casts(millions, device), scaling(millions, device)]
        console.print(compared(f"{millions:g} million numbers", lines, given.repeats, device))
    for side in given.sides:
        console.print(compared(f"{side} x {side} matrices", products(side, device), given.repeats, device))


def compared(title: str, lines: Iterable[Line], repeats: int, device: torch.device) -> Table:
    """A line for each pair: torch's milliseconds, and the ratio of ours."""
    made = table(title, "what", "torch, ms", "ours, ratio")
    for name, theirs, ours in lines:
        seconds = in_turns({"torch": theirs, "ours": ours}, repeats, device)
        ratio = statistics.median(a / b for a, b in zip(seconds["ours"], seconds["torch"], strict=True))
        made.add_row(name, f"{1000 * statistics.median(seconds['torch']):.2f}", f"{ratio:.3g}")
    return made


def casts(millions: float, device: torch.device) -> Iterator[Line]:
    """There and back to float32, as `round_to` gives it; stochastic rounding has no counterpart but the cast."""
    rng = torch.Generator(device).manual_seed(0)
    x, u = (torch.rand(round(millions * 1e6), generator=rng, device=device) for _ in range(2))
    for dtype, bits in BITS.items():
        yield f"round to {str(dtype)[6:]}", functools.partial(_cast, x, dtype), functools.partial(round_to, x, *bits)
    stochastic = functools.partial(stochastic_round, x, u)
    yield "stochastic, to bfloat16", lambda: x.to(torch.bfloat16), stochastic


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).float()


def scaling(millions: float, device: torch.device) -> Line:
    """A scale of 1, so that the gradients, which every turn divides by it, stay as they are."""
    params, grads = model(millions, device)
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    optimizer = torch.optim.SGD(params, lr=1e-3)
    theirs, ours = torch.amp.GradScaler(device.type, init_scale=1.0), LossScaler(1.0)
    theirs.scale(torch.ones((), device=device))  # makes its scale

    def torchs() -> None:
        theirs.unscale_(optimizer)
        theirs.step(optimizer)
        theirs.update()

    def own() -> None:
        ours.unscale_(grads)
        ours.step(optimizer.step)
        ours.update()

    return "loss scaler, with SGD", torchs, own


def products(side: int, device: torch.device) -> Iterator[Line]:
    """Of two matrices in e4m3; blocks, for which torch has no product on a CPU, against one scale."""
    rng = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(side, side, generator=rng, device=device) for _ in range(2))
    theirs = functools.partial(_torchs_product, a, b)
    yield "8-bit product, one scale", theirs, functools.partial(scaled_fp8_matmul, a, b, None)
    in_blocks = functools.partial(scaled_fp8_matmul, a, b, None, block=BLOCK)
    yield f"8-bit product, blocks of {BLOCK}", theirs, in_blocks
    yield "float32 product, for comparison", theirs, lambda: a @ b


def _torchs_product(a: Tensor, b: Tensor) -> Tensor:
    (q_a, scale_a), (q_b, scale_b) = quantize(a, E4M3), quantize(b.T, E4M3)
    scales = scale_a.squeeze(), scale_b.squeeze()
    return torch._scaled_mm(q_a[:, 0], q_b[:, 0].T, *scales, out_dtype=torch.float32)


if __name__ == "__main__":
    main()
