"""Right and wrong ways to write `adam8_step`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.dynamic_code import SIGNED, UNSIGNED
from course.reference.quantization.adam8_step import adam8_step

TABLES = {"m": SIGNED.double().numpy(), "v": UNSIGNED.double().numpy()}


def by_numpy(
    param: Tensor,
    grad: Tensor,
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    block: int = 256,
) -> None:
    """NumPy's float64, a block after the other, all 256 distances of each number."""
    g = grad.detach().double().numpy().reshape(-1)
    t = state.get("step", 0) + 1
    state["step"] = t
    moments = {}
    for name, beta, new in (("m", betas[0], g), ("v", betas[1], g * g)):
        old = np.zeros_like(g)
        if name in state:
            codes, scales = (each.numpy() for each in state[name])
            old = TABLES[name][codes] * np.repeat(scales.astype(np.float64), block)[: g.size]
        moments[name] = beta * old + (1 - beta) * new
        parts = [moments[name][start : start + block] for start in range(0, g.size, block)]
        sizes = [np.abs(part).max() for part in parts]
        found = [np.abs(TABLES[name][:, None] * (s or 1.0) - p).argmin(0) for s, p in zip(sizes, parts, strict=True)]
        state[name] = (torch.from_numpy(np.concatenate(found).astype(np.uint8)), torch.tensor(sizes).float())
    step = moments["m"] / (1 - betas[0] ** t) / (np.sqrt(moments["v"] / (1 - betas[1] ** t)) + eps)
    with torch.no_grad():
        param.copy_(param * (1 - lr * weight_decay) - lr * torch.from_numpy(step).reshape(param.shape))


def with_lists(
    param: Tensor,
    grad: Tensor,
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    block: int = 256,
) -> None:
    """A list of blocks for each moment; the corrections as in torch.optim."""
    flat = grad.detach().reshape(-1)
    t = state.setdefault("step", 0) + 1
    made = []
    for name, table, beta, new in (("m", SIGNED, betas[0], flat), ("v", UNSIGNED, betas[1], flat * flat)):
        now = new * (1 - beta)
        if t > 1:
            codes, scales = state[name]
            old = [table[c.long()] * s for c, s in zip(torch.split(codes, block), scales, strict=True)]
            now = now + beta * torch.cat(old)
        made.append(now)
        pieces = torch.split(now, block)
        sizes = torch.stack([piece.abs().max() for piece in pieces])
        edges = (table[:-1] + table[1:]) / 2
        kept = [
            torch.searchsorted(edges, piece / size.clamp(min=1e-38)) for piece, size in zip(pieces, sizes, strict=True)
        ]
        state[name] = (torch.cat(kept).byte(), sizes)
    state["step"] = t
    m, v = made
    denominator = v.sqrt() / (1 - betas[1] ** t) ** 0.5 + eps
    moved = m / denominator * (lr / (1 - betas[0] ** t))
    param.data.copy_(param.data * (1 - lr * weight_decay) - moved.reshape(param.shape))


RIGHT = (right(by_numpy, independent="numpy's argmin over 256 distances"), right(with_lists))

adam = partial(edited, adam8_step)
PUT = 'state["m"], state["v"] = _coded(m, SIGNED, block), _coded(v, UNSIGNED, block)'
M_HAT = "m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)"
SCALES = "scales = blocks.abs().amax(1)"
UNITS = "units = blocks / torch.where(scales > 0, scales, 1.0)[:, None]"
CODES = "codes = torch.bucketize(units, (values[1:] + values[:-1]) / 2)"
V = 'v = beta2 * _taken(state, "v", UNSIGNED, block, g) + (1 - beta2) * g.square()'
TAKEN = "numbers: Tensor = values[codes.int()] * scales.repeat_interleave(block)[: len(like)]"
ROUNDED = 'm, v = _taken(state, "m", SIGNED, block, g), _taken(state, "v", UNSIGNED, block, g)'
DECAY = "param.mul_(1 - lr * weight_decay)"
STEP = "param.sub_((lr * m_hat / (v_hat.sqrt() + eps)).reshape(param.shape))"
OUT = "codes.flatten()[: len(numbers)].to(torch.uint8), scales"

