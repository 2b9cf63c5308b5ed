"""What does each term in Adam buy? Adam with one term taken away at a time, each form at the rate that suits it best.

form, schedule: seeds 0, 1 --grid of rates, extended until the least loss is inside--> rate --seeds 2 to 6--> losses

Terms   the digits of `problems`, 300 steps; judged by the loss on all 1,500 that they are trained on.
Decay   400 digits, a fifth of them with a label drawn anew, 60 epochs, so that learning by heart does harm. Each rate
        has a decay of its own, both are chosen on 297 held-out digits, and judged by the loss on 1,100 others.

The seed draws the first weights and the batches, the same for every form. Everything but rate and decay stands at
torch's defaults.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from rich.progress import track
from torch import nn

from course.lessons.data import digits_split
from course.lessons.experiments import recording
from course.lessons.experiments.batch_rates import EPOCHS, EXAMPLES, noisy_split
from course.lessons.experiments.problems import Batch, Problem, digits_problem
from course.lessons.experiments.terms import DECAYS, FORMS, loss_on, right_on, train

NAME = "ablation"
CHOOSING, JUDGING, LIVE = (0, 1), (2, 3, 4, 5, 6), (7, 8, 9)  # seeds
FACTOR, DECAY_FACTOR = 10**0.25, 10**0.5  # from one rate to the next, and from one decay to the next
STEPS = 300
WIDEST = 25  # values in a grid, after which it is extended no more
BATCH = 32  # of the digits with wrong labels
TUNED = ("constant", "warm-up, descent")  # the schedules
OF_TASK = {"terms": FORMS, "decay": DECAYS}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One form under one schedule; losses in nats, of the seeds in JUDGING."""

    task: str
    form: str
    schedule: str
    rate: float
    decay: float
    tried: dict[str, float | None]  # the mean loss of the seeds in CHOOSING by rate; None where one burst
    decays: dict[str, float]  # the best decay for each of these rates
    losses: list[float]
    right: list[float]  # the share of right answers on the digits that judge

    @property
    def mean(self) -> float:
        """Of the losses."""
        return statistics.mean(self.losses)

    def spread(self, form: str = ".4f", word: str = "to") -> str:
        """The least and the greatest loss: `0.0018 to 0.0048`."""
        return f"{min(self.losses):{form}} {word} {max(self.losses):{form}}"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rows of both tasks."""

    rows: list[Row]

    def of(self, task: str, schedule: str) -> dict[str, Row]:
        """The rows of this task and schedule, by form."""
        return {row.form: row for row in self.rows if (row.task, row.schedule) == (task, schedule)}


def tasks(steps: int = STEPS, epochs: int = EPOCHS) -> dict[str, tuple[Problem, Batch]]:
    """By name: a problem, and the digits on which rate and decay are chosen."""
    clean = digits_problem(steps)
    (images, labels), others = noisy_split()
    _, test = digits_split()

    def batch(rng: torch.Generator) -> Batch:
        index = torch.randint(EXAMPLES, (BATCH,), generator=rng)
        return images[index], labels[index]

    noisy = replace(clean, steps=epochs * EXAMPLES // BATCH, batch=batch, judged=(others.images, others.labels))
    return {"terms": (clean, clean.judged), "decay": (noisy, (test.images, test.labels))}


def measure(steps: int = STEPS, epochs: int = EPOCHS, *, reach: int = 3) -> Measured:
    """Both tasks, all forms, both schedules. As it stands: about 3 minutes on one core."""
    found = tasks(steps, epochs)
    triples = [(task, name, schedule) for task in found for schedule in TUNED for name in OF_TASK[task]]
    rows = [_row((task, name, schedule), *found[task], reach) for task, name, schedule in track(triples, NAME)]
    return Measured(rows=rows)


def _row(place: tuple[str, str, str], problem: Problem, choosing: Batch, reach: int) -> Row:
    """Chooses a rate, and a decay where the form has one, then trains with the seeds that judge."""
    task, name, schedule = place
    form = OF_TASK[task][name]
    decays: dict[float, float] = {}

    def loss(rate: float, decay: float) -> float:
        runs = (train(problem, form, schedule, rate, seed=seed, decay=decay) for seed in CHOOSING)
        return statistics.mean(loss_on(model, choosing) for model in runs)

    def least(rate: float) -> float:
        found = search(lambda decay: loss(rate, decay), form.decay, 1, DECAY_FACTOR) if form.decay else {}
        decays[rate] = min(found, key=found.__getitem__) if found else 0.0
        return found[decays[rate]] if found else loss(rate, 0.0)

    tried = search(least, form.middle, reach, FACTOR)
    rate = min(tried, key=tried.__getitem__)
    models = [train(problem, form, schedule, rate, seed=seed, decay=decays[rate]) for seed in JUDGING]
    return Row(
        task=task,
        form=name,
        schedule=schedule,
        rate=float(f"{rate:.3g}"),
        decay=float(f"{decays[rate]:.3g}"),
        tried={f"{each:.3g}": round(loss, 5) if math.isfinite(loss) else None for each, loss in tried.items()},
        decays={f"{each:.3g}": float(f"{decays[each]:.3g}") for each in tried},
        losses=_losses(models, problem),
        right=_right(models, problem),
    )


def _losses(models: Sequence[nn.Module], problem: Problem) -> list[float]:
    return [round(loss_on(model, problem.judged), 5) for model in models]


def _right(models: Sequence[nn.Module], problem: Problem) -> list[float]:
    return [round(right_on(model, problem.judged), 4) for model in models]


def search(loss: Callable[[float], float], middle: float, reach: int, factor: float) -> dict[float, float]:
    """The loss at `reach` values on either side of `middle`, and beyond an end for as long as the least is there."""
    tried = {power: loss(middle * factor**power) for power in range(-reach, reach + 1)}
    while len(tried) < WIDEST:
        best, low, high = min(tried, key=tried.__getitem__), min(tried), max(tried)
        if low < best < high:
            break
        power = high + 1 if best == high else low - 1
        tried[power] = loss(middle * factor**power)
    return {middle * factor**power: tried[power] for power in sorted(tried)}


def live(measured: Measured) -> Measured:
    """The forms of FORMS at their recorded rates, with three seeds by which nothing was chosen: 4 seconds."""
    problem, _ = tasks()["terms"]
    rows = []
    for row in track([row for row in measured.rows if row.task == "terms"], "three new seeds"):
        models = [train(problem, FORMS[row.form], row.schedule, row.rate, seed=seed) for seed in LIVE]
        rows.append(replace(row, losses=_losses(models, problem), right=_right(models, problem)))
    return Measured(rows=rows)


def table(measured: Measured, task: str) -> str:
    """A block for each schedule, a line for each form: mean loss and range, and the mean share of right answers."""
    lines = []
    for schedule in TUNED:
        lines.append(f"{schedule:16} {'loss':>7} {'from':>7} {'to':>7} {'correct':>7} {'rate':>9} {'decay':>9}")
        for row in measured.of(task, schedule).values():
            right = statistics.mean(row.right)
            low, high = min(row.losses), max(row.losses)
            numbers = f"{row.mean:7.4f} {low:7.4f} {high:7.4f} {right:7.1%} {row.rate:9.3g} {row.decay:9.3g}"
            lines.append(f"{row.form:16} {numbers}")
    return "\n".join(lines)


def tenfold(row: Row) -> float:
    """The loss that chose, at ten times the best rate, with the best decay there; inf where a run burst."""
    losses = {float(rate): loss for rate, loss in row.tried.items()}
    loss = losses[min(losses, key=lambda rate: abs(math.log(rate / row.rate / 10)))]
    return math.inf if loss is None else loss


def decay_ratio(around: Row, through: Row) -> int:
    """The best decays of one form over those of the other, at rates above the best one: the nearest power of 10."""
    ratios = [decay / through.decays[rate] for rate, decay in around.decays.items() if float(rate) > around.rate]
    return int(10 ** round(math.log10(statistics.median(ratios))))


def recorded() -> recording.Recording[Measured]:
    """The full run, from the package."""
    return recording.load(NAME, Measured)


if __name__ == "__main__":
    print(recording.record(NAME, measure))
