"""Right and wrong ways to write `LossScaler`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.loss_scaler import LossScaler


class TorchsOwn:
    """torch.amp.GradScaler, which wants an optimizer: one is made that holds the gradients of a step."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if init_scale <= 0 or growth_factor <= 1 or not 0 < backoff_factor < 1 or growth_interval < 1:
            raise ValueError("these numbers find no factor")
        self.own = torch.amp.GradScaler(
            "cpu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        self.own.scale(torch.ones(()))  # it makes its scale at the first call
        self.optimizer: Any = None

    @property
    def factor(self) -> float:
        return self.own.get_scale()

    def scale(self, loss: Tensor) -> Any:
        return self.own.scale(loss.float())

    def unscale_(self, grads: list[Tensor | None]) -> None:
        if self.optimizer is not None:
            raise RuntimeError("unscale_ was called before")
        params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads if g is not None]
        for param, g in zip(params, (g for g in grads if g is not None), strict=True):
            param.grad = g
        optimizer = torch.optim.SGD(params)
        self.own.unscale_(optimizer)
        self.optimizer = optimizer

    def step(self, step: Callable[[], object]) -> bool:
        if self.optimizer is None:
            raise RuntimeError("unscale_ must come first")
        taken: list[bool] = []
        self.optimizer.step = lambda: taken.append(step() is not self)
        self.own.step(self.optimizer)
        return bool(taken)

    def update(self) -> None:
        if self.optimizer is None:
            raise RuntimeError("unscale_ must come first")
        self.own.update()
        self.optimizer = None


class WithPythonsNumbers:
    """The factor is a Python number; a word says what was called last; gradients are divided, not multiplied."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if init_scale <= 0 or growth_factor <= 1 or not 0 < backoff_factor < 1 or growth_interval < 1:
            raise ValueError("these numbers find no factor")
        self.factor = float(init_scale)
        self.up, self.down, self.interval = growth_factor, backoff_factor, growth_interval
        self.left = growth_interval  # good steps that are still missing
        self.last, self.good = "update", False

    def scale(self, loss: Tensor) -> Tensor:
        return loss.float() * self.factor

    def unscale_(self, grads: list[Tensor | None]) -> None:
        if self.last != "update":
            raise RuntimeError(f"unscale_ came after {self.last}")
        for g in grads:
            if g is not None and g.dtype == torch.float16:
                raise ValueError("float16 cannot be unscaled")
        self.last, self.good = "unscale_", True
        for g in grads:
            if g is None:
                continue
            self.good = self.good and not (g.isnan() | g.isinf()).any().item()
            g /= self.factor

    def step(self, step: Callable[[], object]) -> bool:
        if self.last != "unscale_":
            raise RuntimeError(f"step came after {self.last}")
        self.last = "step"
        if not self.good:
            return False
        step()
        return True

    def update(self) -> None:
        if self.last == "update":
            raise RuntimeError("update came twice")
        self.last = "update"
        if not self.good:
            self.factor, self.left = self.factor * self.down, self.interval
            return
        self.left -= 1
        if self.left == 0:
            self.left = self.interval
            if self.factor * self.up <= torch.finfo(torch.float32).max:
                self.factor *= self.up


class CountsByDivision:
    """Good steps since the last skip are counted on, and the factor grows at each multiple of the interval."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if min(init_scale, backoff_factor) <= 0 or growth_factor <= 1 or backoff_factor >= 1 or growth_interval < 1:
            raise ValueError("these numbers find no factor")
        self.numbers = growth_factor, backoff_factor, growth_interval
        self.factor, self.since, self.state = torch.tensor(float(init_scale)), 0, [0, True]

    def scale(self, loss: Tensor) -> Tensor:
        return loss.to(torch.float32).mul(self.factor)

    def unscale_(self, grads: list[Tensor | None]) -> None:
        there = [g for g in grads if isinstance(g, Tensor)]
        if self.state[0] != 0 or torch.float16 in {g.dtype for g in there}:
            raise ValueError("a second unscale_, or float16")
        sound = [bool((g.abs() < math.inf).all()) for g in there]
        self.state = [1, sound.count(False) == 0]
        if self.state[1]:  # nobody reads the others
            for g in there:
                g.copy_(g.double() / self.factor.double())

    def step(self, step: Callable[[], object]) -> bool:
        if self.state[0] != 1:
            raise ValueError("out of turn")
        self.state[0] = 2
        return bool(self.state[1]) and (step(), True)[1]

    def update(self) -> None:
        if self.state[0] == 0:
            raise ValueError("out of turn")
        up, down, interval = self.numbers
        self.since = self.since + 1 if self.state[1] else 0
        if not self.state[1]:
            self.factor = self.factor * down
        elif self.since % interval == 0 and (self.factor * up).isfinite():
            self.factor = self.factor * up
        self.state = [0, True]


