"""Right and wrong ways to write `mend_the_adapters`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.lora.mend_the_adapters import mend_the_adapters


def by_names() -> dict[str, tuple[int, str]]:
    """The factors known by their names; all frozen in the second line; an optimizer of what trains."""
    return {
        "classifier": (4, "    for p in [p for name, p in model.named_parameters() if name[-2:] not in ('.A', '.B')]:"),
        "matrices": (2, "    for p in [model.requires_grad_(False)][:0]:"),
        "largest": (9, "    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)"),
    }


def own_parameters() -> dict[str, tuple[int, str]]:
    """The head and the factors thawed together; an optimizer of the factors; gradients dropped before the loop's."""
    thawed = "for p in m.parameters(recurse=False)"
    return {
        "classifier": (6, f"[p.requires_grad_() for m in (model.head, model.up, model.down) {thawed}]"),
        "matrices": (7, f"trained = [p for m in (model.up, model.down) {thawed}]"),
        "largest": (11, "for x, y in (model.zero_grad() or pair for pair in batches):"),
    }


def other_words() -> dict[str, tuple[int, str]]:
    """Each parameter set by hand; the model's zero_grad before the optimizer is made."""
    return {
        "classifier": (
            5,
            "p.requires_grad = any(p is q for m in (model.up, model.down) for q in m._parameters.values())",
        ),
        "matrices": (3, "for _ in [0]:"),
        "largest": (10, "losses = []; model.zero_grad()"),
    }


RIGHT = (
    right(own_parameters, independent="torch.nn.Module.parameters(recurse=False)"),
    right(by_names),
    right(other_words),
)

runs = partial(edited, mend_the_adapters)
FREEZE = '"p.requires_grad_(any(p is factor for a in (model.up, model.down) for factor in (a.A, a.B)))"'
ALL, NONE = '(3, "if True:")', '(12, "optimizer.zero_grad()")'
NUMBER = "            5,"


def frozen(number: int, line: str) -> tuple[tuple[str, str], ...]:
    """Edits that put another line into `classifier`."""
    return (NUMBER, f"            {number},"), (FREEZE, repr(line))


ADAPTERS, STILL = "[model.up.A, model.up.B, model.down.A, model.down.B]", "'lr': 0.0}], lr=lr)"
TRAINED = f"trained = [*model.head.parameters(), *{ADAPTERS}]; rest = {{*model.parameters()}} - {{*trained}}"

