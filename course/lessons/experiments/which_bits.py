"""Which bits may be dropped? A GPT trained by recipes of mixed precision, one thing taken away at a time.

recipe, seed --steps--> weights --float32 forward--> held-out loss; steps skipped, weights that stood still, bytes

Weights, activations and gradients are really of the dtype named: torch's own kernels on the processor. They add the
terms of a product, a norm or a softmax in float32 and round the result. What is emulated:

sums in half    softmax, norms and loss with torch's half operators, their sums added term by term in half; their
                derivative is autograd's, whose sums are torch's
8 bits          the linear layers of the blocks: both factors are rounded to e4m3, the gradient that comes back to e5m2,
                then multiplied in float32. Attention, head and embedding stay in bfloat16

The seed draws the first weights, the batches, and the random bits of stochastic rounding. All recipes have one rate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.progress import track
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adamw import adamw

from course.errors import BadArgument
from course.lessons.experiments import functional_gpt, recording
from course.lessons.experiments.eight_bits import rounded
from course.lessons.experiments.half_stand_ins import LossScaler, stochastic_round
from course.lessons.experiments.problems import Problem, gpt_problem
from course.lessons.experiments.stand_ins import warmup_cosine
from course.lessons.models import next_token_loss

NAME = "which_bits"
SEEDS = (0, 1, 2)
STEPS, POINTS = 500, 20  # of a run; of a curve
PEAK, HIGH_PEAK = 0.001, 0.02  # the highest rate of all recipes; that of AT_HIGH_PEAK once more
SHRINK = 2**10  # from 512 tokens in a batch to 2^19
ADAMW: dict[str, Any] = {  # torch.optim.AdamW's
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.01,
    "amsgrad": False,
    "maximize": False,
    "foreach": False,
}
GROWTH = 200  # good steps until the loss scale is doubled


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is kept in which precision.

    low        dtype of the weights that the forward pass reads, of activations and of gradients
    master     whether a float32 copy takes the updates
    scaled     whether the loss is scaled
    sums       dtype in which softmax, norms and loss are computed
    moments    dtype of AdamW's two averages between steps
    stochastic whether updates without a master copy are rounded stochastically; else to nearest
    eight      None; or for products in 8 bits, whether each tensor is scaled to its format's range
    shrink     what gradients are divided by on their way, and multiplied by at its end in float32. The loss is a mean:
               in a batch of 1,024 times the tokens, the gradient that comes from one token is 1,024 times smaller
    """

    low: torch.dtype
    master: bool = True
    scaled: bool = False
    sums: torch.dtype = torch.float32
    moments: torch.dtype = torch.float32
    stochastic: bool = False
    eight: bool | None = None
    shrink: int = 1


