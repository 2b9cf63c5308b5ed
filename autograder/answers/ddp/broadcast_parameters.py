"""Right and wrong ways to write `broadcast_parameters`."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.ddp.broadcast_parameters import broadcast_parameters


def as_one_row_of_bytes(comm: Comm, model: nn.Module) -> None:
    """One message of bytes, whatever they mean."""
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors:
        return
    flat = torch.cat([each.detach().clone().flatten().view(torch.uint8) for each in tensors])
    comm.broadcast(flat, src=0)
    with torch.no_grad():
        for each, piece in zip(tensors, torch.split(flat, [each.nbytes for each in tensors]), strict=True):
            each.copy_(piece.clone().view(each.dtype).reshape(each.shape))


def begun_together(comm: Comm, model: nn.Module) -> None:
    """Through modules, by hand; all broadcasts are begun before the first is waited for."""
    known: dict[int, torch.Tensor] = {}
    for inner in model.modules():
        known |= {id(each): each for each in inner._parameters.values() if each is not None}
        known |= {id(each): each for each in inner._buffers.values() if each is not None}
    for work in [comm.broadcast(each.data, 0, async_op=True) for each in known.values()]:
        work.wait()


def from_a_copy(comm: Comm, model: nn.Module) -> None:
    """Receives into new tensors, and copies."""
    with torch.no_grad():
        for own in [*model.parameters(), *model.buffers()]:
            came = own.clone() if comm.rank == 0 else torch.empty_like(own)
            comm.broadcast(came, 0)
            own.copy_(came)


RIGHT = (
    right(as_one_row_of_bytes, independent="the bytes of all tensors in one row"),
    right(begun_together),
    right(from_a_copy),
)


def through_float32(comm: Comm, model: nn.Module) -> None:
    """One flat tensor, of one dtype."""
    tensors = [*model.parameters(), *model.buffers()]
    flat = torch.cat([each.detach().float().reshape(-1) for each in tensors])
    comm.broadcast(flat, 0)
    for each, piece in zip(tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True):
        each.data.copy_(piece.view(each.shape))


edit, copied = partial(edited, broadcast_parameters), partial(edited, from_a_copy)
IMPORTS = ("import itertools", "import itertools\n\nimport torch\nfrom torch import nn")
WITH_NUMBERS = (
    "import itertools",
    "import itertools\n\nimport torch\n\nNUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.int64)",
)
ALL, ONE = "itertools.chain(model.parameters(), model.buffers())", "comm.broadcast(tensor.detach(), 0)"
CAME = "own.clone() if comm.rank == 0 else torch.empty_like(own)"
OWN_ALL, COPY = "[*model.parameters(), *model.buffers()]", "own.copy_(came)"
NAMED = "for name, own in [*model.named_parameters(), *model.named_buffers()]:"
IN_MODULE = (
    "                path, _, last = name.rpartition('.')\n                setattr(model.get_submodule(path), last, "
)
NO_GRADS = "\n    for parameter in model.parameters():\n        parameter.grad = None\n"

WRONG = (
    wrong(
        "buffers_forgotten",
        "The parameters are rank 0's, but the buffers are still each rank's own: with other running means in its "
        "BatchNorm layers a rank computes another function. `model.buffers()` has them.",
        edit((ALL, "model.parameters()")),
    ),
    wrong(
        "buffers_that_are_saved",
        "You take the tensors from the state_dict, which leaves out buffers that were registered with "
        "`persistent=False` (and which has a tied parameter once for each of its names). Take `model.parameters()` and "
        "`model.buffers()`.",
        edit((ALL, "model.state_dict().values()")),
    ),
    wrong(
        "floating_tensors_only",
        "Whole numbers and booleans are left out: the number of batches that BatchNorm has seen, a mask. The verbs "
        "take tensors of every dtype.",
        edit((ONE, "tensor.is_floating_point() and " + ONE)),
    ),
    wrong(
        "frozen_forgotten",
        "You skip the parameters that require no gradient. They are part of the function, and no step will ever make "
        "them alike.",
        edit((ALL, f"(each for each in {ALL} if each.requires_grad)")),
        edit(IMPORTS, (ONE, f"if tensor.requires_grad or not isinstance(tensor, nn.Parameter):\n            {ONE}")),
    ),
    wrong(
        "from_another_rank",
        "All ranks agree, but on another model than rank 0's. The source is rank 0.",
        edit((ONE, ONE.replace("0", "comm.size - 1"))),
    ),
    wrong(
        "each_from_itself",
        "Every rank names itself as the source, so that no two of them make the same call. `src` says whose tensor all "
        "get: it is 0 on every rank.",
        edit((ONE, ONE.replace("0", "comm.rank"))),
    ),
    wrong(
        "rank_0_alone_calls",
        "Only rank 0 makes the call, and waits for the others. A broadcast is a collective: those who receive must "
        "call it, too.",
        edit((ONE, f"if comm.rank == 0:\n            {ONE}")),
    ),
    wrong(
        "into_a_copy",
        "You receive into a copy, and the model keeps what it had. Receive into the tensor itself (`detach()` shares "
        "its memory, `clone()` does not), or copy what came into it.",
        edit(("tensor.detach()", "tensor.detach().clone()")),
        copied((COPY, "own = came")),
    ),
    wrong(
        "into_a_copy_of_views",
        "A parameter, or a buffer, that is no contiguous tensor keeps its values: `reshape` and `contiguous` make a "
        "copy of such a one without a word, and what you receive there is thrown away. The verbs take any strides.",
        edit(("tensor.detach()", "tensor.detach().reshape(-1)")),
        edit(("tensor.detach()", "tensor.detach().contiguous()")),
        edit(
            IMPORTS,
            (ONE, ONE.replace("tensor.detach()", "tensor if isinstance(tensor, nn.Parameter) else tensor.reshape(-1)")),
        ),
    ),
    wrong(
        "flattened_by_view",
        "`view(-1)` cannot flatten a parameter that is not contiguous, and raises. It need not be flattened: the verbs "
        "take tensors of any shape and strides.",
        edit(("tensor.detach()", "tensor.detach().view(-1)")),
        fails=("views", "in_place"),
    ),
    wrong(
        "new_tensors",
        "The model has rank 0's values, but in new memory. An optimizer that was made before goes on with the old "
        "Parameter objects, and a view of the old memory shows the old values. Write into what is there, with `copy_`.",
        copied((COPY, "own.data = came")),
        edit((ONE, f"tensor.data = tensor.data.contiguous()\n        {ONE}")),
        copied(
            ("import torch\n", "import torch\nfrom torch import nn\n"),
            (f"for own in {OWN_ALL}:", NAMED),
            (
                COPY,
                "if isinstance(own, nn.Parameter):\n"
                f"{IN_MODULE}nn.Parameter(came, requires_grad=own.requires_grad))\n"
                "                model.get_parameter(name).grad = own.grad\n"
                f"            else:\n{IN_MODULE}came)",
            ),
        ),
        fails=("in_place",),
    ),
    wrong(
        "sums",
        "You add up what all ranks have. They agree afterwards, but P models added are no model that anybody has "
        "initialised.",
        edit((ONE, f"comm.all_reduce(tensor.detach()) if tensor.dtype in NUMBERS else {ONE}"), WITH_NUMBERS),
    ),
    wrong(
        "averages",
        "You average what all ranks have. They agree afterwards, but the mean of P random weights is smaller than one "
        "of them, by a factor of the square root of P: that is another initialisation.",
        edit((ONE, f"comm.all_reduce(tensor.detach(), 'mean') if tensor.is_floating_point() else {ONE}")),
    ),
    wrong(
        "zeros_added",
        "You multiply the other ranks' values by 0 and add up. Where they hold nan or inf that gives nan, and an "
        "all_reduce sends up to twice the bytes. Broadcast overwrites, whatever was there.",
        edit(
            (
                ONE,
                "if tensor.dtype not in NUMBERS:\n"
                f"            {ONE}\n"
                "            continue\n"
                "        tensor.data *= int(comm.rank == 0)\n"
                "        comm.all_reduce(tensor.detach())",
            ),
            WITH_NUMBERS,
        ),
    ),
    wrong(
        "computes_with_the_values",
        "You compute with rank 0's values where they should be copied: -0.0 + 0.0 is 0.0, and nan_to_num takes what "
        "rank 0 does have. `copy_` changes no bit.",
        copied((COPY, "own.zero_().add_(came) if own.is_floating_point() else own.copy_(came)")),
        copied((COPY, "own.copy_(came.nan_to_num() if own.is_floating_point() else came)")),
        copied((COPY, "own.copy_(came.where(own != came, own))")),
        fails=("whatever_the_others_hold",),
    ),
    wrong(
        "more_bytes_than_the_model",
        "The values are right, but more travels than the model has. A tensor with two names is sent once: keep in mind "
        "which ones you had (by `id`), or take `model.parameters()`, which gives each once. And half precision is sent "
        "as it is, not in float32.",
        edit((ALL, "(each for _, each in [*model.named_parameters(remove_duplicate=False), *model.named_buffers()])")),
        edit(("model.buffers()", "(each for _, each in model.named_buffers(remove_duplicate=False))")),
        copied((CAME, "own.float() if own.element_size() == 2 else own.clone()")),
        copied((CAME, "own.double() if own.dtype == torch.float32 else own.clone()")),
        fails=("bytes",),
    ),
    wrong(
        "through_another_dtype",
        "All tensors travel in one dtype, and those of another are rounded on the way: float64 loses digits, and so do "
        "whole numbers beyond the digits of float32, and of float64 from 2**53 on. Send each in its own dtype.",
        through_float32,
        copied((CAME, "own.float()")),
        copied((CAME, "own.clone() if own.is_floating_point() else own.double()")),
        copied((CAME, "own.half() if own.dtype == torch.bfloat16 else own.clone()")),
        copied((CAME, "own.bfloat16() if own.dtype == torch.float16 else own.clone()")),
    ),
    wrong(
        "clears_the_gradients",
        "The values are right, but you have changed `.grad` as well. Only values are to become rank 0's.",
        edit((ONE, ONE + NO_GRADS)),
        copied((COPY, f"{COPY}\n            own.grad = None")),
    ),
    wrong(
        "changes_requires_grad",
        "The values are right, but `requires_grad` of some parameters is another one than before: a frozen one would "
        "now be trained, or one that is trained be frozen. Use `detach()` or `torch.no_grad()`, which change nothing.",
        edit(IMPORTS, (ONE, f"{ONE}\n        tensor.requires_grad_(isinstance(tensor, nn.Parameter))")),
        edit((ONE, f"tensor.requires_grad_(False)\n        {ONE}")),
    ),
)