RIGHT = (
    right(TorchsOwn, independent="torch.amp.GradScaler"),
    right(WithPythonsNumbers),
    right(CountsByDivision),
)

scaler = partial(edited, LossScaler)
python = partial(edited, WithPythonsNumbers)

SCALED = "return loss * self.factor"
FINITE = "self._finite = all(bool(g.isfinite().all()) for g in present)"
DIVIDE = "for g in present:\n            g.div_(self.factor)"
QUOTIENT = "g.div_(self.factor)"
TAKE = "if self._finite:\n            step()"
SUMMED = FINITE.replace("g.isfinite().all()", "g.sum().isfinite()")
LATER = """\
for g in self._present if self._finite else ():
            g.div_(self.factor)
        if self._finite:
            step()"""
COUNT = "self._good_steps = self._good_steps + 1 if self._finite else 0"
BACK = "if not self._finite:\n            self.factor = _times(self.factor, self._backoff)"
FULL = "self._good_steps == self._interval"
ANEW = "self.factor = grown if grown.isfinite() else self.factor\n            self._good_steps = 0"
FACTOR = "self.factor = torch.tensor(init_scale, dtype=torch.float32)"
HALF = "if any(g.dtype == torch.float16 for g in present):"
SECOND = "if self._finite is not None:\n            raise"
EARLY = "if self._finite is None or self._stepped:"
REFUSES_HALF = """\
        for g in grads:
            if g is not None and g.dtype == torch.float16:
                raise ValueError("float16 cannot be unscaled")
"""
LATE = "if g.dtype == torch.float16:\n                raise ValueError('float16 cannot be unscaled')"
NOTHING = "if self._finite is None:\n            raise"

