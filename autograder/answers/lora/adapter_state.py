"""Right and wrong ways to write `adapter_state`."""

from __future__ import annotations

from functools import partial

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.adapted import Adapted
from course.reference.lora.adapter_state import adapter_state


def through_a_file(model: nn.Module) -> dict[str, Tensor]:
    """What safetensors writes of each factor, read again."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Adapted):
            for factor in "AB":
                key = ".".join(filter(None, (name, factor)))
                found[key] = load(save({key: getattr(module, factor).detach().contiguous()}))[key]
    return found


@torch.inference_mode()  # tensors of which one may be written to in this mode only
def from_the_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Keys of torch's own state_dict, of those modules alone."""
    prefixes = [f"{name}." if name else "" for name, each in model.named_modules() if isinstance(each, Adapted)]
    whole = model.state_dict()
    keys = [f"{prefix}{factor}" for prefix in prefixes for factor in ("A", "B")]
    return {key: whole[key].clone(memory_format=torch.contiguous_format).cpu() for key in keys}


RIGHT = (
    right(through_a_file, independent="safetensors"),
    right(from_the_state_dict),
)


def filtered_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Whatever is called A or B in the state_dict."""
    whole = model.state_dict()
    copies = {name: torch.empty(each.shape, dtype=each.dtype).copy_(each) for name, each in whole.items()}
    return {name: each for name, each in copies.items() if name.rpartition(".")[2] in ("A", "B")}


def filtered_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Whatever is called A or B among the parameters."""
    found = model.named_parameters()
    copies = {name: torch.empty(p.shape, dtype=p.dtype).copy_(p.detach()) for name, p in found}
    return {name: each for name, each in copies.items() if name.rpartition(".")[2] in ("A", "B")}


edit = partial(edited, adapter_state)
NAMED, KIND = "model.named_modules()", "if isinstance(module, Adapted):"
COPY, KEY = "copy.copy_(factor.detach())", 'f"{path}.{name}".removeprefix(".")'
FACTORS = '(("A", module.A), ("B", module.B))'

