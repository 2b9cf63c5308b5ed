"""Right and wrong ways to write `choose_bits`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.choose_bits import choose_bits

Layers = Sequence[tuple[Tensor, Tensor, Tensor]]
Plan = tuple[int, int]


def a_table(layers: Layers, budget: int) -> list[Plan]:
    """NumPy: a table of the least error at each size that sums can have."""
    sizes: list[Any] = []
    errors: list[Any] = []
    plans: list[Any] = []
    for w, x, g in layers:
        W, X, G = (each.double().numpy() for each in (w, x, g))
        m, n = W.shape
        plans.append([(bits, group) for bits in (2, 3, 4, 6, 8) for group in (8, n)])
        sizes.append([m * n * bits + 16 * m * int(np.ceil(n / group)) for bits, group in plans[-1]])
        errors.append([])
        for bits, group in plans[-1]:
            starts = np.arange(0, n, group)
            step = np.maximum.reduceat(np.abs(W), starts, axis=1).repeat(np.diff([*starts, n]), axis=1)
            step = np.where(step > 0, step / (2 ** (bits - 1) - 1), 1.0)
            lost = W - np.rint(W / step) * step
            errors[-1].append(np.mean(np.einsum("ti,ij,tj->t", G, lost, X, optimize=True) ** 2))
    unit = int(np.gcd.reduce(np.concatenate(sizes)))
    budget, sizes = budget // unit, [[each // unit for each in size] for size in sizes]
    least, chosen = np.zeros(budget + 1), []
    for size, error in zip(sizes, errors, strict=True):
        ways = np.full((len(size), budget + 1), np.inf)
        for k, (bits, more) in enumerate(zip(size, error, strict=True)):
            if bits <= budget:
                ways[k, bits:] = least[: budget + 1 - bits] + more
        least = ways.min(axis=0)
        chosen.append(ways.argmin(axis=0))
    found, room = [], budget
    for of, size, best in zip(reversed(plans), reversed(sizes), reversed(chosen), strict=True):
        found.append(of[best[room]])
        room -= size[best[room]]
    return found[::-1]


def for_all_that_follow(layers: Layers, budget: int) -> list[Plan]:
    """Each layer tries its plans, and asks what those after it make of the rest."""
    offers: list[list[tuple[int, float, Plan]]] = []
    for w, x, g in layers:
        (m, n), mine = w.shape, []
        for group in (8, n):
            whole = -(-n // group) * group
            parts = torch.nn.functional.pad(w, (0, whole - n)).reshape(m, -1, group)
            for bits in (2, 3, 4, 6, 8):
                step = parts.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
                near = torch.nan_to_num(torch.round(parts / step) * step).flatten(1)[:, :n]
                error = torch.einsum("ti,ti->t", torch.nn.functional.linear(x, w - near), g).pow(2).mean().item()
                mine.append((m * n * bits + 16 * m * whole // group, error, (bits, group)))
        offers.append(mine)

    @cache
    def best(at: int, room: int) -> tuple[float, tuple[Plan, ...]]:
        if at == len(offers):
            return 0.0, ()
        found: list[tuple[float, tuple[Plan, ...]]] = [(float("inf"), ())]
        for size, error, plan in offers[at]:
            if size <= room:
                others, plans = best(at + 1, room - size)
                found.append((error + others, (plan, *plans)))
        return min(found)

    return [*best(0, budget)[1]]


RIGHT = (right(a_table, independent="NumPy's table over all sizes"), right(for_all_that_follow))


def the_same_for_all(layers: Layers, budget: int) -> list[Plan]:
    """The most bits that all can have."""
    for bits in (8, 6, 4, 3, 2):
        size = sum(w.numel() * bits + 16 * len(w) for w, _, _ in layers)
        if size <= budget:
            return [(bits, w.shape[1]) for w, _, _ in layers]
    return [(2, w.shape[1]) for w, _, _ in layers]


def equal_shares(layers: Layers, budget: int) -> list[Plan]:
    """As many bits of the budget for each layer's weights as it has weights."""
    total, found = sum(w.numel() for w, _, _ in layers), []
    for w, _, _ in layers:
        m, n = w.shape
        share = budget * m * n // total
        fitting = [bits for bits in (2, 3, 4, 6, 8) if m * n * bits + 16 * m <= share]
        found.append((max(fitting, default=2), n))
    return found


