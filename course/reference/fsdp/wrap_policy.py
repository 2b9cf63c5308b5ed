"""Which parameters are gathered together: modules that are large enough, inner ones first.

    inner modules --units of their own, or left over--> module --enough left over?--> its unit, or left over --> root

torch's `size_based_auto_wrap_policy` does it so, but for what is tied, and but for modules with fewer parameters than
the limit in all, into which it does not look. FSDP2 refuses a parameter that two groups share; FSDP demands that both
uses are in one unit.
"""

from __future__ import annotations

from torch import nn


def wrap_policy(model: nn.Module, min_params: int, blocks: tuple[type[nn.Module], ...] = ()) -> list[list[str]]:
    """Names of the parameters of each unit, children first, what is left over last."""
    uses: dict[nn.Parameter, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        uses.setdefault(p, []).append(name)
    units: list[list[str]] = []

    def close(free: list[nn.Parameter]) -> None:
        units.append([uses.pop(p)[0] for p in free])

    def visit(module: nn.Module, path: str) -> None:
        if not isinstance(module, blocks):
            for name, child in module.named_children():
                visit(child, f"{path}{name}.")
        free = [p for p, names in uses.items() if all(name.startswith(path) for name in names)]
        wrapped = path and not isinstance(module, (nn.ModuleList, nn.ModuleDict))
        if wrapped and sum(p.numel() for p in free) >= min_params:
            close(free)

    visit(model, "")
    if uses:
        close(list(uses))
    return units