WRONG = (
    wrong(
        "whole_model",
        "You return all of the model. The file of an adapter holds A and B of each adapted layer: the base is the same "
        "for all adapters.",
        edit(
            (KIND, "if True:"),
            (FACTORS, "module.named_parameters(recurse=False)"),
        ),
    ),
    wrong(
        "base_too",
        "You take all that is in an adapted layer. The weight in its base belongs to the model.",
        edit((FACTORS, "module.named_parameters()")),
        edit((FACTORS, "module.state_dict().items()")),
    ),
    wrong(
        "by_the_names_of_parameters",
        "You go by the names A and B. Other modules may have parameters or buffers of that name; and "
        "named_parameters() leaves out the second use of a shared one, state_dict() no second place of a module.",
        filtered_parameters,
        filtered_state_dict,
    ),
    wrong(
        "what_trains",
        "You take what requires a gradient. An adapter that is frozen at present is an adapter too.",
        edit((FACTORS, f"((name, p) for name, p in {FACTORS} if p.requires_grad)")),
    ),
    wrong(
        "merged_left_out",
        "You leave merged layers out. Merged or not, their factors are the adapter.",
        edit((KIND, "if isinstance(module, Adapted) and not module.merged:")),
    ),
    wrong(
        "just_this_class",
        "You compare the type with Adapted. A class derived from it is of this kind, too.",
        edit((KIND, "if type(module) is Adapted:")),
    ),
    wrong(
        "direct_children_alone",
        "You look only at the children of the model: layers in layers are missing.",
        edit((NAMED, "model.named_children()")),
    ),
    wrong(
        "every_place",
        "A module that stands at two places comes twice with you. One of its names is enough, the first.",
        edit((NAMED, "model.named_modules(remove_duplicate=False)")),
    ),
    wrong(
        "last_name",
        "A module at two places comes by the last of its names. Other functions know it by the first.",
        edit(
            (NAMED, "{m: (n, m) for n, m in model.named_modules(remove_duplicate=False)}.values()"),
        ),
    ),
    wrong(
        "shared_factor_once",
        "Where two layers share a factor, the second lacks its key. Each adapted layer has two.",
        edit(
            (
                FACTORS,
                f"[(n, p) for n, p in {FACTORS} if not any(torch.equal(p.to(e.dtype).flatten(), e.flatten()) "
                "for e in state.values() if e.numel() == p.numel())]",
            )
        ),
    ),
    wrong(
        "root_with_a_dot",
        'Where the model itself is adapted its name is "", and your keys begin with a dot: .A instead of A.',
        edit((KEY, 'f"{path}.{name}"')),
    ),
    wrong(
        "root_left_out",
        "The model itself may be adapted: named_modules() begins with it, under an empty name.",
        edit((KIND, "if path and isinstance(module, Adapted):")),
    ),
    wrong(
        "last_part_of_the_name",
        "Your keys are the last parts of names: layers of the same name in other blocks overwrite each other.",
        edit((KEY, "f\"{path.rpartition('.')[2]}.{name}\".removeprefix('.')")),
    ),
    wrong(
        "sorted",
        "Your keys are in the order of the alphabet, where the model's is asked for.",
        edit(("    return state", "    return dict(sorted(state.items()))")),
    ),
    wrong(
        "b_first",
        "Of each layer A comes first, then B.",
        edit((FACTORS, '(("B", module.B), ("A", module.A))')),
    ),
    wrong(
        "not_copied",
        "detach() shares the memory of the factor, and so do .cpu() and .contiguous() where there is nothing to do: "
        "the next step of the optimizer changes what you returned. Clone it.",
        edit((COPY, "factor.detach()")),
        edit((COPY, "factor.detach().cpu().contiguous()")),
        edit((COPY, "factor.data")),
        edit((COPY, f"{COPY} if factor.requires_grad else factor.data")),
    ),
    wrong(
        "gradient_kept",
        "What you return still requires a gradient, or hangs on the graph. Detach it.",
        edit((COPY, "torch.nn.Parameter(copy.copy_(factor.detach()))")),
        edit((COPY, "factor.clone(memory_format=torch.contiguous_format)")),
        edit((COPY, "__import__('copy').deepcopy(factor)")),
    ),
    wrong(
        "strides_kept",
        "clone() keeps the order in memory: of a transposed factor you return a tensor that is not contiguous.",
        edit((COPY, "factor.detach().clone()")),
        edit((COPY, "factor.detach().contiguous().clone() if factor.is_contiguous() else factor.detach().clone()")),
    ),
    wrong(
        "in_one_buffer",
        "Your tensors are views into one long buffer: each keeps all of it alive, and safetensors refuses them.",
        edit(
            (
                "    return state",
                "    flat = torch.cat([each.flatten() for each in state.values()] or [torch.zeros(0)])\n"
                "    parts = flat.split([each.numel() for each in state.values()] or [0])\n"
                "    return {name: part.view(each.shape) for (name, each), part in zip(state.items(), parts)}",
            )
        ),
    ),
    wrong(
        "always_float32",
        "You convert to float32. A factor in half precision would need twice its bytes in the file, and comes back in "
        "another dtype.",
        edit((COPY, "copy.copy_(factor.detach()).float()")),
    ),
    wrong(
        "through_half_precision",
        "You save in half precision, which loses digits of the factors.",
        edit((COPY, "copy.copy_(factor.detach()).half().to(factor.dtype)")),
    ),
    wrong(
        "digits_lost_on_the_way",
        "The numbers pass through float32, or through the dtype of the base, and lose digits that the factor has. Copy "
        "them as they are.",
        edit((COPY, "copy.copy_(factor.detach().float())")),
        edit((COPY, "copy.copy_(factor.detach().to(module.base.weight.dtype))")),
        rounds_to=torch.float32,
    ),
    wrong(
        "scaled",
        "You multiply a factor by the scale. The file holds A and B as they are.",
        edit(('("B", module.B)', '("B", module.scale * module.B)')),
    ),
    wrong(
        "frozen_behind_you",
        "The factors in the model do not require a gradient any more after the call: you called requires_grad_ or "
        "detach_ on the parameter itself.",
        edit((COPY, "copy.copy_(factor.requires_grad_(False))")),
        edit((COPY, "copy.copy_(factor.detach_())")),
    ),
    wrong(
        "leaves_a_trace_in_the_model",
        "The numbers in the model are what they were, and it is in another mode than before, or has a hook more. To "
        "read parameters takes neither.",
        edit((NAMED, "model.eval().named_modules()")),
        edit((NAMED, "model.train().named_modules()")),
        edit((KIND, f"{KIND}\n            module.register_forward_hook(lambda *given: None)")),
    ),
    wrong(
        "moves_the_factors",
        "You put the factors of the model itself into other memory to make them contiguous. Others may hold views of "
        "the old one: make the copy contiguous, and leave the factor.",
        edit((COPY, "copy.copy_(factor.detach())\n                factor.data = factor.data.contiguous()")),
        fails=("model_as_it_was",),
    ),
    wrong(
        "unmerges_the_model",
        "You take merged adapters out of the weights, and leave the model so. The factors are the same merged or not: "
        "read them, and change nothing.",
        edit(
            (
                KIND,
                f"{KIND}\n            module.base.weight.data -= module.merged * module.scale * module.B @ module.A",
            ),
        ),
    ),
)
