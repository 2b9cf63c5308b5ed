"""Right and wrong ways to write `mend_the_steps`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.mend_the_steps import mend_the_steps


def in_other_lines() -> dict[str, tuple[int, str]]:
    """The mask made where the layer is called, as a second argument; the mean cut off by detach."""
    mask = "torch.rand(h.shape, generator=draw) < keep"
    return {
        "masked": (7, f"h = checkpoint(lambda h, mask: (h @ w).sin().exp().cos() * mask, h, {mask})"),
        "watched": (9, "    means.append(h.detach().abs().mean())"),
    }


def held_by_a_function() -> dict[str, tuple[int, str]]:
    """A function of the mask that makes the layer; torch's own norm, without recording."""
    layer = "lambda mask: lambda h: (h @ w).sin().exp().cos() * mask"
    return {
        "masked": (6, f"layer = ({layer})(torch.rand(h.shape, generator=draw) < keep)"),
        "watched": (9, "with torch.no_grad(): means.append(torch.linalg.vector_norm(h, 1) / h.numel())"),
    }


RIGHT = (right(in_other_lines), right(held_by_a_function, independent="torch.linalg.vector_norm"))

runs = partial(edited, mend_the_steps)
MASK = "torch.rand(h.shape, generator=draw) < keep"
LAYER = '(6, f"layer = lambda h, {drawn_once}: (h @ w).sin().exp().cos() * mask")'
WATCH = '(9, "means.append(h.abs().mean().item())")'

WRONG = (
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        runs(("(6,", "(5,"), ("(9,", "(8,")),
    ),
    wrong(
        "mask_left_out",
        "`masked` has no mask any more. It must drop what its plain run drops.",
        runs((LAYER, '(6, "layer = lambda h: (h @ w).sin().exp().cos()")')),
    ),
    wrong(
        "other_masks",
        "The two runs of a layer in `masked` have one mask now, and not the one that `draw` gives next: you seed "
        "`draw` anew for every layer.",
        runs(("generator=draw)", "generator=draw.manual_seed(0))")),
    ),
    wrong(
        "last_mask_for_all",
        "Each lambda of `masked` reads `mask` when it runs. In backward all four see the last one that was drawn: give "
        "each its own, as an argument or as a default value.",
        runs((LAYER, f'(6, "mask = {MASK}; layer = lambda h: (h @ w).sin().exp().cos() * mask")')),
    ),
    wrong(
        "generator_left_back",
        "In `masked` you set `draw` back for the second run of a layer, and leave it where that run left it: the next "
        "step draws masks that were drawn before. Put back the state of before the second run, or draw only once.",
        runs(
            (
                LAYER,
                '(6, "layer = lambda h, s=draw.get_state(): (draw.set_state(s), (h @ w).sin().exp().cos() * "'
                ' "(torch.rand(h.shape, generator=draw) < keep))[1]")',
            )
        ),
    ),
    wrong(
        "no_checkpoint",
        "The losses of `masked` are right because nothing is computed a second time: what each layer makes is kept "
        "again. Leave the checkpoint, and give both runs one mask.",
        runs((LAYER, '(7, "h = layer(h)")')),
    ),
    wrong(
        "another_number_watched",
        "`watched` puts another number into its list than the mean of |h|.",
        runs((WATCH, '(9, "means.append(0.0)")')),
        runs((WATCH, '(9, "means.append(h.mean().item())")')),
    ),
    wrong(
        "still_holds_its_graph",
        "What `watched` puts into its list still has a grad_fn, and with it the graph of its step and h. Make a "
        "number of it, or detach it.",
        runs((WATCH, '(9, "means.append(h.abs().mean().clone())")')),
        runs((WATCH, '(9, "means.append(h.abs().detach().requires_grad_().mean())")')),
    ),
    wrong(
        "copies_of_the_generator",
        "`masked` draws every mask from a copy of `draw`, which itself never moves on: all layers of all steps drop "
        "the same. Draw each mask from `draw`, once, before the checkpoint is called.",
        runs(
            (
                LAYER,
                '(6, "layer = lambda h: (h @ w).sin().exp().cos() * (torch.rand(h.shape, "'
                ' "generator=draw.clone_state()) < keep)")',
            )
        ),
    ),
    wrong(
        "torchs_own_generator",
        "`masked` does not draw from `draw` any more, but from torch's own generator, say. Both runs of a layer have "
        "one mask, and not the one that `draw` gives next: draw it from `draw`, once, before the checkpoint is called.",
        runs((", generator=draw", "")),
        runs((LAYER, '(6, "layer = lambda h: (h @ w).sin().exp().cos() * (torch.rand(h.shape) < keep)")')),
    ),
)
