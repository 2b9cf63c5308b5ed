"""What one step of each reference optimizer costs, beside `torch.optim`: plain, foreach and fused.

    python benchmarks/optimizers.py [--millions 1 10 100] [--repeats 7] [--only RMSprop Adadelta] [--device cpu]

A model of so many million float32 parameters is 16 square matrices. All contestants of one optimizer step on the same
parameters and gradients, in turns, so that a slow moment of the machine meets all of them. The time of a form is the
least of its turns, which other work has disturbed least, on the CPU of processor time, of all threads together; figures
are ratios to torch's plain form: 2.0 means that it takes twice as long. Where torch has no such form stands a dash.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time
from collections.abc import Callable, Sequence

import torch
from measuring import machine, table
from rich.console import Console
from rich.table import Table
from torch import Tensor

from course.reference.optimizers.adafactor import adafactor_step
from course.reference.optimizers.adamw_step import adamw_step
from course.reference.optimizers.adaptive_step import adaptive_step
from course.reference.optimizers.batched import adamw_step_foreach, sgd_step_foreach
from course.reference.optimizers.muon import muon_step
from course.reference.optimizers.sgd_step import sgd_step

MATRICES = 16
LARGEST_MUON = 10  # millions: its products grow with the third power of a side
PLAIN = "torch, plain"
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 10, 100], help="parameters")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each contestant")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="OPTIMIZER")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    console = Console(width=130)
    where = torch.cuda.get_device_name() if given.device == "cuda" else machine()
    threads = f"{torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f} at the start"
    console.print(f"{where}, torch {torch.__version__}, {threads}")
    for millions in given.millions:
        console.print(compared(millions, given.repeats, torch.device(given.device), given.only))


def compared(millions: float, repeats: int, device: torch.device, names: Sequence[str]) -> Table:
    """One line for each optimizer: torch's plain step in milliseconds, and the others' ratios to it."""
    columns = ("plain, ms", "ours", "ours, foreach", "torch, foreach", "torch, fused")
    made = table(
        f"{millions:g} million parameters: time of a step over that of torch's plain form", "optimizer", *columns
    )
    for name in names:
        if name == "Muon" and millions > LARGEST_MUON:
            continue
        params, grads = model(millions, device)
        steps = {form: make(params, grads) for form, make in CONTESTANTS[name].items()}
        seconds = in_turns(steps, repeats, device)
        ratios = [_ratio(seconds.get(form), seconds[PLAIN]) for form in columns[1:]]
        made.add_row(name, f"{1000 * min(seconds[PLAIN]):.2f}", *ratios)
    return made


def _ratio(taken: list[float] | None, plain: list[float]) -> str:
    return "–" if taken is None else f"{min(taken) / min(plain):.2f}"


def model(millions: float, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Square matrices, and a gradient for each."""
    side = round(math.sqrt(millions * 1e6 / MATRICES))
    rng = torch.Generator(device).manual_seed(0)

    def draw() -> list[Tensor]:
        return [torch.randn(side, side, generator=rng, device=device) for _ in range(MATRICES)]

    return draw(), draw()


def in_turns(steps: dict[str, Step], repeats: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of each step; the first turn, which makes the states, does not count."""
    taken: dict[str, list[float]] = {form: [] for form in steps}
    for turn in range(repeats + 1):
        for form, step in steps.items():
            started = _now(device)
            step()
            if turn:
                taken[form].append(_now(device) - started)
    return taken


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def ours(step: Callable[..., object], **numbers: object) -> Callable[[list[Tensor], list[Tensor]], Step]:
    """A reference that takes lists of parameters, gradients and states."""

    def make(params: list[Tensor], grads: list[Tensor]) -> Step:
        return functools.partial(step, params, grads, [{} for _ in params], **numbers)

    return make


def one_by_one(rule: str, **numbers: object) -> Callable[[list[Tensor], list[Tensor]], Step]:
    """`adaptive_step`, which takes one parameter at a time."""

    def make(params: list[Tensor], grads: list[Tensor]) -> Step:
        states: list[dict[str, Tensor]] = [{} for _ in params]

        def step() -> None:
            for param, grad, state in zip(params, grads, states, strict=True):
                adaptive_step(rule, param, grad, state, lr=1e-3, **numbers)

        return step

    return make


def theirs(kind: type[torch.optim.Optimizer], **numbers: object) -> Callable[[list[Tensor], list[Tensor]], Step]:
    """An optimizer of torch on the same numbers."""

    def make(params: list[Tensor], grads: list[Tensor]) -> Step:
        owned = [torch.nn.Parameter(param) for param in params]
        for param, grad in zip(owned, grads, strict=True):
            param.grad = grad
        return kind(owned, **numbers).step

    return make


def forms(
    kind: type[torch.optim.Optimizer], *, fused: bool = True, **numbers: object
) -> dict[str, Callable[..., Step]]:
    """torch's forms of one optimizer."""
    made = {
        PLAIN: theirs(kind, foreach=False, **numbers),
        "torch, foreach": theirs(kind, foreach=True, **numbers),
    }
    return {**made, "torch, fused": theirs(kind, fused=True, **numbers)} if fused else made


MOMENTUM = {"lr": 1e-3, "momentum": 0.9}
ADAMW = {"lr": 1e-3}
CENTERED = {"momentum": 0.9, "centered": True}
CONTESTANTS: dict[str, dict[str, Callable[..., Step]]] = {
    "SGD with momentum": {
        "ours": ours(sgd_step, **MOMENTUM),
        "ours, foreach": ours(sgd_step_foreach, **MOMENTUM),
        **forms(torch.optim.SGD, **MOMENTUM),
    },
    "AdamW": {
        "ours": ours(adamw_step, **ADAMW),
        "ours, foreach": ours(adamw_step_foreach, **ADAMW),
        **forms(torch.optim.AdamW, **ADAMW),
    },
    "AdamW, amsgrad": {
        "ours": ours(adamw_step, amsgrad=True, **ADAMW),
        "ours, foreach": ours(adamw_step_foreach, amsgrad=True, **ADAMW),
        **forms(torch.optim.AdamW, amsgrad=True, **ADAMW),
    },
    "Adagrad": {"ours": one_by_one("adagrad"), **forms(torch.optim.Adagrad, lr=1e-3)},
    "RMSprop": {"ours": one_by_one("rmsprop"), **forms(torch.optim.RMSprop, fused=False, lr=1e-3)},
    "RMSprop, centered, with momentum": {
        "ours": one_by_one("rmsprop", **CENTERED),
        **forms(torch.optim.RMSprop, fused=False, lr=1e-3, **CENTERED),
    },
    "Adadelta": {"ours": one_by_one("adadelta"), **forms(torch.optim.Adadelta, fused=False, lr=1e-3)},
    "Adafactor": {"ours": ours(adafactor_step, lr=1e-2), **forms(torch.optim.Adafactor, fused=False, lr=1e-2)},
    "Muon": {"ours": ours(muon_step, lr=1e-3), PLAIN: theirs(torch.optim.Muon, lr=1e-3)},
}

if __name__ == "__main__":
    main()