WRONG = (
    wrong(
        "steps_all_the_same",
        "You take the step although a gradient is inf or nan. One such step makes the parameters nan for good. Call "
        "the optimizer's step only where all gradients are finite.",
        scaler((TAKE, "step()")),
        scaler((TAKE, "if self._finite or self._good_steps == 0:\n            step()")),
    ),
    wrong(
        "zeros_for_what_is_not_finite",
        "You put 0 in the place of inf and nan, and take the step. The rest of the gradients moves the parameters, "
        "and momentum moves them even where the gradient is 0. A skipped step is not taken.",
        scaler((QUOTIENT, "g.div_(self.factor).nan_to_num_(0, 0, 0)"), (TAKE, "step()")),
    ),
    wrong(
        "inf_or_nan_overlooked",
        "You look for one kind of what is not finite: nan, inf or -inf alone. All three come out of an overflow "
        "(inf - inf is nan): isfinite is false for each.",
        scaler(("g.isfinite().all()", "not g.isinf().any()")),
        scaler(("g.isfinite().all()", "not g.isnan().any()")),
        scaler(("g.isfinite().all()", "(g < float('inf')).all()")),
        python(("(g.isnan() | g.isinf())", "g.isinf()")),
    ),
    wrong(
        "one_gradient_looked_at",
        "You look at one of the gradients only, the first or the last, or at one of their numbers. Note whether *all* "
        "are finite: one overflow anywhere is enough.",
        scaler(("g.isfinite().all()", "g.flatten()[:1].isfinite().all()")),
        scaler(("g.isfinite().all()", "g.flatten()[-1:].isfinite().all()")),
        scaler((FINITE, "self._finite = bool(present[0].isfinite().all())")),
        scaler((FINITE, "self._finite = bool(present[-1].isfinite().all())")),
        python(("self.good = self.good and not", "self.good = not")),
    ),
    wrong(
        "looks_at_a_sum",
        "You look at a sum or a norm of the gradients. It overflows where the gradients themselves do not, and a step "
        "is skipped for nothing. Look at the numbers.",
        scaler(("g.isfinite().all()", "g.sum().isfinite()")),
        scaler(("g.isfinite().all()", "g.square().sum().isfinite()")),
        scaler((FINITE, "self._finite = True"), (DIVIDE, f"{DIVIDE}\n        {SUMMED}")),
    ),
    wrong(
        "multiplied_again",
        "You multiply the gradients by the factor where they must be divided by it: backward has multiplied them "
        "already.",
        scaler((QUOTIENT, "g.mul_(self.factor)")),
    ),
    wrong(
        "not_unscaled",
        "The gradients are as large as before after unscale_. Divide each of them, in its own memory.",
        scaler((QUOTIENT, "pass")),
        scaler((QUOTIENT, "g = g / self.factor")),
        scaler((DIVIDE, "grads = [g if g is None else g / self.factor for g in grads]")),
    ),
    wrong(
        "factor_in_their_dtype",
        "You make the factor a tensor of the gradient's dtype before you divide. bfloat16 has 8 digits: a factor of "
        "259 becomes 260 there, and all gradients of the step are off by the same. Divide by the Python number itself.",
        scaler((QUOTIENT, "g.div_(torch.as_tensor(self.factor, dtype=g.dtype))")),
        scaler((QUOTIENT, "g /= g.new_tensor(float(self.factor))")),
        fails=("divided_by_the_factor_itself",),
    ),
    wrong(
        "unscaled_in_step",
        "You unscale in step. The caller clips between unscale_ and step, and must find gradients there that are "
        "divided already; and those that are must not be divided again.",
        scaler(
            (DIVIDE, "self._present = present"),
            (
                TAKE,
                LATER,
            ),
        ),
    ),
    wrong(
        "unscaled_twice",
        "You divide by the factor twice, in unscale_ and again in step. Once is enough.",
        scaler(
            (DIVIDE, f"{DIVIDE}\n        self._present = present"),
            (
                TAKE,
                LATER,
            ),
        ),
        scaler((QUOTIENT, "g.div_(self.factor).div_(self.factor)")),
    ),
    wrong(
        "loss_detached",
        "What scale returns has lost its history: .item(), float(), .detach() and torch.tensor cut the way back. "
        "Multiply the tensor itself.",
        scaler((SCALED, "return loss.detach() * self.factor")),
        scaler((SCALED, "return torch.tensor(loss.item() * self.factor.item(), requires_grad=True)")),
    ),
    wrong(
        "loss_changed",
        "You multiply the loss in place. The caller still wants to print it: return a new tensor.",
        scaler((SCALED, "return loss.mul_(self.factor)")),
    ),
    wrong(
        "float16_product",
        "Your product is formed in float16, where 65,504 is the largest number and the last digits of tiny ones are "
        "lost: a Python number takes the dtype of the tensor. loss.float() times the factor is a float32 number.",
        scaler((SCALED, "return loss * self.factor.item()")),
        scaler((SCALED, "return loss * self.factor.to(loss.dtype)")),
        scaler((SCALED, "return loss * (self.factor if self.factor > 1 else self.factor.item())")),
        fails=("float16_loss",),
    ),
    wrong(
        "grows_early_or_late",
        "Your factor grows one step too early or too late. After the last of growth_interval good steps in a row, this "
        "update, and not the next, makes it larger.",
        scaler((FULL, "self._good_steps > self._interval")),
        scaler((FULL, "self._good_steps + 1 == self._interval")),
    ),
    wrong(
        "count_goes_on_after_a_skip",
        "After a skip you go on counting where you were. Only good steps in a row count: set the count to 0.",
        scaler((COUNT, "self._good_steps += self._finite")),
        python((", self.left = self.factor * self.down, self.interval", " = self.factor * self.down")),
    ),
    wrong(
        "count_goes_on_after_growth",
        "After a growth the count must begin anew; yours goes on, so that the factor grows in every step from then on, "
        "or never again.",
        scaler((ANEW, "self.factor = grown if grown.isfinite() else self.factor")),
        scaler(
            (FULL, "self._good_steps >= self._interval"),
            (ANEW, "self.factor = grown if grown.isfinite() else self.factor"),
        ),
    ),
    wrong(
        "grows_at_fixed_steps",
        "You count all steps, and let the factor grow at every multiple of growth_interval. Good steps in a row count, "
        "from the last skip on.",
        scaler(
            (FACTOR, f"{FACTOR}\n        self._all = 0"),
            (COUNT, "self._all += 1\n        self._good_steps = self._all % self._interval or self._interval"),
        ),
    ),
    wrong(
        "never_backs_off",
        "After a skip your factor stays as it is, and the next step overflows again. Multiply it by backoff_factor.",
        scaler((BACK, "if not self._finite:\n            pass")),
    ),
    wrong(
        "grows_after_a_skip",
        "Your factor goes the wrong way: an overflow says that it is too large.",
        scaler((BACK, BACK.replace("self._backoff", "1 / self._backoff"))),
    ),
    wrong(
        "not_below_1",
        "Your factor stops at 1, or at another number that seemed small enough. Gradients that are too large need a "
        "factor below 1, however small.",
        scaler(
            (
                BACK,
                BACK.replace("_times(self.factor, self._backoff)", "_times(self.factor, self._backoff).clamp(min=1.0)"),
            )
        ),
        *(
            python(
                (
                    "self.factor, self.left = self.factor * self.down,",
                    f"self.factor, self.left = max({least}, self.factor * self.down),",
                )
            )
            for least in ("1.0", "2.0**-14", "2.0**-24")
        ),
    ),
    wrong(
        "changed_before_update",
        "You change the factor in unscale_ or in step. It must stay the same until update: the caller may still want "
        "to know by what the gradients were multiplied.",
        scaler(
            (BACK, "if not self._finite:\n            pass"),
            (DIVIDE, f"{DIVIDE}\n        {BACK}"),
        ),
        scaler(
            (BACK, "if not self._finite:\n            pass"),
            ("self._stepped = True", f"self._stepped = True\n        {BACK}"),
        ),
        fails=("only_update_changes_the_factor", "each_on_its_own"),
    ),
    wrong(
        "beyond_float32",
        "Your factor grows beyond the largest float32 number. Leave out a growth that would.",
        scaler(("grown if grown.isfinite() else self.factor", "grown")),
        python(
            ("if self.factor * self.up <= torch.finfo(torch.float32).max:", "if self.factor * self.up < float('inf'):")
        ),
        scaler(("grown if grown.isfinite() else self.factor", "grown.clamp(max=torch.finfo(torch.float32).max)")),
    ),
    wrong(
        "stops_short_of_float32",
        "You leave out a growth that float32 holds. Leave out only what is *above* torch.finfo(torch.float32).max.",
        python(("self.factor * self.up <= ", "self.factor * self.up < ")),
        python(("torch.finfo(torch.float32).max", "2.0**100")),
    ),
    wrong(
        "divided_in_a_copy",
        "You divide a copy where a gradient is a view: .contiguous() and .reshape copy what does not lie in one piece. "
        "Divide g itself.",
        scaler((QUOTIENT, "g.contiguous().div_(self.factor)")),
    ),
    wrong(
        "always_2_and_a_half",
        "You double and halve whatever growth_factor and backoff_factor say.",
        scaler(("_times(self.factor, self._backoff)", "_times(self.factor, 0.5)")),
        scaler(("_times(self.factor, self._growth)", "_times(self.factor, 2.0)")),
        scaler(("_times(self.factor, self._backoff)", "_times(self.factor, 1 / self._growth)")),
    ),
    wrong(
        "other_defaults",
        "Where the caller names no number, yours is another than the signature's: init_scale 2^16, growth_factor 2, "
        "backoff_factor 1/2, growth_interval 2000.",
        scaler(("init_scale: float = 2.0**16", "init_scale: float = 2.0**15")),
        scaler(("growth_interval: int = 2000", "growth_interval: int = 1000")),
    ),
    wrong(
        "missing_gradient_breaks",
        "A gradient may be None: leave it out of everything.",
        scaler(("[g for g in grads if g is not None]", "list(grads)")),
        python(("if g is None:\n                continue", "if g is None:\n                break")),
        fails=("missing_gradients",),
    ),
    wrong(
        "returns_nothing",
        "step must return a bool: True where it called the optimizer's step, else False. What that step returns is "
        "another thing.",
        scaler(("return self._finite", "return None")),
        scaler((TAKE, "if self._finite:\n            return step()")),
        scaler((TAKE, "if self._finite:\n            return step() or True")),
        scaler((TAKE, "if self._finite:\n            return step() is not False")),
        scaler(("return self._finite", "return True")),
        scaler(("return self._finite", "return not self._finite")),
    ),
    wrong(
        "whole_numbers_stay_whole",
        "torch.tensor of a whole number is int64, and `*=` by a half fails: the factor is in float32, however it came.",
        scaler(
            (FACTOR, "self.factor = torch.tensor(init_scale)"),
            ("self.factor = _times(self.factor, self._backoff)", "self.factor *= self._backoff"),
        ),
    ),
    wrong(
        "shared_by_all",
        "What your scaler remembers belongs to all scalers: it stands in the class or in a global. Put it into self.",
        scaler(
            ("class LossScaler:", "class LossScaler:\n    _noted: list[bool] = []"),
            (FINITE, f"{FINITE}\n        self._noted.append(self._finite)"),
            ("self._stepped = True", "self._stepped = True\n        self._finite = self._noted[-1]"),
        ),
        scaler(
            ("class LossScaler:", "class LossScaler:\n    _count: dict[str, int] = {}"),
            (FACTOR, f"{FACTOR}\n        self._count['good'] = 0"),
            (COUNT, "self._good_steps = self._count['good'] = self._count['good'] + 1 if self._finite else 0"),
            (ANEW, f"{ANEW}\n            self._count['good'] = 0"),
        ),
        fails=("each_on_its_own",),
    ),
    wrong(
        "not_refused",
        "Your scaler is right where it is called in turn, and something that the docstring refuses passes. Look at the "
        "list there: numbers of the constructor, float16 gradients, calls out of turn.",
        scaler(("if not (init_scale > 0", "if False and not (init_scale > 0")),
        scaler((HALF, "if False:")),
        scaler((HALF, HALF.replace("in present", "in present[-1:]"))),
        scaler((SECOND, "if False:\n            raise")),
        scaler((EARLY, "if self._finite is None:")),
        scaler(("self._stepped = True", "self._stepped = self._finite")),
        scaler((HALF, HALF.replace("torch.float16", "torch.float16 and g.numel()"))),
        scaler((NOTHING, "if False:\n            raise")),
        scaler(("init_scale > 0", "init_scale >= 0")),
        scaler(("growth_factor > 1", "growth_factor > 0")),
        scaler(("backoff_factor < 1", "backoff_factor <= 1")),
        scaler(("growth_interval >= 1", "growth_interval >= 0")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "refused_too_late",
        "You refuse after something has changed: gradients that are divided already, or a note that is made. The "
        "caller may catch the error and go on.",
        scaler((HALF, f"{FINITE}\n        {HALF}")),
        scaler((SECOND, SECOND.replace("raise", f"{FINITE.replace('present', 'grads')}\n            raise"))),
        scaler((NOTHING, NOTHING.replace("raise", "self._good_steps = 0\n            raise"))),
        scaler(
            (SECOND, f"for g in grads if self._finite is not None else ():\n            g.mul_(0.5)\n        {SECOND}")
        ),
        python((REFUSES_HALF, ""), ("g /= self.factor", f"{LATE}\n            g /= self.factor")),
        fails=("refused_before_any_change",),
    ),
)
