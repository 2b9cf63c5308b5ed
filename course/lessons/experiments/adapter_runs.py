"""Three short programs that fine-tune a small model with adapters, each with one fault, and what their runs show.

program's name, line number, new line --mended--> text --run--> losses, what moved, and the bytes of optimizer states

The faults: adapters are frozen with the base, biases and norms are not frozen, and gradients of zeros make Adam keep
states for frozen weights. All is in float64, so that a run's last digits matter to nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from course.errors import WrongOutput
from course.lessons.adapted import Adapted
from course.lessons.experiments.programs import Programs

PROGRAMS = Programs(
    classifier="""\
def classifier(model, wrap, batches, lr):
    model.up = wrap(model.up)
    model.down = wrap(model.down)
    for p in [*model.parameters()]:
        p.requires_grad_(False)
    model.head.requires_grad_(True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses += [loss.item()]
    return losses, optimizer
""",
    matrices="""\
def matrices(model, wrap, batches, lr):
    for p in [*model.parameters()]:
        if p.dim() > 1:
            p.requires_grad_(False)
    model.up = wrap(model.up)
    model.down = wrap(model.down)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses += [loss.item()]
    return losses, optimizer
""",
    largest="""\
def largest(model, wrap, batches, lr):
    x, y = batches[0]
    (model(x) - y).square().mean().backward()
    model.requires_grad_(requires_grad=False)
    if model.up.weight.grad.norm() > model.down.weight.grad.norm():
        model.up = wrap(model.up)
    else:
        model.down = wrap(model.down)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for x, y in batches:
        optimizer.zero_grad(False)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses += [loss.item()]
    return losses, optimizer
""",
)
N, WIDTH, CLASSES = 12, 24, 3  # numbers of an input, between `up` and `down`, and of an output


class Live(Adapted):
    """An adapted layer that computes."""

    def forward(self, x: Tensor) -> Tensor:
        """The base's output, and the adapter's beside it."""
        y: Tensor = self.base(x)
        return y + self.scale * (x @ self.A.T) @ self.B.T


class Small(nn.Module):
    """up, norm, tanh, down, head."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(N, WIDTH), nn.LayerNorm(WIDTH)
        self.down, self.head = nn.Linear(WIDTH, N), nn.Linear(N, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, N) -> (batch, CLASSES)"""
        y: Tensor = self.head(self.down(self.norm(self.up(x)).tanh()))
        return y


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one run gave.

    losses   of each step
    moved    by the name of each parameter that was there before: the norm of its change over the run
    adapted  the norm of B of both layers: 0 where it never moved, or where there is no adapter
    factors  A and B of the adapters, by name
    bytes    of the optimizer's states, the most after any step
    """

    losses: list[float]
    moved: dict[str, float]
    adapted: dict[str, float]
    factors: dict[str, Tensor]
    bytes: int

    def base(self) -> float:
        """The norm of the change of all that was there before but the head."""
        return math.hypot(*(change for name, change in self.moved.items() if not name.startswith("head")))


def run(name: str, program: str = "", *, x: Tensor, y: Tensor, seed: int, r: int, lr: float) -> Log:
    """What the program gives on batches x (steps, n, N) and y (steps, n, CLASSES), float64.

    program  its text, as it stands above if left out. It is executed: it is run where its author's code is
    seed     of the model's numbers and the adapters'
    Raises WrongOutput where it returns something else than its losses and an optimizer.
    """
    rng = torch.Generator().manual_seed(seed)
    model = Small().double()
    with torch.no_grad():
        for p in [*model.parameters()]:
            p.copy_(torch.randn(p.shape, generator=rng, dtype=p.dtype) / p.shape[-1] ** 0.5)
        model.down.weight.mul_(3)  # so that the gradient of `up` is the larger one about every second time
    before = {name: (p, p.detach().clone()) for name, p in model.named_parameters()}

    def wrap(linear: nn.Linear) -> Live:
        m, n = linear.weight.shape
        a = torch.randn(r, n, generator=rng, dtype=torch.float64) / n**0.5
        return Live(linear, a, torch.zeros(m, r, dtype=torch.float64), 2.0)

    bytes_: list[int] = []
    look = register_optimizer_step_post_hook(lambda optimizer, *_: bytes_.append(_bytes(optimizer)))
    try:
        found = PROGRAMS.defined(name, program)(model, wrap, list(zip(x, y, strict=True)), lr)
    finally:
        look.remove()
    try:
        losses, optimizer = found
        losses = [float(loss) for loss in losses]
        bytes_.append(_bytes(optimizer))
    except (TypeError, ValueError, AttributeError):
        raise WrongOutput(f"{name} must return its losses and its optimizer, got {type(found).__name__}") from None
    layers = {each: getattr(model, each) for each in ("up", "down") if isinstance(getattr(model, each), Adapted)}
    return Log(
        losses=losses,
        moved={name: (p.detach() - old).norm().item() for name, (p, old) in before.items()},
        adapted={each: layer.B.detach().norm().item() for each, layer in layers.items()},
        factors={f"{each}.{f}": getattr(layer, f).detach() for each, layer in layers.items() for f in ("A", "B")},
        bytes=max(bytes_),
    )


def _bytes(optimizer: Any) -> int:
    """Of its states."""
    states = [each for state in optimizer.state.values() for each in state.values()]
    return sum(each.nbytes for each in states if isinstance(each, Tensor))


def data(rng: torch.Generator, steps: int, n: int = 16) -> dict[str, Tensor]:
    """Batches x and y of a random linear rule."""
    x = torch.randn(steps, n, N, generator=rng, dtype=torch.float64)
    rule = torch.randn(N, CLASSES, generator=rng, dtype=torch.float64) / N**0.5
    return {"x": x, "y": x @ rule}


def example(steps: int = 40) -> dict[str, Any]:
    """The inputs with which the lesson shows the programs."""
    return {**data(torch.Generator().manual_seed(0), steps), "seed": 1, "r": 2, "lr": 0.02}


def table(logs: Mapping[str, Log]) -> str:
    """A line for each run."""
    heads = f"{'':10}  first loss  last loss  change of the base  of the head   B of up  B of down  bytes of states"
    rows = [
        f"{name:10}{log.losses[0]:12.4f}{log.losses[-1]:11.4f}{log.base():20.4f}"
        f"{(log.moved['head.weight'] ** 2 + log.moved['head.bias'] ** 2) ** 0.5:13.4f}"
        f"{_norm(log, 'up'):>10}{_norm(log, 'down'):>11}{log.bytes:17,}"
        for name, log in logs.items()
    ]
    return "\n".join([heads, *rows])


def _norm(log: Log, layer: str) -> str:
    return f"{log.adapted[layer]:.4f}" if layer in log.adapted else "none"
