"""Right and wrong ways to write `wrap_policy`."""

from __future__ import annotations

import copy
import itertools
from functools import partial

from torch import nn
from torch.distributed.fsdp.wrap import _recursive_wrap, size_based_auto_wrap_policy

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.fsdp.wrap_policy import wrap_policy


def torchs_policy(model: nn.Module, min_params: int, blocks: tuple[type[nn.Module], ...] = ()) -> list[list[str]]:
    """torch's recursion and policy, on a copy of the model in which what is tied stands where all uses are seen."""
    names = [name for name, _ in model.named_parameters()]
    model = copy.deepcopy(model)
    known = dict(zip(model.parameters(), names, strict=True))
    uses: dict[nn.Parameter, list[list[str]]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        uses.setdefault(p, []).append(name.split("."))
    for p, paths in uses.items():
        if len(paths) > 1:
            for path in paths:
                model.get_submodule(".".join(path[:-1]))._parameters.pop(path[-1], None)
            steps = itertools.takewhile(
                lambda step: len({*step}) == 1, zip(*(each[:-1] for each in paths), strict=False)
            )
            home = model.get_submodule(".".join(step[0] for step in steps))
            home.register_parameter(f"tied_{'_'.join(paths[0])}", p)
    for module in list(model.modules()):
        if isinstance(module, blocks):  # torch never wraps what it keeps as a leaf: so make it one
            parameters = list(module.parameters())
            for child, _ in list(module.named_children()):
                delattr(module, child)
            for place, p in enumerate(parameters):
                module.register_parameter(f"moved_{place}", p)
    units: list[list[str]] = []

    def wrap(module: nn.Module) -> nn.Module:
        units.append([known.pop(p) for p in module.parameters() if p in known])
        return module

    policy = partial(
        size_based_auto_wrap_policy,
        min_num_params=min_params,
        force_leaf_modules=set(),
        exclude_wrap_modules={nn.ModuleList, nn.ModuleDict},
    )
    _recursive_wrap(model, policy, wrap, set(), set(), only_wrap_children=True)
    return [*units, list(known.values())] if known else units


def leftovers_returned(model: nn.Module, min_params: int, blocks: tuple[type[nn.Module], ...] = ()) -> list[list[str]]:
    """Each call returns what its module leaves over; tied ones are counted by how many uses were met."""
    total: dict[int, int] = {}
    for _, p in model.named_parameters(remove_duplicate=False):
        total[id(p)] = total.get(id(p), 0) + 1
    units = []

    def collect(module: nn.Module, splits: bool) -> dict[int, tuple[nn.Parameter, int]]:
        met: dict[int, tuple[nn.Parameter, int]] = {}
        children = [child for child in module._modules.values() if child is not None]  # one may stand here twice
        inner = [collect(child, splits and not isinstance(module, blocks)) for child in children]
        own = [{id(p): (p, 1)} for p in module._parameters.values() if p is not None]
        for each in own + inner:
            for key, (p, count) in each.items():
                met[key] = p, count + (met[key][1] if key in met else 0)
        whole = {key: p for key, (p, count) in met.items() if count == total[key]}
        wraps = splits and module is not model and not isinstance(module, (nn.ModuleList, nn.ModuleDict))
        if not wraps or sum(p.numel() for p in whole.values()) < min_params:
            return met
        units.append(set(whole))
        return {key: found for key, found in met.items() if key not in whole}

    left = set(collect(model, True))
    names = {id(p): name for name, p in model.named_parameters()}
    return [[names[key] for key in unit] for unit in ([*units, left] if left else units)]


RIGHT = (
    right(torchs_policy, independent="torch.distributed.fsdp.wrap.size_based_auto_wrap_policy"),
    right(leftovers_returned),
)


def outer_ones_first(model: nn.Module, min_params: int, blocks: tuple[type[nn.Module], ...] = ()) -> list[list[str]]:
    """Modules in the order of named_modules(), each with all that is free in it."""
    free = {p: name for name, p in model.named_parameters()}
    units = []
    for path, module in model.named_modules():
        here = [p for p in module.parameters() if p in free]
        if (
            path
            and not isinstance(module, (nn.ModuleList, nn.ModuleDict))
            and sum(p.numel() for p in here) >= min_params
        ):
            units.append([free.pop(p) for p in here])
    return [*units, [*free.values()]] if free else units


edit = partial(edited, wrap_policy)
NAMES, KEEP = "model.named_parameters(remove_duplicate=False)", "uses.setdefault(p, []).append(name)"
INNER, ALL_USES = "if not isinstance(module, blocks):", "all(name.startswith(path) for name in names)"
FREE, LARGE = f"[p for p, names in uses.items() if {ALL_USES}]", "sum(p.numel() for p in free) >= min_params"
WRAPPED = "path and not isinstance(module, (nn.ModuleList, nn.ModuleDict))"
LAST = "    if uses:\n        close(list(uses))\n"

WRONG = (
    wrong(
        "a_unit_for_each_parameter",
        "Every parameter of yours is a unit: as many collectives as parameters, each with its latency. A unit is a "
        "module with enough elements.",
        edit(('    visit(model, "")\n', ""), (LAST, "    for each in list(uses):\n        close([each])\n")),
    ),
    wrong(
        "a_unit_for_each_leaf",
        "Every module that has parameters of its own is a unit of yours, however small. What is below min_params is "
        "left over for the module around it.",
        edit((LARGE, "free")),
    ),
    wrong(
        "one_unit",
        "All parameters are one unit: when it is gathered, every rank holds the full model.",
        edit(('    visit(model, "")\n', "")),
    ),
    wrong(
        "tied_in_two_units",
        "A tied parameter stands in your units under both of its names. It has one memory and one shard: put it into "
        "one unit, under the name that named_parameters() gives it.",
        edit((KEEP, "uses[nn.Parameter(p.detach())] = [name]")),
    ),
    wrong(
        "tied_to_its_first_use",
        "A tied parameter goes into the unit of its first use. That unit is freed before the other use, far away, "
        "needs it: wait for the module in which all are, be they more than two.",
        edit((NAMES, "model.named_parameters()")),
        edit((ALL_USES, "all(name.startswith(path) for name in names[:2])")),
    ),
    wrong(
        "blocks_take_what_is_tied",
        "A block takes with it what it shares with a module outside of it, and frees that before the other use. A "
        "block is whole, but what is tied waits for the module in which all of its uses are, as anywhere else.",
        edit((ALL_USES, f"(any if isinstance(module, blocks) else all){ALL_USES.removeprefix('all')}")),
    ),
    wrong(
        "tied_to_the_root",
        "You leave tied parameters to the root in any case. Where an inner module has all uses in it, it is enough.",
        edit(
            (
                FREE,
                "[p for p, names in uses.items() if path in ('', *{n[: len(path)] for n in names}) and "
                "len(names) == 1 and names[0].startswith(path)]",
            )
        ),
        edit(
            (
                FREE,
                f"[p for p, names in uses.items() if {ALL_USES} and "
                "not (path and len(names) > 1 and len({n.rpartition('.')[0] for n in names}) == 1)]",
            )
        ),
    ),
    wrong(
        "each_child_once",
        "You count the uses of a shared module by `children()`, which leaves out one that it has given before, and so "
        "never meet its other name in the same module. `named_parameters(remove_duplicate=False)` tells all.",
        edited(leftovers_returned, ("module._modules.values() if child is not None", "module.children()")),
    ),
    wrong(
        "blocks_split",
        "Modules in a block are units of yours. A block is computed as a whole: leave the modules in it alone.",
        edit((INNER, "if True:")),
    ),
    wrong(
        "blocks_but_for_what_is_deeper",
        "You leave the modules in a block alone, and not those in its modules: `mlp.up` becomes a unit of its own. No "
        "module in a block becomes one, however deep it is.",
        edited(leftovers_returned, ("splits and not isinstance(module, blocks)", "not isinstance(module, blocks)")),
    ),
    wrong(
        "blocks_of_just_this_class",
        "You compare classes with == or `in`, and split blocks of a derived class. isinstance takes both.",
        edit((INNER, "if type(module) not in blocks:")),
    ),
    wrong(
        "one_class_of_blocks",
        "You look at one of the classes in `blocks`, or break where there is none: isinstance takes the tuple as it "
        "is, of no class, one or several.",
        edit((INNER, "if not isinstance(module, blocks[:1]):")),
        edit((INNER, "if not isinstance(module, blocks[-1:]):")),
        edit((INNER, "first, *_ = blocks\n        if not isinstance(module, first):")),
    ),
    wrong(
        "blocks_in_any_case",
        "Every block is a unit of yours, even with fewer than min_params elements. Small ones go with the module "
        "around them.",
        edit((LARGE, f"({LARGE} or isinstance(module, blocks))")),
    ),
    wrong(
        "blocks_left_out",
        "You leave blocks out altogether, with all that is in them. A block is not split, but it is a unit itself.",
        edit((WRAPPED, f"{WRAPPED} and not isinstance(module, blocks)")),
    ),
    wrong(
        "outer_ones_first",
        "You ask a module before those in it, so that it takes everything, and units are as large as they can be. Ask "
        "the children first.",
        outer_ones_first,
    ),
    wrong(
        "root_first",
        "Your units are right, but not in their order: inner modules come before outer ones, in the order of "
        "named_children(), blocks as all others, and the root's unit comes last.",
        edit(("units.append([", "units.insert(0, [")),
        edit(("in module.named_children()", "in reversed([*module.named_children()])")),
        edit(
            (
                '    visit(model, "")\n',
                "    for path, module in model.named_modules():\n"
                "        if path and isinstance(module, blocks):\n"
                '            visit(module, f"{path}.")\n'
                '    visit(model, "")\n',
            )
        ),
        fails=("order",),
    ),
    wrong(
        "more_than_min_params",
        "Exactly min_params elements are enough: compare with >=.",
        edit((LARGE, LARGE.replace(">=", ">"))),
    ),
    wrong(
        "parameters_counted",
        "You count parameters, or their rows, and not their elements: p.numel().",
        edit((LARGE, "len(free) >= min_params")),
        edit((LARGE, LARGE.replace("p.numel()", "len(p)"))),
    ),
    wrong(
        "bytes_counted",
        "You count bytes where min_params is a number of elements.",
        edit((LARGE, LARGE.replace("numel()", "nbytes"))),
    ),
    wrong(
        "buffers_counted",
        "You count buffers with the parameters. They are not sharded.",
        edit((LARGE, "sum(p.numel() for p in [*free, *module.buffers()]) >= min_params")),
    ),
    wrong(
        "counts_what_is_wrapped",
        "You count all parameters of a module, those too that are in units already: so each module around a unit "
        "becomes one, with whatever little is left.",
        edit((LARGE, f"free and {LARGE.replace('in free', 'in module.parameters()')}")),
    ),
    wrong(
        "own_parameters_alone",
        "You count only what a module has itself. What its children left over belongs to it, too: several small "
        "modules together may be enough.",
        edit((ALL_USES, "all(name.rpartition('.')[0] == path[:-1] for name in names)")),
    ),
    wrong(
        "lists_wrapped",
        "A ModuleList or ModuleDict is a unit of yours. It has no forward, before which it could be gathered: leave "
        "its parameters to the module around it.",
        edit((WRAPPED, "path")),
        edit((WRAPPED, "path and not isinstance(module, nn.ModuleList)")),
    ),
    wrong(
        "sequential_left_out",
        "nn.Sequential has a forward, which a ModuleList has not: it becomes a unit as any other module does.",
        edit(("(nn.ModuleList, nn.ModuleDict)", "(nn.ModuleList, nn.ModuleDict, nn.Sequential)")),
    ),
    wrong(
        "lists_closed",
        "You do not look into a ModuleDict or a ModuleList. It is no unit itself, but modules in it may be.",
        edit((INNER, "if not isinstance(module, (*blocks, nn.ModuleDict)):")),
        edit((INNER, "if not isinstance(module, (*blocks, nn.ModuleDict, nn.ModuleList)):")),
    ),
    wrong(
        "prefix_without_its_dot",
        "You compare the beginnings of names without the dot at the end of a module's name: `embed` then has "
        "everything in it that is in `embed_back`, too.",
        edit((ALL_USES, "all(name.startswith(path[:-1]) for name in names)")),
    ),
    wrong(
        "tied_counted_twice",
        "You count a tied parameter once for each of its names. It has its elements once.",
        edit((LARGE, LARGE.replace("p.numel()", "p.numel() * len(uses[p])"))),
        edit(
            (
                LARGE,
                "sum(p.numel() for _, p in module.named_parameters(remove_duplicate=False) if id(p) in map(id, free)) "
                ">= min_params",
            )
        ),
    ),
    wrong(
        "model_is_no_block",
        "The model itself is a block here, and you split it. A block's modules become no units, wherever it is.",
        edit((INNER, "if not path or not isinstance(module, blocks):")),
    ),
    wrong(
        "frozen_do_not_count",
        "Frozen parameters do not count with you, or are in no unit. Each rank needs them in forward, as all others.",
        edit((LARGE, LARGE.replace("in free", "in free if p.requires_grad"))),
        edit((KEEP, f"if p.requires_grad:\n            {KEEP}")),
    ),
    wrong(
        "nothing_for_the_root",
        "What no module has wrapped is missing. It belongs to the last unit, the root's, also where that is a dict.",
        edit((LAST, "")),
        edit((LAST, LAST.replace("if uses:", "if uses and not isinstance(model, (nn.ModuleList, nn.ModuleDict)):"))),
    ),
    wrong(
        "an_empty_unit",
        "Where nothing is left for the root, your last unit is empty. Leave it out.",
        edit((LAST, "    close(list(uses))\n")),
    ),
)
