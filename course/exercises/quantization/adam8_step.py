"""`adam8_step(param, grad, state, *, lr, ...)`: AdamW whose moments are kept in 8 bits.

Codes that lie near a midpoint may differ by roundings, so no code is compared: the step is, from a state that is given,
and how far each number of the new state lies from the nearest value. Two hundred steps are held against AdamW's.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.lessons.dynamic_code import SIGNED, UNSIGNED
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

FIRST, LATER, RAGGED, BETWEEN, ZEROS, SINGLE, LONG, TRAINED, DEFAULTS, STILL = (
    "the first step",
    "the eighth step",
    "a shorter last block",
    "moments of very different size",
    "a block without a gradient",
    "one number",
    "200 steps",
    "a parameter that requires a gradient",
    "nothing but lr is told",
    "a first step at a rate of 0",
)
STEPS = 200
VALUES = {"m": SIGNED, "v": UNSIGNED}
OPTIONS: dict[str, Any] = {"lr": 0.05, "betas": [0.8, 0.995], "eps": 0.1, "weight_decay": 0.1}


def cases(rng: torch.Generator) -> list[Case]:
    """Single steps from no state and from one that is given; many steps with gradients of several sizes."""

    def drawn(*shape: int, block: int, t: int = 0) -> dict[str, Any]:
        count, blocks = torch.Size(shape).numel(), -(-torch.Size(shape).numel() // block)
        state: dict[str, Any] = {}
        if t:
            codes = {
                "m": torch.randint(256, (count,), generator=rng),
                "v": torch.randint(90, 256, (count,), generator=rng),
            }
            scales = {"m": 0.5 + torch.rand(blocks, generator=rng), "v": 1 + torch.rand(blocks, generator=rng)}
            state = {"step": t, **{name: [codes[name].to(torch.uint8), scales[name]] for name in "mv"}}
        return {"param": normal(rng, *shape), "grad": normal(rng, *shape), "state": state, "block": block, **OPTIONS}

    ragged, between, zeros = drawn(21, block=8, t=3), drawn(2, 32, block=32), drawn(32, block=8)
    ragged["state"]["m"][1] *= torch.tensor([1.0, 100.0, 0.01])
    ragged["state"]["v"][1] *= torch.tensor([1.0, 1e4, 1e-4])
    between["grad"] *= 10.0 ** torch.linspace(-2, 0, 32) * torch.tensor([[1.0], [1e-16]])  # v near 1e-34
    zeros["grad"][8:16] = 0
    long = drawn(2, 40, block=40)
    sizes = 10.0 ** (-2 * torch.rand(2, 40, generator=rng)) * torch.tensor([[1.0], [1e-8]])
    long |= {"grads": normal(rng, STEPS, 2, 40) * sizes, "lr": 0.01, "eps": 1e-8, "weight_decay": 0.0}
    told = drawn(300, block=256, t=3)
    told["grad"][256:] *= 1e-8  # of the size of eps
    for name, size in (("m", 1e-8), ("v", 1e-16)):
        told["state"][name][1][1] *= size
    first = drawn(4, 6, block=8)
    first["grad"][0, 0] = -8.0  # the largest of its block, whose code does not reach -1
    some = {
        FIRST: first,
        LATER: drawn(4, 8, block=8, t=7),
        RAGGED: ragged,
        BETWEEN: between,
        ZEROS: zeros,
        SINGLE: drawn(block=4, t=2),
        LONG: long,
        TRAINED: {**drawn(3, 6, block=8, t=4), "trained": True},
        STILL: {**drawn(3, 4, block=8), "lr": 0.0},
        DEFAULTS: {name: told[name] for name in ("param", "grad", "state", "lr")},
    }
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The parameter after each step (all steps of a long run at once), and the state at the end."""
    given = dict(inputs)
    param, state = given.pop("param").float().clone(), given.pop("state")
    memory = param.detach()  # `param.data = ...` would give param another
    param.requires_grad_(given.pop("trained", False))
    state = {name: (each[0], each[1].float()) if isinstance(each, list) else each for name, each in state.items()}
    many, grad = "grads" in given, given.pop("grad")
    grads = list(given.pop("grads")) if many else [grad]
    if "betas" in given:
        given["betas"] = tuple(given["betas"])
    for grad in grads:
        handed = grad.float().clone()
        answer(param, handed, state, **given)
    found: dict[str, Any] = {"param": memory, "step": state.get("step"), "bytes": 0, "gradient left": handed}
    found["gradient trains"], found["param trains"] = handed.requires_grad, param.requires_grad
    found["kind of step"] = type(found["step"]).__name__
    for name in ("m", "v"):
        pair = state.get(name)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(each, Tensor) for each in pair):
            raise WrongOutput(f"state[{name!r}] must be a pair of tensors, codes and scales, got {type(pair).__name__}")
        found[name] = {"codes": pair[0], "scales": pair[1], "dtypes": f"{pair[0].dtype}, {pair[1].dtype}"}
        found[name]["zeros"] = (pair[1] == 0).int()
    found["bytes"] = sum(_storages({name: each for name, each in state.items() if name != "step"}).values())
    if many:
        found["adamw"] = _adamw(inputs)
    return observe(found)


