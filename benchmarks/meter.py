"""What it costs to look: a training step under each instrument of `course.meter`, and under torch's own FLOP counter.

    python benchmarks/meter.py [--width 128 512] [--repeats 9]

A GPT of four layers goes forward and backward through 8 x 128 tokens, bare and under each instrument in turns, so that
a slow moment of the machine meets all of them. Figures are ratios of CPU time, of one thread, to the bare step of the
same turn, and what each of the step's ops takes longer. The wider the model, the less that is beside its arithmetic.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable

import torch
from measuring import machine, table
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.meter import kept_bytes, metered, saved_bytes

INSTRUMENTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "bare": contextlib.nullcontext,
    "saved_bytes": saved_bytes,
    "kept_bytes": kept_bytes,
    "kept_bytes, after each op": lambda: kept_bytes(after=lambda meter: meter.bytes_alive()),
    "metered": metered,
    "torch's FlopCounterMode": lambda: FlopCounterMode(display=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, nargs="+", default=[128, 512], help="of the model, a multiple of 4")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each instrument")
    given = parser.parse_args()
    console = Console(width=130)
    torch.set_num_threads(1)
    console.print(f"{machine()}, torch {torch.__version__}, one thread; load {os.getloadavg()[0]:.1f} at the start")
    for width in given.width:
        step = training_step(width)
        with metered() as run:
            step()
        seconds = in_turns(step, given.repeats)
        bare = seconds.pop("bare")
        title = f"width {width}: {len(run.trace):,} ops, {1000 * statistics.median(bare):.0f} ms bare"
        made = table(title, "under", "ratio", "least", "greatest", "more for an op, µs")
        for name, taken in seconds.items():
            ratios = [a / b for a, b in zip(taken, bare, strict=True)]
            more = statistics.median(a - b for a, b in zip(taken, bare, strict=True)) / len(run.trace)
            figures = (statistics.median(ratios), min(ratios), max(ratios))
            made.add_row(name, *(f"{each:.2f}" for each in figures), f"{1e6 * more:.0f}")
        console.print(made)


def training_step(width: int) -> Callable[[], None]:
    """Forward and backward of a GPT with fresh gradients."""
    rng = torch.Generator().manual_seed(0)
    model = GPT(GPTConfig(vocabulary=64, context=128, width=width, heads=4, layers=4), rng)
    tokens = torch.randint(64, (8, 129), generator=rng)

    def step() -> None:
        model.zero_grad()
        next_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()

    return step


def in_turns(step: Callable[[], None], repeats: int) -> dict[str, list[float]]:
    """Seconds of a step under each instrument; the first turn does not count."""
    taken: dict[str, list[float]] = {name: [] for name in INSTRUMENTS}
    for turn in range(repeats + 1):
        for name, instrument in INSTRUMENTS.items():
            started = time.process_time()
            with instrument():
                step()
            if turn:
                taken[name].append(time.process_time() - started)
    return taken


if __name__ == "__main__":
    main()
