"""Right and wrong ways to write `inject`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from torch import nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.adapted import Adapted
from course.reference.lora.inject import inject


def with_set_submodule(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """torch's own walk leaves a base out where its name begins with an adapter's; torch puts the adapters in."""
    found = [(f".{name}", module) for name, module in model.named_modules(remove_duplicate=False)]
    inside = tuple(f"{name.rstrip('.')}." for name, module in found if isinstance(module, Adapted))
    linears = [(name[1:], m) for name, m in found if isinstance(m, nn.Linear) and not name.startswith(inside)]
    whole = re.compile(rf"(?:{pattern})\Z")
    wanted = {id(m) for name, m in linears if name and whole.match(name)}
    if not wanted:
        raise ValueError(f"nothing in the model matches {pattern}")
    first = {id(m): name for name, m in reversed(linears)}
    made = {id(m): wrap(m) for name, m in linears if id(m) in wanted and first[id(m)] == name}
    model.requires_grad_(False)
    for name, m in linears:
        if id(m) in wanted:
            model.set_submodule(name, made[id(m)])
    for each in made.values():
        each.A.requires_grad_(True)
        each.B.requires_grad_(True)
    return [first[key] for key in made]


def by_recursion(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """Walks parents and children itself, and freezes all but what it has made at the end."""

    def places(parent: nn.Module, path: str) -> Iterator[tuple[nn.Module, str, str, nn.Linear]]:
        for name, child in parent._modules.items():
            if isinstance(child, nn.Linear):
                yield parent, name, path + name, child
            elif child is not None and not isinstance(child, Adapted):
                yield from places(child, f"{path}{name}.")

    every = [] if isinstance(model, Adapted) else list(places(model, ""))
    names: dict[nn.Linear, str] = {}
    for _, _, path, child in every:
        names.setdefault(child, path)
    matched = {child for _, _, path, child in every if re.fullmatch(pattern, path)}
    if not matched:
        raise ValueError(f"no match: {pattern}")
    new = {child: wrap(child) for child in names if child in matched}
    for parent, name, _, child in every:
        if child in matched:
            parent._modules[name] = new[child]
    mine = {factor for each in new.values() for factor in (each.A, each.B)}
    for p in model.parameters():
        p.requires_grad = p in mine
    return [names[child] for child in new]


RIGHT = (
    right(with_set_submodule, independent="torch.nn.Module.set_submodule"),
    right(by_recursion),
)


def direct_children(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """Looks at the children of the model alone."""
    found = [
        (name, m) for name, m in model.named_children() if isinstance(m, nn.Linear) and re.fullmatch(pattern, name)
    ]
    if not found:
        raise ValueError(f"no match: {pattern}")
    made = [(name, wrap(m)) for name, m in found]
    model.requires_grad_(False)
    for name, each in made:
        setattr(model, name, each)
        each.A.requires_grad_(True)
        each.B.requires_grad_(True)
    return [name for name, _ in made]


def while_walking(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """Changes the model under the loop, which then walks into what was put in."""
    names = []
    for p in model.parameters():
        p.requires_grad_(False)
    for path, module in model.named_modules():
        for name, child in list(module.named_children()):
            whole = f"{path}.{name}" if path else name
            if isinstance(child, nn.Linear) and re.fullmatch(pattern, whole):
                setattr(module, name, wrap(child))
                names.append(whole)
    if not names:
        raise ValueError(f"no match: {pattern}")
    return names


def one_after_the_other(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """Puts each adapter in as soon as it is made; all else is right."""
    adapted = {inner for each in model.modules() if isinstance(each, Adapted) for inner in each.modules()}
    places: dict[nn.Linear, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Linear) and module is not model and module not in adapted:
            places.setdefault(module, []).append(name)
    chosen = [linear for linear, names in places.items() if any(re.fullmatch(pattern, name) for name in names)]
    if not chosen:
        raise ValueError(f"no match: {pattern}")
    model.requires_grad_(False)
    for linear in chosen:
        adapter = wrap(linear)
        for name in places[linear]:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, adapter)
    return [places[linear][0] for linear in chosen]


edit = partial(edited, inject)
KIND, MATCH = "isinstance(module, nn.Linear)", "any(re.fullmatch(pattern, name) for name in names)"
OWN, WALK = "and module not in adapted", "model.named_modules(remove_duplicate=False)"
FREEZE = "    for p in model.parameters():\n        p.requires_grad_(False)\n"
LAST, NONE = "    return [places[linear][0] for linear in chosen]", "    if not chosen:\n"
MAKE = "adapters = [wrap(linear) for linear in chosen]"
EVERY_NAME = "        for name in places[linear]:\n"
RAISE = 'raise ValueError(f"the pattern must match the name of a linear layer, got {pattern!r}: see named_modules()")'

WRONG = (
    wrong(
        "direct_children_alone",
        "You look only at the children of the model. Its layers are mostly deeper: named_modules() finds all.",
        direct_children,
    ),
    wrong(
        "changed_under_the_loop",
        "You change the model while you walk through named_modules(). The walk goes on into the adapter, finds its "
        "base, which matches as well, and wraps it again. Collect the layers in a list first.",
        while_walking,
    ),
    wrong(
        "part_of_the_name",
        "A name that only holds the pattern somewhere matches with you. re.fullmatch demands all of it.",
        edit((MATCH, MATCH.replace("fullmatch", "search"))),
    ),
    wrong(
        "beginning_of_the_name",
        "re.match is content with the beginning of a name: mlp.up_gate would match mlp.up. Use re.fullmatch.",
        edit((MATCH, MATCH.replace("fullmatch", "match"))),
    ),
    wrong(
        "end_of_the_name",
        "You match the end of a name. The pattern speaks of a name from its first letter on.",
        edit((MATCH, "any(re.search(rf'(?:{pattern})$', name) for name in names)")),
    ),
    wrong(
        "dollar_behind_the_pattern",
        "A $ behind the pattern belongs to the last of its alternatives only: a|b$ is a, or b at the end. Use "
        "re.fullmatch.",
        edit((MATCH, "any(re.match(pattern + '$', name) for name in names)")),
    ),
    wrong(
        "last_part_of_the_name",
        "You compare the pattern with the last part of a name. The name is that of named_modules(), with its dots.",
        edit((MATCH, "any(re.fullmatch(pattern, name.rpartition('.')[2]) for name in names)")),
    ),
    wrong(
        "no_regular_expression",
        "You look for the pattern as it is written. It is a regular expression: dots, stars and bars mean something.",
        edit((MATCH, "any(pattern in name for name in names)")),
        edit((MATCH, "any(name.endswith(pattern) for name in names)")),
        edit((MATCH, "pattern in names")),
    ),
    wrong(
        "just_this_class",
        "You compare the type with nn.Linear, or with Adapted. A derived class is of this kind as well: isinstance.",
        edit((KIND, "type(module) is nn.Linear")),
        edit(("if isinstance(each, Adapted)", "if type(each) is Adapted")),
    ),
    wrong(
        "every_module_with_a_weight",
        "You wrap modules that are no linear layers: a norm or an embedding has a weight, too.",
        edit((KIND, "hasattr(module, 'weight')")),
    ),
    wrong(
        "adapters_frozen_too",
        "You freeze the model after the adapters are in it, and them with it: nothing trains any more.",
        edit((LAST, f"{FREEZE}{LAST}")),
    ),
    wrong(
        "nothing_frozen",
        "You put the adapters in and freeze nothing: the whole model goes on training.",
        edit((FREEZE, "")),
    ),
    wrong(
        "bases_alone_frozen",
        "You freeze the layers that get an adapter, and leave the rest of the model training: norms, embeddings, "
        "layers that do not match.",
        edit(("for p in model.parameters():", "for p in (p for linear in chosen for p in linear.parameters()):")),
    ),
    wrong(
        "linear_layers_alone_frozen",
        "You freeze linear layers. Norms, embeddings and parameters of other modules train on.",
        edit(("for p in model.parameters():", "for p in (p for linear in places for p in linear.parameters()):")),
    ),
    wrong(
        "biases_train",
        "You freeze weights, and the biases train on.",
        edit(
            (
                "for p in model.parameters():\n        p.requires_grad_(False)",
                "for name, p in model.named_parameters():\n        p.requires_grad &= 'bias' in name",
            )
        ),
    ),
    wrong(
        "known_by_their_names",
        "You let everything train that is called A or B. A model may have such parameters of its own: let those of the "
        "new adapters train, by identity.",
        edit(
            (
                LAST,
                "    for name, p in model.named_parameters():\n"
                "        p.requires_grad_(name.rpartition('.')[2] in ('A', 'B'))\n"
                f"{LAST}",
            )
        ),
    ),
    wrong(
        "earlier_adapters_train_on",
        "Adapters of an earlier call are frozen with the rest of the model. You leave, or set, them training.",
        edit(
            (
                LAST,
                "    for each in model.modules():\n"
                "        if isinstance(each, Adapted):\n"
                "            each.A.requires_grad_(True)\n"
                "            each.B.requires_grad_(True)\n"
                f"{LAST}",
            )
        ),
    ),
    wrong(
        "adapter_in_an_adapter",
        "The base inside an adapter is a linear layer too, and its name may match. You wrap it a second time.",
        edit((OWN, "")),
    ),
    wrong(
        "one_of_two_places",
        "A layer that stands at two places is replaced at one: the other still leads to the bare layer, without an "
        "adapter. Ask for named_modules(remove_duplicate=False).",
        edit((EVERY_NAME, "        for name in places[linear][:1]:\n")),
        edit((WALK, "model.named_modules()")),
    ),
    wrong(
        "wrapped_once_per_name",
        "A layer with two names is wrapped twice, so that each place learns something else. It was one layer, and "
        "stays one.",
        edit(
            (
                f"{EVERY_NAME}",
                f"{EVERY_NAME}            adapter = adapter if name == places[linear][0] else wrap(linear)\n",
            )
        ),
    ),
    wrong(
        "matching_places_alone",
        "Of a layer with two names you replace the places whose name matches. The layer gets one adapter, and it "
        "stands at all its places.",
        edit((EVERY_NAME, "        for name in filter(re.compile(pattern).fullmatch, places[linear]):\n")),
    ),
    wrong(
        "one_of_its_names_alone",
        "You match one of a layer's names, the first or the last, and pass over the others. It is enough that any of "
        "them matches; a dict from module to name keeps only the last.",
        edit((MATCH, "re.fullmatch(pattern, names[0])")),
        edit((MATCH, "re.fullmatch(pattern, names[-1])")),
    ),
    wrong(
        "every_name_returned",
        "A layer with two names comes twice in your list, or by another than the first of its names.",
        edit((LAST, "    return [name for linear in chosen for name in places[linear]]")),
        edit((LAST, "    return [places[linear][-1] for linear in chosen]")),
    ),
    wrong(
        "one_name_in_each_parent",
        "named_children() gives a module once, though its parent may have it under two names: the second still leads "
        "to the bare layer. Put the adapter in under every name.",
        edit(
            (EVERY_NAME, "        for name in {n.rpartition('.')[0]: n for n in places[linear][::-1]}.values():\n"),
        ),
    ),
    wrong(
        "inside_by_the_beginning_of_a_name",
        "You take a layer to lie inside an adapter because its name begins like the adapter's: up_gate lies beside up, "
        "not inside it. With a dot behind the adapter's name it would be right.",
        edit(
            (
                OWN,
                "and not any(m is not module and isinstance(m, Adapted) and name.startswith(n)"
                " for n, m in model.named_modules(remove_duplicate=False))",
            )
        ),
    ),
    wrong(
        "model_itself_forgotten",
        "The model may be an `Adapted` itself: then the layer inside it belongs to an adapter already, and no layer is "
        "left to match.",
        edit(("if isinstance(each, Adapted)", "if isinstance(each, Adapted) and each is not model")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "known_by_the_name_base",
        "You know the layers inside of adapters by the name base. Other modules may be called so, and their layers "
        "get no adapter then: ask what is an `Adapted`.",
        edit((OWN, 'and name.rpartition(".")[2] != "base"')),
        edit((OWN, 'and not name.endswith(".base")')),
        edit((OWN, 'and "base" not in name.split(".")')),
        edit((OWN, 'and ".base" not in name')),
    ),
    wrong(
        "parent_alone",
        "You ask whether the parent of a layer is an `Adapted`. It may lie deeper in one, as in a sequence that the "
        "adapter holds: modules() of an `Adapted` gives all that is inside of it.",
        edit((OWN, 'and not isinstance(model.get_submodule(name.rpartition(".")[0]), Adapted)')),
    ),
    wrong(
        "one_adapter_for_tied_weights",
        "Two layers that share a weight are one with you. Each is a module of its own and gets its own adapter.",
        edit(
            (
                "    adapters = [",
                "    weights = {linear.weight: linear for linear in reversed(chosen)}\n"
                "    chosen = list(weights.values())[::-1]\n    adapters = [",
            ),
        ),
    ),
    wrong(
        "names_sorted",
        "You sort the names. They come in the model's order, which is that of named_modules().",
        edit((LAST, "    return sorted(places[linear][0] for linear in chosen)")),
    ),
    wrong(
        "wrapped_in_another_order",
        "The adapters are made in another order than the model's. wrap draws from a generator: each layer would start "
        "with another layer's numbers.",
        edit(("[wrap(linear) for linear in chosen]", "[wrap(linear) for linear in reversed(chosen)][::-1]")),
        edit(
            (
                "[wrap(linear) for linear in chosen]",
                "[wrap(linear) for linear in sorted(chosen, key=lambda linear: places[linear][0])]",
            ),
            (
                "zip(chosen, adapters, strict=True)",
                "zip(sorted(chosen, key=lambda linear: places[linear][0]), adapters, strict=True)",
            ),
        ),
    ),
    wrong(
        "all_wrapped_first",
        "You call wrap for layers that do not match, and throw those adapters away. The numbers that they drew are "
        "gone.",
        edit(("[wrap(linear) for linear in chosen]", "[each for each in map(wrap, places) if each.base in chosen]")),
    ),
    wrong(
        "copies_wrapped",
        "You hand a copy of the layer to wrap. The model's own weight is then in no adapter: it is held twice.",
        edit(
            ("[wrap(linear) for linear in chosen]", "[wrap(__import__('copy').deepcopy(linear)) for linear in chosen]")
        ),
    ),
    wrong(
        "silent_without_a_match",
        "Where nothing matches you return an empty list. A misspelt pattern would train nothing: raise a ValueError.",
        edit((f"{NONE}        {RAISE}\n", "")),
    ),
    wrong(
        "message_without_the_pattern",
        "Your ValueError does not say which pattern matches nothing; or it comes in the place of the error that wrap "
        "raised, which should reach the caller as it is.",
        edit((RAISE, 'raise ValueError("no linear layer matches")')),
        fails=("refusals",),
    ),
    wrong(
        "changed_before_the_error",
        "An error leaves the model half done with you: frozen or in another mode although nothing matches, or, when "
        "wrap raises, with some layers replaced, or with all parameters training, those too that were frozen before. "
        "Look for the layers, make all adapters, and then change the model.",
        edit((FREEZE, ""), (NONE, f"{FREEZE}{NONE}")),
        edit((FREEZE, ""), ("    adapters = [", f"{FREEZE}    adapters = [")),
        edit((NONE, f"    model.eval()\n{NONE}")),
        edit((NONE, f"    model.train()\n{NONE}")),
        one_after_the_other,
        edit((MAKE, f"try:\n        {MAKE}\n    except Exception:\n        model.requires_grad_(True)\n        raise")),
        fails=("refused_before_any_change",),
    ),
)
