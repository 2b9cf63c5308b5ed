"""Three short programs that quantize a layer, each with one fault, and what their runs show.

program's name, line number, new line --mended--> text --run--> outputs, their errors, and the bytes that are kept

The faults: a layer derived from nn.Linear keeps its float weight beside the codes; steps belong to columns of the
weight and not to its rows; and a calibration remembers its last batch only. Inputs are in float64, so that a run's last
digits matter to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course.errors import WrongOutput
from course.lessons.experiments.programs import Programs
from course.meter import cycles_freed, kept_bytes

PROGRAMS = Programs(
    layer="""\
def layer(weight, calibration, batches):
    m, n = weight.shape
    kept = torch.nn.Linear(n, m, bias=False)
    kept.step = weight.abs().amax(1, keepdim=True) / 127
    kept.codes = (weight / kept.step).round().to(torch.int8)
    outputs = []
    for x in batches:
        dx = x.abs().amax(1, keepdim=True) / 127
        codes = (x / dx).round().to(torch.int8)
        product = codes.int() @ kept.codes.int().T
        outputs += [product * dx * kept.step.T]
    return outputs, kept
""",
    channels="""\
def channels(weight, calibration, batches):
    step = weight.abs().amax(0, keepdim=True) / 127
    codes = (weight / step).round().to(torch.int8)
    outputs = []
    for x in batches:
        outputs += [x @ (codes * step).T]
    return outputs, (codes, step)
""",
    calibrated="""\
def calibrated(weight, calibration, batches):
    peak = torch.zeros(())
    for x in calibration:
        peak = x.abs().max()
    step = peak / 127
    outputs = []
    for x in batches:
        codes = (x / step).round().clamp(-127, 127).to(torch.int8)
        outputs += [codes.double() * step @ weight.T]
    return outputs, step
""",
)
M, N = 24, 32  # rows and columns of the weight


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one run gave.

    outputs  of each batch, (rows, M)
    channel  the largest relative error of an output channel over all batches: norm of the error over that of the output
    batch    the largest relative error of a batch
    bytes    of what is kept, beside the outputs, when the program has ended
    """

    outputs: list[Tensor]
    channel: float
    batch: float
    bytes: int


def run(name: str, program: str = "", *, weight: Tensor, calibration: Tensor, batches: Tensor) -> Log:
    """What the program gives for weight (M, N), and calibration and batches (count, rows, N), all float64.

    program  its text, as it stands above if left out. It is executed: it is run where its author's code is
    Raises WrongOutput where it returns something else than its outputs and what it keeps.
    """
    function = PROGRAMS.defined(name, program)
    with cycles_freed(), kept_bytes() as meter:
        found = function(weight.clone(), list(calibration.clone()), list(batches))
    try:
        outputs, kept = found
        made = torch.stack([each.detach().double() for each in outputs])
    except (TypeError, ValueError, AttributeError, RuntimeError):
        raise WrongOutput(f"{name} must return its outputs and what it keeps, got {type(found).__name__}") from None
    right = batches @ weight.T
    if made.shape != right.shape:
        raise WrongOutput(f"{name} must return outputs of shape {tuple(right.shape)}, got {tuple(made.shape)}")
    numbers = list(kept.parameters()) if isinstance(kept, nn.Module) else []
    bytes_ = meter.bytes_alive(ignore=[*outputs, *(each for each in numbers if each.is_meta)])
    del numbers
    del kept, found
    return Log(
        outputs=list(made),
        channel=float(((made - right).norm(dim=(0, 1)) / right.norm(dim=(0, 1))).max()),
        batch=float(((made - right).norm(dim=(1, 2)) / right.norm(dim=(1, 2))).max()),
        bytes=bytes_,
    )


def data(rng: torch.Generator, batches: int = 6, rows: int = 8) -> dict[str, Tensor]:
    """A weight whose rows differ in size, and inputs of which one calibration batch, neither the first nor the last,
    is three times as large; one of the batches that come later is larger still, so that who calibrates on it has
    another step.
    """
    weight = torch.randn(M, N, generator=rng, dtype=torch.float64)
    weight *= 10.0 ** torch.linspace(-2, 1, M, dtype=torch.float64)[torch.randperm(M, generator=rng), None]
    drawn = torch.randn(2, batches, rows, N, generator=rng, dtype=torch.float64)
    calibration, later = drawn[:, int(torch.randint(1, batches - 1, (), generator=rng))]
    calibration *= 3
    calibration *= -1 if calibration.max() > -calibration.min() else 1  # its largest magnitude is that of a negative
    later *= 1.1 * calibration.abs().max() / later.abs().max()
    return {"weight": weight, "calibration": drawn[0], "batches": drawn[1]}


def example() -> dict[str, Any]:
    """The inputs with which the lesson shows the programs."""
    return data(torch.Generator().manual_seed(0))


def table(logs: Mapping[str, Log]) -> str:
    """A line for each run."""
    heads = f"{'':10}  error of the worst channel  of the worst batch  bytes kept"
    rows = [f"{name:10}{log.channel:28.2%}{log.batch:20.2%}{log.bytes:12,}" for name, log in logs.items()]
    return "\n".join([heads, *rows])
