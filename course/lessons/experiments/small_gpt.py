"""The small GPT: trained once on the northern dialect, shipped with the course, fine-tuned and quantized in lessons.

northern text --AdamW, warm-up and cosine--> weights --half precision--> data/small_gpt.safetensors --load--> GPT

`python -m course.lessons.experiments.small_gpt` makes the file anew. On another processor the last digits differ, and
so in the end do the weights; the loss does not.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import torch
from rich.progress import track
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from course.errors import CourseError
from course.lessons import floor, grammar
from course.lessons.experiments import recording
from course.lessons.models import GPT, GPTConfig, next_token_loss

FILE = Path(__file__).parents[1] / "data" / "small_gpt.safetensors"
CONTEXT = 64
CONFIG = GPTConfig(vocabulary=len(grammar.ALPHABET), context=CONTEXT, width=64, heads=4, layers=4)
STEPS, BATCH, RATE, WARMUP = 3_000, 32, 3e-3, 200
CHARACTERS = 2_000_000  # of northern text to train on
JUDGED = 256  # windows of another text


def small_gpt() -> GPT:
    """The trained GPT, in float32 and in training mode, as its file has it; a new one at each call.

    205,952 parameters in 410 kB, at half precision. Raises CourseError if the file is damaged.
    """
    model = GPT(CONFIG, torch.Generator().manual_seed(0))
    try:
        with safe_open(FILE, "pt") as file:
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        model.load_state_dict(weights | {"head.weight": weights["token_embedding.weight"]})
    except (OSError, SafetensorError, RuntimeError, KeyError) as error:
        raise CourseError(f"{FILE.name} must be the small GPT, got {error}: install the package again") from error
    return model


def about() -> dict[str, object]:
    """How the file was made: steps, loss in nats per character at the end and the floor under it, seconds, machine."""
    with safe_open(FILE, "pt") as file:
        made: dict[str, object] = json.loads(file.metadata()["about"])
    return made


def judged(dialect: grammar.Dialect, count: int = JUDGED, seed: int = 1_000) -> tuple[Tensor, Tensor]:
    """Inputs and targets int64 (count, 64) of a text that no training saw: its seed is another."""
    rng = torch.Generator().manual_seed(seed)
    return grammar.batch(grammar.encode(grammar.text(dialect, 100_000, rng)), count, CONTEXT, rng)


@torch.no_grad()
def loss_on(model: GPT, windows: tuple[Tensor, Tensor]) -> float:
    """Mean loss in nats per character."""
    inputs, targets = windows
    return next_token_loss(model(inputs), targets).item()


def _rate(step: int) -> float:
    """Warm-up, then a cosine to a hundredth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.01 + 0.99 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2


def train() -> GPT:
    """The GPT from its first weights to its last."""
    rng = torch.Generator().manual_seed(0)
    tokens = grammar.encode(grammar.text(grammar.NORTH, CHARACTERS, rng))
    model = GPT(CONFIG, rng)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01, foreach=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate)
    for _ in track(range(STEPS), description="training"):
        inputs, targets = grammar.batch(tokens, BATCH, CONTEXT, rng)
        torch.autograd.backward(next_token_loss(model(inputs), targets))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model


def main() -> None:
    """Trains the model and writes its file."""
    import time

    begin = time.process_time()
    model = train()
    windows = judged(grammar.NORTH)
    made = {
        "config": asdict(CONFIG),
        "steps": STEPS,
        "loss": loss_on(model, windows),
        "floor": floor.perfect_loss(grammar.NORTH, windows[1]),
        "seconds": round(time.process_time() - begin, 1),
        "machine": recording.machine(),
        "torch": torch.__version__,
    }
    weights = {name: each.detach().half() for name, each in model.named_parameters()}
    save_file(weights, FILE, {"about": json.dumps(made)})
    print(made)


if __name__ == "__main__":
    main()