def one_after_another(layers: Layers, budget: int) -> list[Plan]:
    """The dearest for the first layers, of what the others leave."""
    found, room = [], budget
    for at, (w, _, _) in enumerate(layers):
        m, n = w.shape
        others = sum(each.numel() * 2 + 16 * len(each) for each, _, _ in layers[at + 1 :])
        sizes = {(bits, group): m * n * bits + 16 * m * -(-n // group) for bits in (2, 3, 4, 6, 8) for group in (8, n)}
        plan = max((size, plan) for plan, size in sizes.items() if size <= room - others)[1]
        found.append(plan)
        room -= sizes[plan]
    return found


edit = partial(edited, choose_bits)
ERROR = "float(((x @ (w - near).T) * g).sum(1).square().mean())"
SIZE = "m * (n * bits + STEP_BITS * -(-n // group))"
FITS, GROUPS = "if spent + size <= budget", "sorted({SHORT, n})"

WRONG = (
    wrong(
        "rounds_the_layers",
        "You round the layers' own weights by your plans, or let them train. They belong to the caller: only the plans "
        "are wanted.",
        edit(
            (
                "return front[-1][2]",
                "for (w, _, _), (bits, group) in zip(layers, front[-1][2], strict=True):\n"
                "        w.copy_(torch.cat([_rounded(part, bits) for part in torch.split(w, group, dim=1)], dim=1))\n"
                "    return front[-1][2]",
            )
        ),
        edit(("    for w, x, g in layers:\n", "    for w, x, g in layers:\n        w = w.requires_grad_().detach()\n")),
    ),
    wrong(
        "one_plan_for_all",
        "You give all layers the same bits. Layers differ in what a bit is worth to them.",
        the_same_for_all,
        equal_shares,
        by_chance=True,
    ),
    wrong(
        "one_after_another",
        "The first layers take what they can, and the last get what is left.",
        one_after_another,
        by_chance=True,
    ),
    wrong(
        "inputs_ignored",
        "You measure the error of the weights. An error beside a large input is worse than one beside a small one.",
        edit((ERROR, "float((w - near).square().sum())")),
        edit((ERROR, "float((w - near).square().mean())")),
        edit((ERROR, "float((g @ (w - near)).square().sum(1).mean())")),
        by_chance=True,
    ),
    wrong(
        "gradients_ignored",
        "You measure the error of the outputs. The loss hangs on some outputs more than on others: g says by how much.",
        edit((ERROR, "float((x @ (w - near).T).square().sum(1).mean())")),
        edit((ERROR, "float((x @ (w - near).T).square().mean())")),
        by_chance=True,
    ),
    wrong(
        "changes_cancel",
        "You add the changes up over tokens before you square them, so that one token's gain makes good another one's "
        "loss. The mean of their squares is judged.",
        edit((ERROR, "abs(float(((x @ (w - near).T) * g).sum(1).mean()))")),
        edit((ERROR, "float(((x @ (w - near).T) * g).sum(1).mean())")),
        edit((ERROR, "float(((x @ (w - near).T) * g).sum()) ** 2")),
        by_chance=True,
    ),
    wrong(
        "nothing_cancels",
        "You square what each output, or each weight, adds to the change of the loss, or multiply norms. The parts of "
        "a token add up or cancel: add them up before you square.",
        edit((ERROR, ERROR.replace(".sum(1).square()", ".square().sum(1)"))),
        edit((ERROR, "float((x @ (w - near).T).square().mean(0) @ g.square().mean(0))")),
        edit((ERROR, "float(((g.square().T @ x.square()) * (w - near).square()).sum()) / len(x)")),
        edit((ERROR, "float((g.norm(dim=1) * (x @ (w - near).T).norm(dim=1)).square().mean())")),
        by_chance=True,
    ),
    wrong(
        "relative_errors",
        "You divide by the size of what is rounded, or by the number of outputs. The sum of the squares themselves is "
        "judged.",
        edit((ERROR, ERROR[:-1] + " / ((x @ w.T) * g).sum(1).square().mean())")),
        edit((ERROR, ERROR.replace(".sum(1)", ".mean(1)"))),
        by_chance=True,
    ),
    wrong(
        "not_squared",
        "The squared change is judged. You take absolute values, or roots, which make large ones cheap.",
        edit((ERROR, ERROR.replace(".square()", ".abs()"))),
        edit((ERROR, f"{ERROR} ** 0.5")),
        by_chance=True,
    ),
    wrong(
        "steps_not_counted",
        "You do not count the steps: 16 bits each, m ceil(n / group) of them.",
        edit((SIZE, "m * n * bits")),
        by_chance=True,
    ),
    wrong(
        "ragged_group_not_counted",
        "A last group that is shorter has a step as well: round n / group up.",
        edit((SIZE, "m * (n * bits + STEP_BITS * (n // group))")),
        by_chance=True,
    ),
    wrong(
        "one_step_for_a_matrix",
        "You count one step for each group of columns. Each row has steps of its own.",
        edit((SIZE, "m * n * bits + STEP_BITS * -(-n // group)")),
        by_chance=True,
    ),
    wrong(
        "never_groups",
        "You never take short groups. Where a few weights are far above the others, they cost less than another bit.",
        edit((GROUPS, "[n]")),
        by_chance=True,
    ),
    wrong(
        "always_groups",
        "You always take short groups. Their steps take two bits for each weight.",
        edit(
            (GROUPS, "[SHORT]"),
            ("return front[-1][2]", "return front[-1][2] if front else [(2, w.shape[1]) for w, _, _ in layers]"),
        ),
        by_chance=True,
    ),
    wrong(
        "the_last_bit_unused",
        "A plan that takes exactly the budget fits: compare with <=.",
        edit(
            (FITS, FITS.replace("<=", "<")),
            ("return front[-1][2]", "return front[-1][2] if front else [(2, w.shape[1]) for w, _, _ in layers]"),
        ),
        by_chance=True,
    ),
    wrong(
        "a_bit_too_many",
        "Your plans may take more bits than the budget.",
        edit((FITS, FITS + " + 1")),
        edit((FITS, "")),
        by_chance=True,
    ),
    wrong(
        "asymmetric_range",
        "You round with 2**(bits - 1) for the last code. It is 2**(bits - 1) - 1: with 2 bits that makes 1 of 2.",
        edit(("(2 ** (bits - 1) - 1)", "2 ** (bits - 1)")),
        by_chance=True,
    ),
)