WRONG = (
    wrong(
        "a_leaf_in_place",
        "Autograd forbids to change in place a parameter that requires a gradient: torch.no_grad().",
        adam(("@torch.no_grad()\n", "")),
    ),
    wrong(
        "small_scales_raised",
        "You raise small scales for the division. v of small gradients is smaller than any bound of yours: put "
        "something else in the place of 0 alone.",
        adam(("torch.where(scales > 0, scales, 1.0)[:, None]", "scales.clamp(min=1e-12)[:, None]")),
        adam(("torch.where(scales > 0, scales, 1.0)[:, None]", "scales.clamp(min=1e-30)[:, None]")),
        by_chance=True,  # how far it is from AdamW after 200 steps
    ),
    wrong(
        "linear_code",
        "Your codes are evenly spaced. All of v that is below 1/512 of its block's largest number becomes 0, and a "
        "step is m / eps there. Use the values that are handed out.",
        adam(
            (CODES, "codes = ((units - values[0]) / (values[-1] - values[0]) * 255).round()"),
            (TAKEN, "values = values[0] + (values[-1] - values[0]) * torch.arange(256) / 255\n    " + TAKEN),
        ),
    ),
    wrong(
        "one_scale",
        "All blocks have one scale. A block of smaller numbers then has few values, as if there were no blocks.",
        adam((SCALES, "scales = blocks.abs().amax().expand(len(blocks)).clone()")),
    ),
    wrong(
        "reads_another_scale",
        "You take numbers out of the codes with another block's scale: each scale counts for `block` neighbours, block "
        "after block.",
        adam(("scales.repeat_interleave(block)[: len(like)]", "scales[0]")),
        adam(("scales.repeat_interleave(block)[: len(like)]", "scales.repeat(block)[: len(like)]")),
    ),
    wrong(
        "rounds_before_the_step",
        "You round the moments and take the step with what is left of them. They are at hand in float32: use them, "
        "then round.",
        adam(
            (
                M_HAT,
                f'{PUT}\n    m, v = _taken(state, "m", SIGNED, block, g), _taken(state, "v", UNSIGNED, block, g)\n'
                f"    {M_HAT}",
            )
        ),
    ),
    wrong(
        "no_correction",
        "The moments start from 0 and are too small in the first steps: divide by 1 - beta^t.",
        adam((M_HAT, "m_hat, v_hat = m, v")),
    ),
    wrong(
        "correction_of_the_first_step",
        "The corrections are those of the first step for ever: t must grow, and stay in the state.",
        adam((M_HAT, "m_hat, v_hat = m / (1 - beta1), v / (1 - beta2)")),
    ),
    wrong(
        "signed_code_for_v",
        "v is never negative: SIGNED leaves half of its values unused. It has UNSIGNED.",
        adam(
            (PUT, 'state["m"], state["v"] = _coded(m, SIGNED, block), _coded(v, SIGNED, block)'),
            (V, V.replace("UNSIGNED", "SIGNED")),
        ),
    ),
    wrong(
        "next_below",
        "You take the value below, not the nearest: moments shrink at each step.",
        adam((CODES, "codes = (torch.bucketize(units, values, right=True) - 1).clamp(min=0)")),
    ),
    wrong(
        "keeps_floats",
        "The state keeps float32 besides, or codes in a wider type. That is what the codes are to replace.",
        adam((PUT, f'{PUT}\n    state["exact"] = m')),
        adam((OUT, "codes.flatten()[: len(numbers)].to(torch.int32), scales")),
        adam((OUT, "codes.flatten()[: len(numbers)].to(torch.uint8), scales.double()")),
    ),
    wrong(
        "keeps_the_padding",
        "You cut the padding off by a view, which keeps it all the same. What makes the bytes must come after the cut.",
        adam((OUT, "codes.to(torch.uint8).flatten()[: len(numbers)], scales")),
        adam((OUT, "codes.flatten().to(torch.uint8)[: len(numbers)], scales")),
    ),
    wrong(
        "betas_not_as_told",
        "You take the usual 0.9 or 0.999, and not the betas that are handed in.",
        adam(("beta1, beta2 = betas", "beta1, beta2 = 0.9, betas[1]")),
        adam(("beta1, beta2 = betas", "beta1, beta2 = betas[0], 0.999")),
    ),
    wrong(
        "other_defaults",
        "You have changed a number in the head of the function. Who leaves it out counts on that of the task: "
        "betas = (0.9, 0.999), eps = 1e-8, weight_decay = 0.01, block = 256.",
        adam(("= (0.9, 0.999)", "= (0.9, 0.99)")),
        adam(("eps: float = 1e-8", "eps: float = 1e-6")),
        adam(("weight_decay: float = 0.01", "weight_decay: float = 0.0")),
        adam(("block: int = 256", "block: int = 64")),
        adam(("block: int = 256", "block: int")),
    ),
    wrong(
        "decay_in_the_gradient",
        "The weight decay goes through the moments. In AdamW it shrinks the parameter directly.",
        adam(
            (DECAY, "pass"),
            ("g = grad.flatten()", "g = grad.flatten() + weight_decay * param.flatten()"),
        ),
    ),
    wrong(
        "eps_inside",
        "The root is taken of v_hat + eps. eps is added to the root.",
        adam(("(v_hat.sqrt() + eps)", "(v_hat + eps).sqrt()")),
    ),
    wrong(
        "zeros_with_a_scale",
        "A block of zeros has scale 0, its largest magnitude. Put something else in its place for the division only.",
        *(
            adam((UNITS, f"scales = torch.where(scales > 0, scales, {scale})\n    units = blocks / scales[:, None]"))
            for scale in (1.0, 1e-12)
        ),
    ),
    wrong(
        "no_state_at_a_rate_of_0",
        "You return at once where lr is 0, with which a warm-up begins. The parameter stays then, but the state takes "
        "this gradient in like any other.",
        adam(("beta1, beta2 = betas", "if lr == 0:\n        return\n    beta1, beta2 = betas")),
    ),
    wrong(
        "gradient_changed",
        "You change the gradient in place, or let it require a gradient of its own.",
        adam(("(1 - beta2) * g.square()", "(1 - beta2) * g.square_()")),
        adam(("g = grad.flatten()", "g = grad.requires_grad_().detach().flatten()")),
    ),
    wrong(
        "param_frozen",
        "param requires no gradient any more after your step, so that the next backward leaves it out. Change its "
        "numbers under torch.no_grad(), and leave its flag as it is.",
        adam((DECAY, f"param.requires_grad_(False)\n    {DECAY}")),
    ),
    wrong(
        "nothing_moves",
        "The state is right and the parameter's memory is not changed. A name, or `.data`, that is assigned to gets "
        "other memory.",
        adam((DECAY, "pass"), (STEP, "pass")),
        adam((DECAY, "pass"), (STEP, STEP.replace("param.sub_(", "param.data = (1 - lr * weight_decay) * param - ("))),
    ),
    wrong(
        "step_not_an_int",
        "The count of steps in the state is a float or a tensor. It is an int: who saves the state goes by that.",
        adam(('t = state["step"] = state.get("step", 0) + 1', 't = state["step"] = state.get("step", 0) + 1.0')),
        adam(
            (
                't = state["step"] = state.get("step", 0) + 1',
                't = int(state.get("step", 0)) + 1\n    state["step"] = torch.tensor(t)',
            )
        ),
    ),
)