_FP16, _BF16, _FP32 = torch.float16, torch.bfloat16, torch.float32
RECIPES: dict[str, Recipe] = {
    "fp32": Recipe(low=_FP32, master=False),
    "fp16": Recipe(low=_FP16, scaled=True),
    "fp16, no loss scale": Recipe(low=_FP16),
    "fp16, no master copy": Recipe(low=_FP16, scaled=True, master=False),
    "fp16, sums in fp16": Recipe(low=_FP16, scaled=True, sums=_FP16),
    "fp16, moments in fp16": Recipe(low=_FP16, scaled=True, moments=_FP16),
    "bf16": Recipe(low=_BF16),
    "bf16, no master copy": Recipe(low=_BF16, master=False),
    "bf16, stochastic": Recipe(low=_BF16, master=False, stochastic=True),
    "bf16, sums in bf16": Recipe(low=_BF16, sums=_BF16),
    "bf16, moments in bf16": Recipe(low=_BF16, moments=_BF16),
    "fp8": Recipe(low=_BF16, eight=True),
    "fp8, no scales": Recipe(low=_BF16, eight=False),
    "fp16, shrunk": Recipe(low=_FP16, scaled=True, shrink=SHRINK),
    "fp16, shrunk, no loss scale": Recipe(low=_FP16, shrink=SHRINK),
    "bf16, shrunk": Recipe(low=_BF16, shrink=SHRINK),
    "fp8, shrunk": Recipe(low=_BF16, eight=True, shrink=SHRINK),
    "fp8, shrunk, no scales": Recipe(low=_BF16, eight=False, shrink=SHRINK),
}
AT_HIGH_PEAK = ("fp32", "bf16", "bf16, no master copy", "bf16, stochastic")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recipe, a value for each seed; None where a loss is not finite."""

    recipe: str
    peak: float
    losses: list[float | None]  # held out, in nats above the least
    skipped: list[int]  # steps
    still: list[float]  # the share of weights that an update left as they were, in the mean of the last tenth
    zeros: list[float]  # the share of gradients that were 0, likewise
    state_bytes: float  # per parameter: weights, gradients, master copy, moments
    curve: list[float | None]  # held-out loss in nats at the points of `at`, mean of the seeds

    @property
    def mean(self) -> float:
        """Of the losses; inf where one is not finite."""
        return statistics.mean(math.inf if loss is None else loss for loss in self.losses)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All rows; `least` is the loss of a perfect model in nats, `at` the steps at which a curve has its points."""

    least: float
    parameters: int
    steps: int
    at: list[int]
    rows: list[Row]

    def row(self, recipe: str, peak: float = PEAK) -> Row:
        """The row of this recipe at this rate. Raises BadArgument if there is none."""
        for each in self.rows:
            if (each.recipe, each.peak) == (recipe, peak):
                return each
        raise BadArgument(f"the table must have the row, got {recipe!r} at {peak}")


def measure(
    steps: int = STEPS,
    seeds: Sequence[int] = SEEDS,
    names: Sequence[str] = tuple(RECIPES),
    high: Sequence[str] = AT_HIGH_PEAK,
    points: int = POINTS,
) -> Measured:
    """The recipes `names` at the rate PEAK, those of `high` at HIGH_PEAK. As it stands: some 6 minutes on one core."""
    problem = gpt_problem(steps)
    places = [*((name, PEAK) for name in names), *((name, HIGH_PEAK) for name in high)]
    runs = {
        (name, peak): [train(problem, RECIPES[name], seed=seed, peak=peak, points=points) for seed in seeds]
        for name, peak in track(places, description=NAME)
    }
    first = runs[places[0]][0]
    return Measured(
        least=problem.least,
        parameters=first.parameters,
        steps=steps,
        at=list(first.curve),
        rows=[_row(*place, found, problem.least) for place, found in runs.items()],
    )


def _row(name: str, peak: float, runs: Sequence[Trained], least: float) -> Row:
    curves = zip(*(run.curve.values() for run in runs), strict=True)
    return Row(
        recipe=name,
        peak=peak,
        losses=[_finite(run.loss - least) for run in runs],
        skipped=[run.skipped for run in runs],
        still=[round(run.still, 4) for run in runs],
        zeros=[round(run.zeros, 4) for run in runs],
        state_bytes=runs[0].state_bytes,
        curve=[_finite(statistics.mean(losses)) for losses in curves],
    )


def _finite(loss: float) -> float | None:
    return round(loss, 5) if math.isfinite(loss) else None


# --- one run ------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Trained:
    """What came of one run."""

    parameters: int
    state_bytes: float
    skipped: int = 0
    still: float = 1.0  # where no step was taken
    zeros: float = 0.0
    curve: dict[int, float] = field(default_factory=dict)  # held-out loss in nats by step

    @property
    def loss(self) -> float:
        """Held out, in nats, at the end."""
        return self.curve[max(self.curve)]