WRONG = (
    wrong(
        "rate_of_0",
        "You let the optimizer hold the base with a learning rate of 0. It stays where it is, and has gradients and "
        "states like all that trains. Freeze it.",
        runs(
            *frozen(
                8,
                f"{TRAINED}; model.requires_grad_(True); optimizer = torch.optim.AdamW("
                f"[{{'params': trained}}, {{'params': list(rest), {STILL}",
            )
        ),
        runs(
            (
                ALL,
                f"(8, \"optimizer = torch.optim.AdamW([{{'params': {ADAPTERS}}}, "
                f"{{'params': [p for p in trained if p.dim() == 1], {STILL}\")",
            )
        ),
    ),
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        runs((NUMBER, "            4,"), ("(3,", "(2,"), ("(12,", "(11,")),
    ),
    wrong(
        "optimizer_of_frozen_adapters",
        "You hand the adapters of `classifier` to the optimizer, and they still require no gradient: it passes over "
        "them. Mend the line that freezes them.",
        runs(*frozen(7, "trained = list(model.parameters())")),
        runs(*frozen(7, "trained = [*model.head.parameters(), model.up.A, model.up.B, model.down.A, model.down.B]")),
        runs(*frozen(6, "model.head.requires_grad_(True); model.up.train(); model.down.train()")),
    ),
    wrong(
        "bases_alone_frozen",
        "`classifier` freezes the two adapted layers now, and the norm trains on. All that was there before is frozen, "
        "but for the head.",
        runs(*frozen(4, "for p in [*model.up.base.parameters(), *model.down.base.parameters()]:")),
    ),
    wrong(
        "nothing_frozen",
        "`classifier` freezes nothing any more: the whole model trains.",
        runs(*frozen(5, "pass")),
        runs(*frozen(6, "model.requires_grad_(True)")),
    ),
    wrong(
        "layers_thawed",
        "You thaw `up` and `down` of `classifier` with all that is in them: their bases train, too.",
        runs(*frozen(6, "[m.requires_grad_(True) for m in (model.head, model.up, model.down)]")),
    ),
    wrong(
        "biases_of_the_base_train",
        "In `classifier` weights are frozen and biases train. They belong to the base.",
        runs(*frozen(4, "for p in [p for name, p in model.named_parameters() if name.endswith('weight')]:")),
    ),
    wrong(
        "head_frozen",
        "The head of `classifier` does not train any more. It is new, and the adapters alone cannot replace it.",
        runs(*frozen(6, "[p.requires_grad_() for p in (model.up.A, model.up.B, model.down.A, model.down.B)]")),
    ),
    wrong(
        "one_adapter_thawed",
        "One of the two adapters of `classifier` is still frozen.",
        runs(*frozen(6, "[p.requires_grad_() for p in (*model.head.parameters(), model.up.A, model.up.B)]")),
    ),
    wrong(
        "b_alone",
        "In `classifier` B trains and A stays as it was drawn. Both belong to the adapter.",
        runs(*frozen(6, "[p.requires_grad_() for p in (*model.head.parameters(), model.up.B, model.down.B)]")),
    ),
    wrong(
        "no_weight_decay",
        "You took the weight decay out of `matrices`. It only acts on what the optimizer holds: see that the biases "
        "and the norm are not among it.",
        runs((ALL, '(8, "optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)")')),
        runs((ALL, '(8, "optimizer = torch.optim.Adam(trained, lr=lr)")')),
    ),
    wrong(
        "norm_still_trains",
        "The biases of `matrices` are frozen, and the weight of the norm, which has one dimension too, is not.",
        runs((ALL, '(3, "if p.dim() > 1 or p is not model.norm.weight:")')),
        runs((ALL, '(3, "if p is not model.norm.weight and p is not model.norm.bias:")')),
    ),
    wrong(
        "biases_still_train",
        "You freeze the norm of `matrices`, and the biases of linear layers train on.",
        runs((ALL, '(3, "if p.dim() > 1 or p is model.norm.weight or p is model.norm.bias:")')),
        runs((ALL, '(2, "for p in [*model.parameters(), *model.norm.parameters()]:")')),
    ),
    wrong(
        "bias_of_the_head_trains",
        "In `matrices` the bias of the head still trains. In this program the head belongs to the base.",
        runs((ALL, '(3, "if p is not model.head.bias:")')),
    ),
    wrong(
        "the_other_way_round",
        "`matrices` freezes what has one dimension now, and its matrices train.",
        runs((ALL, '(3, "if p.dim() <= 1:")')),
    ),
    wrong(
        "adapters_frozen_too",
        "`matrices` freezes everything once more after the adapters are in: nothing is left to train.",
        runs((ALL, '(7, "trained = [p for p in model.requires_grad_(False).parameters() if p.requires_grad]")')),
    ),
    wrong(
        "without_moments",
        "`largest` uses an optimizer that keeps nothing, or throws the states away after each step. That is not Adam: "
        "the losses are others. Keep the states of what trains.",
        runs((NONE, '(9, "optimizer = torch.optim.SGD(model.parameters(), lr=lr)")')),
        runs((NONE, '(15, "optimizer.step(); optimizer.state.clear()")')),
    ),
    wrong(
        "decays_the_base",
        "The optimizer of `largest` decays weights now, and those of the base are among them: their gradients are "
        "zeros, and not None.",
        runs((NONE, '(9, "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)")')),
    ),
    wrong(
        "never_zeroed",
        "`largest` adds up the gradients of all steps now.",
        runs((NONE, '(12, "pass")')),
        runs((NONE, '(12, "loss = 0")')),
    ),
    wrong(
        "zeroed_before_the_step",
        "You clear the gradients of `largest` between backward and step: there is nothing to step by.",
        runs((NONE, '(14, "loss.backward(); optimizer.zero_grad()")')),
    ),
    wrong(
        "always_up",
        "`largest` adapts `up` whatever the gradients are.",
        runs((NONE, '(5, "if True:")')),
    ),
    wrong(
        "smaller_gradient",
        "`largest` adapts the layer with the smaller gradient now. The choice was right.",
        runs((NONE, '(5, "if model.up.weight.grad.norm() < model.down.weight.grad.norm():")')),
    ),
    wrong(
        "still_keeps_states",
        "The optimizer of `largest` still keeps states for frozen weights, if not at the end: they do not require a "
        "gradient, and still have one, of zeros, when it steps.",
        runs((NONE, '(9, "optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=0)")')),
        runs((NONE, '(4, "[p.requires_grad_(False) for p in model.parameters()]")')),
        runs((NONE, '(17, "optimizer.state.clear(); return losses, optimizer")')),
        runs((NONE, '(12, "[p.grad.zero_() for p in model.parameters() if p.grad is not None]")')),
    ),
)
