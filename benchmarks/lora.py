"""A step of fine-tuning: all weights, our adapters, and peft's; its time and what it holds.

    python benchmarks/lora.py [--r 8] [--repeats 15] [--rows 128] [--device cpu]

The small GPT on 32 x 64 tokens with adapters beside all linear layers of its blocks, and one layer of 4,096 x 4,096
without bias whose input needs its gradient, as inside a model. The optimizer is torch's AdamW on what is trained. In
every turn each kind takes one step; times are medians, and ratios are taken within one turn. On a CPU they are CPU
seconds of one thread, which other work on the machine disturbs less. Bytes come from steps that are not timed: what is
held between steps (parameters, gradients, the optimizer's states), and the most that `metered` sees after any op of a
third step, the model included. Gradients stay until the next step begins.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from measuring import machine, table
from rich.console import Console
from torch import Tensor, nn

from course.lessons.experiments.small_gpt import CONFIG
from course.lessons.models import GPT, next_token_loss
from course.meter import metered
from course.reference.lora.adapters import inject

FULL, OURS, PEFT = "all weights", "LoRA, ours", "LoRA, peft's"
SIDE, BATCH, MIB = 4_096, 32, 2**20
LAYERS = r".*\.(q_proj|k_proj|v_proj|out_proj|up|down)"


class Problem(NamedTuple):
    """build: a model on a device; loss: of the model on one batch; pattern: names of the layers that are adapted."""

    name: str
    build: Callable[[torch.device], nn.Module]
    loss: Callable[[nn.Module, torch.device], Callable[[], Tensor]]
    pattern: str


class Training(NamedTuple):
    """A model in training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[], Tensor]

    def step(self) -> None:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def held(self) -> dict[str, int]:
        """Bytes between two steps; counters of AdamW, 4 bytes each, included."""
        parameters = list(self.model.parameters())
        states = [each for state in self.optimizer.state.values() for each in state.values()]
        parts = {
            "parameters": parameters,
            "gradients": [each.grad for each in parameters if each.grad is not None],
            "states": [each for each in states if isinstance(each, Tensor)],
        }
        return {name: sum(each.nbytes for each in part) for name, part in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--r", type=int, default=8, help="the adapter's rank")
    parser.add_argument("--repeats", type=int, default=15, help="turns")
    parser.add_argument("--rows", type=int, default=128, help="of the large layer's input")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    given = parser.parse_args()
    console = Console(width=130)
    torch.set_num_threads(1)
    console.print(f"{machine()}, torch {torch.__version__}; load {os.getloadavg()[0]:.1f} at the start")
    kinds = [FULL, OURS]
    if importlib.util.find_spec("peft"):
        import peft

        console.print(f"peft {peft.__version__}")
        kinds.append(PEFT)
    else:
        console.print("peft is not installed: pip install -c constraints.txt peft")
    for problem in (small_gpt(), large_layer(given.rows)):
        report(console, problem, kinds, given)
    console.print(f"load {os.getloadavg()[0]:.1f} at the end")


def report(console: Console, problem: Problem, kinds: list[str], given: argparse.Namespace) -> None:
    """A row for each kind of training."""
    seconds = timed(problem, kinds, given)
    made = table(
        problem.name,
        *("trained", "numbers", "step", "forward, backward", "held, MiB", "parameters", "gradients", "states"),
        "peak, MiB",
    )
    for kind in kinds:
        numbers, held, peak = measured(problem, kind, given)
        times = [_shown(part[kind], part[FULL], kind) for part in seconds]
        made.add_row(
            kind, f"{numbers:,}", *times, *(f"{each / MIB:.3f}" for each in (sum(held.values()), *held.values(), peak))
        )
    console.print(made)


def timed(problem: Problem, kinds: list[str], given: argparse.Namespace) -> tuple[dict[str, list[float]], ...]:
    """Seconds of whole steps, and of forward and backward alone, turn by turn."""
    trainings = {kind: training(problem, kind, given) for kind in kinds}
    whole, back = ({kind: [] for kind in kinds} for _ in range(2))
    for turn in range(given.repeats + 2):
        for kind, each in trainings.items():
            each.optimizer.zero_grad()
            start = _now(given.device)
            each.loss().backward()
            middle = _now(given.device)
            each.optimizer.step()
            if turn > 1:  # the first ones make states
                back[kind].append(middle - start)
                whole[kind].append(_now(given.device) - start)
    return whole, back


def measured(problem: Problem, kind: str, given: argparse.Namespace) -> tuple[int, dict[str, int], int]:
    """Numbers that are trained, bytes held after two steps, and the most in the third, the model included."""
    with metered() as run:
        each = training(problem, kind, given)
        for _ in range(2):
            each.step()
        gc.collect()
        held, begin = each.held(), len(run.trace)
        each.step()
    numbers = sum(one.numel() for one in each.model.parameters() if one.requires_grad)
    return numbers, held, max(op.live for op in run.trace[begin:])


def training(problem: Problem, kind: str, given: argparse.Namespace) -> Training:
    """A model of its own. Adapters of both kinds hold the same numbers."""
    model, alpha = problem.build(given.device), 2.0 * given.r
    if kind == PEFT:
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=given.r, lora_alpha=alpha, target_modules=problem.pattern)
        model = get_peft_model(model, config)
    elif kind == OURS:
        inject(model, problem.pattern, given.r, alpha, torch.Generator().manual_seed(0))
    trained = [each for each in model.parameters() if each.requires_grad]
    return Training(model, torch.optim.AdamW(trained, lr=1e-4), problem.loss(model, given.device))


# --- problems ------------------------------------------------------------------------------------------


def small_gpt() -> Problem:
    """With weights at random: neither time nor bytes depend on them."""

    def build(device: torch.device) -> nn.Module:
        return GPT(CONFIG, torch.Generator().manual_seed(0)).to(device)

    def loss(model: nn.Module, device: torch.device) -> Callable[[], Tensor]:
        rng = torch.Generator().manual_seed(1)
        text = torch.randint(CONFIG.vocabulary, (BATCH, CONFIG.context + 1), generator=rng).to(device)
        return lambda: next_token_loss(model(text[:, :-1]), text[:, 1:])

    return Problem(f"the small GPT, {BATCH} x {CONFIG.context} tokens", build, loss, LAYERS)


def large_layer(rows: int) -> Problem:
    """The sum of squares of y = x W'."""

    def build(device: torch.device) -> nn.Module:
        return nn.Sequential(nn.Linear(SIDE, SIDE, bias=False, device=device))

    def loss(model: nn.Module, device: torch.device) -> Callable[[], Tensor]:
        x = torch.randn(rows, SIDE, generator=torch.Generator().manual_seed(1)).to(device)

        def of_batch() -> Tensor:
            squares: Tensor = model(x.detach().requires_grad_()).square().mean()
            return squares

        return of_batch

    return Problem(f"one layer of {SIDE:,} x {SIDE:,}, {rows} rows", build, loss, "0")


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def _shown(seconds: list[float], beside: list[float], kind: str) -> Any:
    if kind == FULL:
        return f"{1e3 * statistics.median(seconds):.1f} ms"
    return f"{statistics.median(a / b for a, b in zip(seconds, beside, strict=True)):.2f}"


if __name__ == "__main__":
    main()