def _storages(kept: object) -> dict[int, int]:
    """Bytes of all storages in containers in containers, by address; of an array, too, and eight of anything else."""
    if isinstance(kept, (dict, list, tuple)):
        parts = kept.values() if isinstance(kept, dict) else kept
        return {place: size for each in parts for place, size in _storages(each).items()}
    if isinstance(kept, Tensor):
        return {kept.untyped_storage().data_ptr(): kept.untyped_storage().nbytes()}
    return {id(kept): int(getattr(kept, "nbytes", 8))}


def _adamw(inputs: Inputs) -> Tensor:
    """Where torch's AdamW ends, in float64. Of the reference only: an answer may have another one."""
    exact = torch.nn.Parameter(inputs["param"].double().clone())
    options = {key: inputs[key] for key in ("lr", "eps", "weight_decay")}
    optimizer = torch.optim.AdamW([exact], betas=tuple(inputs["betas"]), **options)
    for grad in inputs["grads"]:
        exact.grad = grad.double()
        optimizer.step()
    return exact.detach()


def _of_blocks(numbers: Tensor, block: int, count: int) -> Tensor:
    """For each of `count` numbers that of its block."""
    return numbers.repeat_interleave(block)[:count]


def _largest(numbers: Tensor, block: int) -> Tensor:
    """The largest magnitude of each block."""
    return torch.stack([part.abs().max() for part in torch.split(numbers, block)])


def _moments(inputs: Inputs) -> dict[str, tuple[Tensor, Tensor]]:
    """Both moments after one step, float64, before they are rounded; and the magnitudes of the two terms added up."""
    g, made = inputs["grad"].double().flatten(), {}
    for name, beta, new in (("m", inputs["betas"][0], g), ("v", inputs["betas"][1], g.square())):
        old = torch.zeros_like(g)
        if name in inputs["state"]:
            codes, scales = inputs["state"][name]
            old = VALUES[name].double()[codes.long()] * _of_blocks(scales.double(), inputs["block"], len(g))
        made[name] = beta * old + (1 - beta) * new, beta * old.abs() + (1 - beta) * new.abs()
    return made


