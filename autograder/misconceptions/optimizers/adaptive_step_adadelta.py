"""Wrong ways to write `adaptive_step`: the two averages of Adadelta."""

from __future__ import annotations

from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adaptive_step_parts import (
    State,
    average,
    directions,
    inside,
    kept,
    made,
    outside,
    quotient,
    refuse,
    total,
    two_averages,
)


def upside_down(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """Gradients over moves."""
    v, u = kept(state, "v", g), kept(state, "u", g)
    v.copy_(average(v, g, decay))
    d = g * inside(v, eps) / inside(u, eps)
    u.copy_(average(u, d, decay))
    return d


def bare_root(u: Tensor, eps: float) -> Tensor:
    """No eps."""
    return u.sqrt()


def moves_first(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """The move is computed, taken into u, and computed again with the new u."""
    v, u = kept(state, "v", g), kept(state, "u", g)
    v.copy_(average(v, g, decay))
    d = g * inside(u, eps) / inside(v, eps)
    u.copy_(average(u, d, decay))
    return g * inside(u, eps) / inside(v, eps)


def averages_gradients_twice(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """u takes squared gradients, as v does; before it is used it is one step behind."""
    v, u = kept(state, "v", g), kept(state, "u", g)
    v.copy_(average(v, g, decay))
    d = g * inside(u, eps) / inside(v, eps)
    u.copy_(average(u, g, decay))
    return d


def average_of_sizes(old: Tensor, d: Tensor, decay: float) -> Tensor:
    """The size of a move where its square belongs."""
    return decay * old + (1 - decay) * d.abs()


def average_of_moves(old: Tensor, d: Tensor, decay: float) -> Tensor:
    """The move itself where its square belongs."""
    return decay * old + (1 - decay) * d


def never_updates(old: Tensor, d: Tensor, decay: float) -> Tensor:
    """u stays 0."""
    return old


def one_accumulator(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """Gradients and moves go into one average."""
    v = kept(state, "v", g)
    before = inside(v, eps)
    v.copy_(average(v, g, decay))
    d = g * before / inside(v, eps)
    v.copy_(average(v, d, decay))
    return d


def lr_ignored(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """As in the paper, which has no learning rate."""
    refuse(rule, lr, decay)
    param.sub_((1.0 if rule == "adadelta" else lr) * directions()[rule](grad, state, decay, eps))


def lr_in_the_moves(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """u averages what was really subtracted, lr included."""
    refuse(rule, lr, decay)
    if rule != "adadelta":
        param.sub_(lr * directions()[rule](grad, state, decay, eps))
        return
    v, u = kept(state, "v", grad), kept(state, "u", grad)
    v.copy_(average(v, grad, decay))
    step = lr * grad * inside(u, eps) / inside(v, eps)
    u.copy_(average(u, step, decay))
    param.sub_(step)


MISCONCEPTIONS = (
    Misconception(
        name="ratio_upside_down",
        witnesses=(made(adadelta=upside_down),),
        hint="Your Adadelta has the gradients' root above and the moves' root below. Units tell: a move must come out "
        "in the unit of the parameter, so a root of moves stands above, and the gradient's unit cancels below.",
    ),
    Misconception(
        name="adadelta_eps_outside",
        witnesses=(
            made(adadelta=two_averages(numerator=outside, denominator=outside)),
            made(adadelta=two_averages(numerator=outside)),
            made(adadelta=two_averages(denominator=outside)),
        ),
        hint="In Adadelta eps stands inside both roots, as its paper and torch have it: sqrt(u + eps) over "
        "sqrt(v + eps). It is more than a guard against 0: u starts from 0, so the first move is sqrt(eps) times a "
        "ratio. Outside the root it would be eps times that.",
    ),
    Misconception(
        name="adadelta_never_starts",
        witnesses=(
            made(adadelta=two_averages(numerator=bare_root)),
            made(adadelta=two_averages(numerator=bare_root, denominator=bare_root)),
            made(adadelta=two_averages(numerator=bare_root, denominator=outside)),
        ),
        hint="Your Adadelta has no eps above: u is 0 before the first move, so the first move is 0, and so is every "
        "one after it. eps inside the upper root is what sets it going.",
    ),
    Misconception(
        name="adadelta_ignores_lr",
        witnesses=(lr_ignored,),
        hint="Your Adadelta does not use lr. The paper has none, but this function does as torch does: "
        "the move d is multiplied by lr when it is subtracted. With lr = 1 that is the paper's.",
    ),
    Misconception(
        name="lr_in_the_average_of_moves",
        witnesses=(lr_in_the_moves,),
        hint="u averages the squares of what you subtract, with lr in it, so that lr comes back through the numerator "
        "and acts again at each step. u takes d, before it is multiplied by lr.",
    ),
    Misconception(
        name="moves_updated_before_their_use",
        witnesses=(made(adadelta=moves_first),),
        hint="You bring u up to date before you use it. The move of this step is what is being computed: only those "
        "before it can stand in the numerator. Compute d with the old u, then let u take d.",
    ),
    Misconception(
        name="averages_gradients_twice",
        witnesses=(made(adadelta=averages_gradients_twice),),
        hint="Both of your averages take squared gradients. The second takes the squares of the moves d: it is what "
        "gives the step the unit and the size of a parameter.",
    ),
    Misconception(
        name="moves_not_squared",
        witnesses=(
            made(adadelta=two_averages(moves=average_of_sizes)),
            made(adadelta=two_averages(moves=average_of_moves)),
        ),
        hint="Your second average takes the moves as they are, while the numerator takes a root of it. Average d^2.",
    ),
    Misconception(
        name="adadelta_sums",
        witnesses=(
            made(adadelta=two_averages(total)),
            made(adadelta=two_averages(total, moves=average)),
            made(adadelta=two_averages(moves=total)),
        ),
        hint="Your Adadelta adds up squares without forgetting any. Both of its accumulators are moving averages: "
        "decay times the old one plus (1 - decay) times the new square.",
    ),
    Misconception(
        name="moves_never_kept",
        witnesses=(made(adadelta=two_averages(moves=never_updates)),),
        hint="Your average of squared moves stays 0, so the numerator is sqrt(eps) for ever. After each step it must "
        "take that step's d^2, and be written into the state.",
    ),
    Misconception(
        name="numerator_forgotten",
        witnesses=(made(adadelta=quotient(average, inside)), made(adadelta=quotient(average))),
        hint="Your Adadelta divides by the root of the squared gradients and stops there, which is RMSprop. What "
        "Adadelta adds is the numerator, the root of the average squared move: it takes the place of a learning rate.",
    ),
    Misconception(
        name="one_accumulator_for_both",
        witnesses=(made(adadelta=one_accumulator),),
        hint="Squared gradients and squared moves go into one accumulator: two names in the state must differ. "
        "Adadelta keeps two tensors for each parameter.",
    ),
)