def train(problem: Problem, recipe: Recipe, *, seed: int, points: int = POINTS, peak: float = PEAK) -> Trained:
    """One run of `problem.steps` steps; float32 arithmetic judges the weights that the recipe's forward reads."""
    rng = torch.Generator().manual_seed(seed)
    start = functional_gpt.weights_of(problem.model(rng))
    shapes = {name: each.shape for name, each in start.items()}
    run, scaler = runner(recipe), LossScaler(growth_interval=GROWTH) if recipe.scaled else None
    flat = torch.cat([each.flatten() for each in start.values()])
    low = flat.to(recipe.low).requires_grad_()  # all weights in one tensor: an update is one operation
    states = States(recipe, flat, torch.Generator().manual_seed(1000 + seed))
    grad_bytes = low.element_size()
    result = Trained(parameters=low.numel(), state_bytes=(low.element_size() + grad_bytes + states.bytes / low.numel()))
    still, zeros = [], []
    for step in range(problem.steps):
        inputs, targets = problem.batch(rng)
        loss = run(loss_of, functional_gpt.logits(parted(low, shapes), inputs, run), targets)
        loss = loss / recipe.shrink
        (grad,) = torch.autograd.grad(scaler.scale(loss) if scaler else loss, low)
        lr = warmup_cosine(step + 1, peak=peak, warmup=max(1, problem.steps // 10), total=problem.steps + 1)
        share = update(low, grad.float(), states, lr, scaler)
        result.skipped += share is None
        if share is not None and step >= problem.steps * 9 // 10:
            still.append(share)
            zeros.append(float((grad == 0).double().mean()))
        if (step + 1) % (problem.steps // points) == 0:
            result.curve[step + 1] = held_out(low, shapes, problem)
    if still:
        result.still, result.zeros = statistics.mean(still), statistics.mean(zeros)
    return result


def parted(flat: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """The weights by name, as views of one tensor."""
    parts = torch.split(flat, [shape.numel() for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


@torch.no_grad()
def held_out(low: Tensor, shapes: dict[str, torch.Size], problem: Problem) -> float:
    """The loss in nats of these weights in float32 arithmetic; inf where it is not finite."""
    found = functional_gpt.logits(parted(low.float(), shapes), problem.judged[0])
    loss = float(next_token_loss(found, problem.judged[1]))
    return loss if math.isfinite(loss) else math.inf


class States:
    """What a recipe keeps besides weights and gradients: a master copy perhaps, and AdamW's moments."""

    def __init__(self, recipe: Recipe, start: Tensor, rng: torch.Generator) -> None:
        self.recipe, self.rng = recipe, rng
        self.master = start.clone() if recipe.master else None
        self.moments: list[Tensor] = [torch.zeros_like(start, dtype=recipe.moments) for _ in "mv"]
        self.age = torch.zeros(())

    @property
    def bytes(self) -> int:
        """Of master copy and moments."""
        kept = [*self.moments, *([] if self.master is None else [self.master])]
        return sum(each.numel() * each.element_size() for each in kept)


@torch.no_grad()
def update(low: Tensor, grad: Tensor, states: States, lr: float, scaler: LossScaler | None) -> float | None:
    """AdamW's step in float32, in place; returns the share of weights that it left as they were, None if skipped."""
    if scaler is not None:
        scaler.unscale_([grad])
        taken = scaler.step(lambda: None)
        scaler.update()
        if not taken:
            return None
    before = low.detach().float().clone() if states.master is None else states.master.clone()
    after = before.clone() if states.master is None else states.master
    m, v = (each.float() for each in states.moments)
    grad = grad * states.recipe.shrink
    adamw([after], [grad], [m], [v], [], [states.age], lr=lr, **ADAMW)
    for place, moment in zip(states.moments, (m, v), strict=True):
        place.copy_(moment)
    if states.recipe.stochastic:
        u = torch.rand(after.shape, generator=states.rng)
        low.copy_(stochastic_round(after, u))
    else:
        low.copy_(after)
    moved = after if states.master is not None else low.float()
    return float((moved == before).double().mean())


# --- operators ----------------------------------------------------------------------------------------


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss in nats."""
    return next_token_loss(logits, targets)


def runner(recipe: Recipe) -> Callable[..., Tensor]:
    """What does each operator of `functional_gpt.logits` in the recipe's precision."""
    half_sums: dict[Callable[..., Any], Callable[..., Tensor]] = {
        F.softmax: softmax_in_half,
        F.layer_norm: norm_in_half,
        loss_of: loss_in_half,
    }

    def run(op: Callable[..., Tensor], *args: Any) -> Tensor:
        if op in half_sums:
            if recipe.sums != torch.float32:
                return half_sums[op](*args)
            found = op(
                *(each.float() if isinstance(each, Tensor) and each.is_floating_point() else each for each in args)
            )
            return found if op is loss_of else found.to(recipe.low)
        if op is F.linear and recipe.eight is not None and len(args) == 3:  # the head has no bias
            x, weight, bias = args
            product: Tensor = EightBits.apply(x.flatten(0, -2), weight, recipe.eight)  # type: ignore[no-untyped-call]
            product = product.view(*x.shape[:-1], -1) + bias
            return product
        return op(*args)

    return run


def added_in_half(x: Tensor) -> Tensor:
    """The sum over the last dimension, kept 1 long, term after term, each partial sum rounded to x's dtype."""
    total: Tensor = _AddedInHalf.apply(x)  # type: ignore[no-untyped-call]
    return total


class _AddedInHalf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        terms = x.movedim(-1, 0).contiguous()
        total = terms[0].clone()
        for term in terms[1:]:
            total += term
        return total.unsqueeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.expand(ctx.shape)


def softmax_in_half(x: Tensor, _: int) -> Tensor:
    """Over the last dimension."""
    e = (x - x.detach().amax(-1, keepdim=True)).exp()
    return e / added_in_half(e)


def norm_in_half(x: Tensor, shape: Sequence[int], weight: Tensor, bias: Tensor) -> Tensor:
    """Layer normalisation over the last dimension, with torch's eps."""
    centred = x - added_in_half(x) / shape[0]
    variance = added_in_half(centred * centred) / shape[0]
    return centred / (variance + 1e-5).sqrt() * weight + bias  # rsqrt's derivative would overflow in float16


def loss_in_half(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy, (), in the dtype of the logits."""
    logits = logits.flatten(0, -2)
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    logs = shifted - added_in_half(shifted.exp()).log()
    chosen = logs.gather(1, targets.reshape(-1, 1))
    return -added_in_half(chosen.view(1, -1)).view(()) / len(chosen)


class EightBits(torch.autograd.Function):
    """x (n, k), weight (m, k) to x weight^T: values rounded to e4m3, the gradient that comes back to e5m2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scaled: bool) -> Tensor:
        q_x, q_weight = (in_eight(each, torch.float8_e4m3fn, scaled=scaled) for each in (x, weight))
        ctx.save_for_backward(q_x, q_weight)
        ctx.scaled = scaled
        return (q_x @ q_weight.T).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q_x, q_weight = ctx.saved_tensors
        q_grad = in_eight(grad, torch.float8_e5m2, scaled=ctx.scaled)
        return (q_grad @ q_weight).to(grad.dtype), (q_grad.T @ q_x).to(grad.dtype), None


def in_eight(x: Tensor, dtype: torch.dtype, *, scaled: bool) -> Tensor:
    """x rounded to an 8-bit dtype, as float32; scaled: its largest magnitude becomes the dtype's largest value."""
    x, largest = x.float(), torch.finfo(dtype).max
    scale = (x.abs().amax() / largest).clamp(min=torch.finfo(torch.float32).tiny) if scaled else torch.ones(())
    return rounded(x, scale, dtype)


# --- what is shown --------------------------------------------------------------------------------------


def table(measured: Measured, names: Sequence[str] = tuple(RECIPES), peak: float = PEAK) -> str:
    """A line for each recipe: the held-out loss above the least, mean and range of the seeds."""
    lines = [f"{'':28} {'above':>7} {'from':>7} {'to':>7} {'skipped':>8} {'0 in w. grad':>14} {'bytes/parameter':>16}"]
    for row in (measured.row(name, peak) for name in names):
        losses = [math.inf if loss is None else loss for loss in row.losses]
        numbers = f"{row.mean:7.4f} {min(losses):7.4f} {max(losses):7.4f} {statistics.mean(row.skipped):8.1f}"
        lines.append(f"{row.recipe:28} {numbers} {statistics.mean(row.zeros):14.1%} {row.state_bytes:16.0f}")
    return "\n".join(lines)


def recorded() -> recording.Recording[Measured]:
    """The full run, from the package."""
    return recording.load(NAME, Measured)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(recording.record(NAME, measure))
    print(table(recorded().data))
