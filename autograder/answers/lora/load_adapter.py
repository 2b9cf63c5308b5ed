"""Right and wrong ways to write `load_adapter`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.adapted import Adapted
from course.reference.lora.load_adapter import load_adapter


def by_load_state_dict(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """torch's own loader, module by module, when all was found to fit."""
    layers = {name: each for name, each in model.named_modules() if isinstance(each, Adapted)}
    keys = {".".join(filter(None, (name, x))): (each, x) for name, each in layers.items() for x in ("A", "B")}
    strange = sorted(keys.keys() ^ state.keys())
    strange += [key for key in keys.keys() & state.keys() if getattr(*keys[key]).shape != state[key].shape]
    strange += [f"{name} (merged)" for name, each in layers.items() if each.merged]
    if strange:
        raise ValueError(f"these do not fit: {', '.join(strange)}")
    for key, (layer, x) in keys.items():
        layer.load_state_dict({x: state[key]}, strict=False)


def through_data(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Three messages in one error; the copies by index."""
    there = {}
    merged = []
    for name, layer in model.named_modules():
        if not isinstance(layer, Adapted):
            continue
        there[f"{name}.A".strip(".")] = layer.A.data
        there[f"{name}.B".strip(".")] = layer.B.data
        if layer.merged:
            merged.append(name)
    missing, unexpected = [set(a) - set(b) for a, b in ((there, state), (state, there))]
    shapes = {key: state[key].shape for key in set(there) & set(state) if state[key].shape != there[key].shape}
    if missing or unexpected or shapes or merged:
        raise ValueError(f"missing: {missing}, unexpected: {unexpected}, shapes: {shapes}, merged: {merged}")
    for key in there:
        there[key][:] = state[key].detach()


RIGHT = (
    right(by_load_state_dict, independent="torch.nn.Module.load_state_dict"),
    right(through_data),
)


edit = partial(edited, load_adapter)
COPY, RAISE = "factor.copy_(state[name])", '    if wrong:\n        raise ValueError("; ".join(wrong))\n'
MISSING = '    wrong += [f"{name} is missing" for name in factors if name not in state]\n'
UNEXPECTED = '    wrong += [f"{name} is unexpected" for name in state if name not in factors]\n'
SHAPE = "state[name].shape != factor.shape"
SHAPES = (
    "    wrong += [\n"
    '        f"{name} must have the shape {tuple(factor.shape)}, got {tuple(state[name].shape)}"\n'
    "        for name, factor in factors.items()\n"
    f"        if name in state and {SHAPE}\n"
    "    ]\n"
)
KIND, NAMED, MERGED = "if isinstance(module, Adapted):", "model.named_modules()", "if module.merged:"
LOOP = "for name, factor in factors.items():\n            "
PUT = "model.get_submodule(name.rpartition('.')[0])"

WRONG = (
    wrong(
        "silently_partial",
        "Keys that are missing or that nothing takes are passed over in silence: half of an adapter, or none, is "
        "loaded. strict=False does the same. Raise a ValueError.",
        edit((MISSING, ""), (UNEXPECTED, ""), (COPY, "factor.copy_(state.get(name, factor))")),
    ),
    wrong(
        "missing_passed_over",
        "A factor that the state lacks keeps its old numbers, in silence. Raise a ValueError.",
        edit((MISSING, ""), (COPY, "factor.copy_(state.get(name, factor))")),
    ),
    wrong(
        "unexpected_passed_over",
        "A key that no factor has is passed over: the file belongs to another model, or to a pattern that matched more "
        "layers. Raise a ValueError.",
        edit((UNEXPECTED, "")),
    ),
    wrong(
        "missing_is_a_key_error",
        "A missing key ends in the KeyError of your dict, perhaps after half of the copies. Compare the names first, "
        "and raise a ValueError that names them.",
        edit((MISSING, "")),
    ),
    wrong(
        "shapes_not_compared",
        "You leave it to copy_ to compare shapes. It broadcasts a smaller tensor in silence, and raises a RuntimeError "
        "when others are copied already.",
        edit((SHAPES, "")),
    ),
    wrong(
        "broadcasts",
        "You accept what can be broadcast. A shape must be the factor's own.",
        edit((SHAPE, "any(s not in (1, f) for s, f in zip(state[name].shape[::-1], factor.shape[::-1]))")),
    ),
    wrong(
        "numbers_counted",
        "You compare the count of numbers. A transposed or flattened factor has as many.",
        edit(
            (SHAPE, "state[name].numel() != factor.numel()"), (COPY, "factor.copy_(state[name].reshape(factor.shape))")
        ),
    ),
    wrong(
        "transposed_to_fit",
        "You turn a transposed factor round by yourself. Its shape is not the factor's: who made this file meant "
        "something else.",
        edit(
            (SHAPE, "factor.shape not in (state[name].shape, state[name].t().shape)"),
            (COPY, "factor.copy_(state[name] if state[name].shape == factor.shape else state[name].t())"),
        ),
    ),
    wrong(
        "merged_loaded",
        "You load into a merged layer. Its weight still holds the old adapter; unmerging will subtract the new one.",
        edit((MERGED, "if False:")),
        edit((MERGED, "if path and module.merged:")),
    ),
    wrong(
        "first_slip_alone",
        "Your message names the first slip alone. Who mends it gets the next error, one after the other: collect all.",
        edit(('raise ValueError("; ".join(wrong))', "raise ValueError(wrong[0])")),
    ),
    wrong(
        "one_kind_of_slip_alone",
        "Your message tells of one kind of slip, and is silent on the others: a state may lack one key and have "
        "another too many.",
        edit((MISSING, MISSING + RAISE)),
        edit((SHAPES, RAISE + SHAPES)),
        edit((UNEXPECTED, RAISE + UNEXPECTED)),
    ),
    wrong(
        "nothing_named",
        "Your ValueError does not say which keys are wrong.",
        edit(('raise ValueError("; ".join(wrong))', 'raise ValueError("the state does not fit")')),
    ),
    wrong(
        "names_everything",
        "Your message lists keys that are right as well: with a hundred layers nobody finds the one that is not.",
        edit(('"; ".join(wrong)', '"; ".join([*wrong, f"got {list(state)}, for {list(factors)}"])')),
    ),
    wrong(
        "half_loaded",
        "You copy while you look: at the error some factors are new and some old, a model that nobody has trained. "
        "Look at everything first.",
        edit(
            (
                RAISE,
                "    for name in factors.keys() & state.keys():\n"
                "        if state[name].shape == factors[name].shape:\n"
                f"            factors[name].data.copy_(state[name].detach())\n{RAISE}",
            )
        ),
    ),
    wrong(
        "mode_left_changed",
        "You switch the model to another mode before you look, and raise the error with it switched. After a refusal "
        "nothing in the model has changed: copying needs no mode.",
        edit((RAISE, f"    model.eval()\n{RAISE}")),
        edit((RAISE, f"    model.train()\n{RAISE}")),
    ),
    wrong(
        "new_parameters",
        "You put new parameters in the place of the old ones. An optimizer that was made before holds the old ones, "
        "and trains them, to no effect.",
        edit((COPY, f"setattr({PUT}, name[-1], torch.nn.Parameter(state[name].detach().to(factor.dtype, copy=True)))")),
    ),
    wrong(
        "memory_of_the_state",
        "The factor lies in the memory of the state now: what the caller does with his tensor happens to the model. "
        "Copy the numbers.",
        edit((COPY, "factor.data = state[name].detach()")),
        edit((COPY, "factor.data = state[name].detach().to(factor.dtype)")),
        edit((COPY, f"setattr({PUT}, name[-1], torch.nn.Parameter(state[name].detach()))")),
    ),
    wrong(
        "other_memory",
        "You give the parameter new memory. Others may hold views of the old one: copy the numbers into it.",
        edit((COPY, "factor.data = state[name].detach().to(factor.dtype, copy=True)")),
    ),
    wrong(
        "dtype_of_the_state",
        "The factor takes over the dtype of the file. A layer in float32 would then meet one in half precision.",
        edit((COPY, "factor.data = state[name].detach().clone()")),
    ),
    wrong(
        "added",
        "You add the numbers of the state to those that are there. They take their place.",
        edit((COPY, "factor.add_(state[name])")),
    ),
    wrong(
        "a_alone",
        "You load the A of each layer, and its B stays.",
        edit((COPY, "factor.copy_(state[name] if name.endswith('A') else factor)")),
    ),
    wrong(
        "order_of_the_state",
        "You go through factors and state side by side. The state may be in another order: go by names.",
        edit(
            (
                f"{LOOP}{COPY}",
                "for factor, found in zip(factors.values(), state.values()):\n"
                "            factor.copy_(found if found.shape == factor.shape else torch.zeros(()))",
            )
        ),
    ),
    wrong(
        "taken_out_of_the_state",
        "You take the keys out of the caller's dict as you go. He may want to load it into another model as well.",
        edit((COPY, "factor.copy_(state.pop(name))")),
    ),
    wrong(
        "training_switched_on",
        "Factors that were frozen require a gradient after your call.",
        edit((COPY, "factor.copy_(state[name]).requires_grad_(True)")),
    ),
    wrong(
        "through_half_precision",
        "The numbers pass through half precision on their way, and lose digits.",
        edit((COPY, "factor.copy_(state[name].half())")),
    ),
    wrong(
        "looked_up_among_parameters",
        "You look the factors up among named_parameters(), which has one that two layers share under its first name "
        "alone: the other name is missing there, when half of the copies are made. Keep the factors of each module.",
        edit((COPY, "dict(model.named_parameters())[name].copy_(state[name])")),
    ),
    wrong(
        "digits_lost_on_the_way",
        "The numbers pass through float32, or through the dtype of the base or of another parameter, such as the first "
        "of the model, and lose digits that the factor could hold. copy_ casts to the factor's dtype by itself.",
        edit((COPY, "factor.copy_(state[name].float())")),
        edit((COPY, f"factor.copy_(state[name].to({PUT}.base.weight.dtype))")),
        edit((COPY, "factor.copy_(state[name].to(next(model.parameters()).dtype))")),
        rounds_to=torch.float32,
    ),
    wrong(
        "second_names_accepted",
        "You accept keys under the second name of a layer that stands at two places. No factor has that name in a "
        "state: adapter_state gives the first.",
        edit(
            (
                UNEXPECTED,
                "    known = [name for name, _ in model.named_parameters(remove_duplicate=False)]\n"
                + UNEXPECTED.replace("not in factors", "not in factors and name not in known"),
            )
        ),
    ),
    wrong(
        "gradient_of_the_state_switched_off",
        "You call requires_grad_ on a tensor of the caller's state, which requires no gradient any more. detach() "
        "makes a tensor of your own.",
        edit((COPY, "factor.copy_(state[name].requires_grad_(False))")),
        fails=("state_as_it_was",),
    ),
    wrong(
        "nothing_is_an_error",
        "You raise an error where there is no adapter, or where the state is empty. If both are so, all fits.",
        edit(("    if wrong:\n", '    wrong += [] if factors else ["no adapter"]\n    if wrong:\n')),
    ),
    wrong(
        "by_the_names_of_parameters",
        "You go by the names A and B: other modules may have parameters of that name, of which no state knows.",
        edit(
            (
                MISSING,
                "    every = model.named_parameters()\n"
                "    factors = {name: p for name, p in every if name.rpartition('.')[2] in ('A', 'B')}\n"
                f"{MISSING}",
            )
        ),
    ),
    wrong(
        "every_place",
        "You demand keys for each name of a module that stands at two places. The state has the first alone.",
        edit((NAMED, "model.named_modules(remove_duplicate=False)")),
    ),
    wrong(
        "root_left_out",
        'The model itself may be adapted; the state\'s keys are then "A" and "B", without a dot.',
        edit((KIND, "if path and isinstance(module, Adapted):")),
        edit(('f"{path}." if path else ""', 'f"{path}."')),
    ),
    wrong(
        "just_this_class",
        "You compare the type with Adapted. A class derived from it is of this kind, too.",
        edit((KIND, "if type(module) is Adapted:")),
    ),
    wrong(
        "trained_alone",
        "You load what requires a gradient, and refuse keys of an adapter that is frozen at present.",
        edit((KIND, "if isinstance(module, Adapted) and module.A.requires_grad:")),
    ),
)