def _nearest(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no other value is nearer to a number, to 16 roundings of what was added in its
    block, which is larger than the sums where all of them cancel, as a single one may.
    """
    for name, (exact, terms) in _moments(inputs).items():
        codes, scales, block = got[f"{name}/codes"], got[f"{name}/scales"], inputs["block"]
        if not isinstance(codes, Tensor) or codes.shape != exact.shape or not isinstance(scales, Tensor):
            return f"the codes of {name} must have the shape {tuple(exact.shape)}"
        largest = _largest(exact, block)
        if scales.shape != largest.shape:
            return f"the scales of {name} must have the shape {tuple(largest.shape)}"
        if not bool(((codes >= 0) & (codes <= 255)).all()):
            return f"the codes of {name} must lie in 0 to 255"
        each = _of_blocks(largest, block, len(exact))
        held = VALUES[name].double()[codes.long()] * _of_blocks(scales.double(), block, len(exact))
        least = (VALUES[name].double() * each[:, None] - exact[:, None]).abs().amin(1)
        roundings = 16 * 2.0**-23 * _of_blocks(_largest(terms, block), block, len(exact))
        excess = (held - exact).abs() - least - roundings
        if not float(excess.max()) <= 0:
            return f"a number of {name} lies {float(excess.max()):.3g} farther away than the nearest value"
    return None


def _close(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: at most 5% farther from AdamW than ours, which a few codes at a midpoint explain."""
    start, exact = inputs["param"].double(), cast(Tensor, expected["adamw"])
    ends = (cast(Tensor, each["param"]).double() for each in (got, expected))
    distance, ours = (float((end - exact).norm() / (exact - start).norm()) for end in ends)
    return None if distance <= 1.05 * ours else f"{distance:.3%} from where AdamW ends, where {ours:.3%} are possible"


EXERCISE = Exercise(
    id="quantization.adam8_step",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "first_step",
            "The first step starts from moments of 0, with both corrections: m_hat is the gradient then, and "
            "v_hat its square. The state counts steps in an int.",
            points=2,
            keys=("param", "step", "kind of step"),
            cases=(FIRST,),
        ),
        Property(
            "later_step",
            "A step takes the moments out of codes and scales, updates them, and uses them before they are rounded. "
            "A parameter that required a gradient still does.",
            points=3,
            keys=("param", "step", "param trains"),
            cases=(LATER, SINGLE, TRAINED),
        ),
        Property(
            "blocks",
            "Each block of the state has its own scale; the last one may be shorter.",
            points=2,
            keys=("param",),
            cases=(RAGGED,),
        ),
        Property(
            "defaults",
            "A call may leave out all but lr: betas are (0.9, 0.999) then, eps 1e-8, weight_decay 0.01 and block 256, "
            "as the head of the function has them.",
            keys=("param", "m/scales", "v/scales"),
            cases=(DEFAULTS,),
            needs=("later_step",),
        ),
        Property(
            "nearest_codes",
            "The code that is kept is that of the value nearest to number / scale, of SIGNED for m and UNSIGNED for v; "
            "the scale is the block's largest magnitude after the update.",
            points=3,
            holds=_nearest,
            cases=(FIRST, LATER, RAGGED, BETWEEN, SINGLE),
        ),
        Property(
            "zeros",
            "A block without a gradient keeps scale 0, and its numbers only decay: nothing is divided by it. At a rate "
            "of 0, with which a warm-up begins, the parameter stays, and the moments move all the same.",
            keys=("param", "m/scales", "v/scales", "m/zeros", "v/zeros"),
            cases=(ZEROS, STILL),
            needs=("first_step",),
        ),
        Property(
            "bytes",
            "The state keeps a byte for each number of m and of v, 4 for each block of each, and no other tensor, nor "
            "what padding adds: a view keeps the whole tensor.",
            points=2,
            keys=("bytes", "m/dtypes", "v/dtypes"),
            cases=(FIRST, RAGGED),
            needs=("later_step",),
        ),
        Property(
            "gradient_unchanged",
            "The gradient belongs to the caller: work on new tensors.",
            roundings=0,
            keys=("gradient left", "gradient trains"),
            cases=(FIRST, LATER),
            needs=("first_step",),
        ),
        Property(
            "near_adamw",
            "After 200 steps the parameter is where AdamW ends, nearly. A v that was rounded to 0 makes a huge step.",
            points=2,
            holds=_close,
            cases=(LONG,),
            needs=("later_step",),
        ),
    ),
    hints=(
        "In what order: round, update, take the step, take out of the codes?",
        "One function takes a moment out of (codes, scales), one puts it away. A code is the number of midpoints "
        "between values below number / scale.",
        "m, v out; m = beta1 m + (1 - beta1) g, v likewise with g^2; decay; the corrected step; then pad to blocks, "
        "amax, divide where it is not 0, bucketize, uint8.",
    ),
    first_uses=("torch.optim",),
    promises={
        "float32, contiguous, of one shape, also ()": ("later_step", SINGLE),
        "param may require a gradient, and still does afterwards": (TRAINED, "later_step"),
        "grad is not changed": ("gradient_unchanged",),
        "in the tensor's own memory: an assignment to a name or to `.data` does not change it": ("first_step",),
        "{} before the first step. After each": ("first_step", STILL),
        "an int, the number of steps": ("first_step",),
        "codes uint8, one for each number of param in row-major order": ("bytes", "nearest_codes"),
        "the last perhaps shorter": ("blocks",),
        "code the one nearest to number / scale. A block of zeros has scale 0": ("nearest_codes", "zeros"),
        "they are rounded to codes afterwards": ("later_step",),
        "The state keeps two bytes for each number, 8 for each block, and nothing else": ("bytes",),
    },
)
