"""ZeRO's stages as one implementation: a model whose states, gradients and parameters are sharded unit by unit.

    shards  --all_gather-->  full  --forward-->  freed  --all_gather-->  full  --backward-->  gradients
            <--optimizer--  shard.grad  <--reduce_scatter--  freed, as soon as the unit's last gradient is there

words
    unit    parameters that are gathered and freed together: a module and what lies in it, without what lies in an inner
            unit. The root's unit has the rest
    flat    all parameters of a unit that are trained, or all that are frozen, one after the other, filled up with zeros
            to a multiple of the ranks; parameters are views of it
    shard   a rank's part of a flat: what the optimizer sees

    stage   full parameters            full gradients                      optimizer states
    0       always                     until the step                      whole, on every rank (DDP)
    1       always                     until backward is over              a shard
    2       always                     of a unit, until its last is there  a shard
    3       while a unit computes      of a unit, until its last is there  a shard

Autograd's graph keeps parameters for backward, so `del` would free nothing: the storage behind a flat is emptied, and
filled again before backward, where the graph finds what it has saved.

Sources: ZeRO, Rajbhandari et al., arXiv 1910.02054, section 5; PyTorch FSDP, Zhao et al., arXiv 2304.11277, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from course.cluster import Comm, Work
from course.errors import BadArgument


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a model is sharded.

    stage     0 to 3
    prefetch  whether stage 3 begins to gather the next unit before one computes: two are full at once then
    gathered  dtype in which parameters are gathered and compute; None: that of the shards
    reduced   dtype in which gradients are added up; None: that in which they come
    """

    stage: int = 3
    prefetch: bool = True
    gathered: torch.dtype | None = None
    reduced: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.stage not in (0, 1, 2, 3):
            raise BadArgument(f"stage must be 0, 1, 2 or 3, got {self.stage}")


@dataclass(eq=False)
class _Flat:
    """Parameters of a unit in a row. full: (ranks * m,) whose storage is empty while it is freed; shard: (m,)."""

    parameters: list[Parameter]
    full: Tensor
    shard: Parameter
    arrived: Work | None = None

    @property
    def is_full(self) -> bool:
        return self.full.untyped_storage().nbytes() > 0


@dataclass(eq=False)
class _Unit:
    """flats: the trained one first, if there is one. missing: gradients that have not come in this backward."""

    module: nn.Module
    flats: list[_Flat]
    missing: int = 0
    in_backward: bool = False
    leaving: list[tuple[_Flat, Tensor, Tensor, Work]] = field(default_factory=list)


class Sharded:
    """A model in units; the wrapped module is called as before, `backward` replaces that of the loss.

    comm    its ranks share the model; all run the same layers in the same order
    model   on every rank with the same weights, on the device of `comm`. Buffers stay whole, and each rank's own
    units   modules of it, in the order of forward; the model itself is added as the last one
    Raises BadArgument where a parameter is used in two units: they would free it under each other's hands.

    After `backward` each of `shards` has in .grad its part of the mean over ranks; then clip, step an optimizer over
    `shards`, and call `updated`. Gradients of several micro-batches add up in .grad (stages 2 and 3: in shards).
    """

    def __init__(self, comm: Comm, model: nn.Module, units: Sequence[nn.Module], how: Sharding | None = None) -> None:
        self.comm, self.model, self.how = comm, model, how or Sharding()
        self._units = [_Unit(module, self._flats(each)) for module, each in _parts(model, units)]
        *inner, root = self._units
        self._forward, self._backward = [root, *inner], [root, *reversed(inner)]
        for unit in self._units:
            unit.module.register_forward_pre_hook(self._before_forward(unit))
            unit.module.register_forward_hook(self._after_forward(unit))
            for each in unit.flats[0].parameters if unit.flats else ():
                if each.requires_grad:
                    each.register_post_accumulate_grad_hook(self._has_gradient(unit))  # type: ignore[no-untyped-call]
        if self.how.stage == 3:
            for unit in self._units:
                self._free(unit)

    @property
    def shards(self) -> list[Parameter]:
        """What is trained, for an optimizer: one for each unit; in stage 0 the whole."""
        return [flat.shard for unit in self._units for flat in unit.flats if flat.shard.requires_grad]

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The model's output."""
        return self.model(*given, **named)

    def backward(self, loss: Tensor) -> None:
        """Gradients of the mean over ranks of their losses, in the shards."""
        for unit in self._units:
            unit.missing = len(_trained(unit))
        loss.backward()  # type: ignore[no-untyped-call]
        for unit in self._backward:
            if unit.missing or self.how.stage < 2:  # not used, or used everywhere and kept until now
                self._send(unit)
        for unit in self._units:
            self._receive(unit)
            unit.in_backward = False
            if self.how.stage == 3:
                self._free(unit)

    @torch.no_grad()
    def updated(self) -> None:
        """The optimizer has moved the shards: stages 0 to 2 bring the full parameters up to date."""
        if self.how.stage < 3:
            for unit in self._units:
                self._gather(unit)
                self._wait(unit)

    # --- flats ---

    @torch.no_grad()
    def _flats(self, parameters: Sequence[Parameter]) -> list[_Flat]:
        groups = [[each for each in parameters if each.requires_grad is wanted] for wanted in (True, False)]
        return [self._flat(group) for group in groups if group]

    def _flat(self, parameters: list[Parameter]) -> _Flat:
        row = torch.cat([each.flatten() for each in parameters])
        size = -(-len(row) // self.comm.size)
        padded = torch.cat([row, row.new_zeros(size * self.comm.size - len(row))])
        own = padded if self.how.stage == 0 else padded[self.comm.rank * size : (self.comm.rank + 1) * size]
        full = padded.to(self.how.gathered or padded.dtype)
        shard = Parameter(own.clone(), requires_grad=parameters[0].requires_grad)
        start = 0
        for each in parameters:
            each.data = full[start : start + each.numel()].view(each.shape)
            start += each.numel()
        return _Flat(parameters, full, shard)

    # --- gathering and freeing ---

    @torch.no_grad()
    def _gather(self, unit: _Unit) -> None:
        """Begin to fill the unit's parameters from the shards, unless that was begun."""
        for flat in unit.flats:
            if flat.arrived is None and not (flat.is_full and self.how.stage == 3):
                flat.full.untyped_storage().resize_(flat.full.numel() * flat.full.element_size())
                if self.how.stage == 0:
                    flat.full.copy_(flat.shard)
                else:
                    flat.arrived = self.comm.all_gather_single(
                        flat.full, flat.shard.detach().to(flat.full.dtype), async_op=True
                    )

    def _wait(self, unit: _Unit) -> None:
        for flat in unit.flats:
            if flat.arrived is not None:
                flat.arrived.wait()
                flat.arrived = None

    def _free(self, unit: _Unit) -> None:
        for flat in unit.flats:
            flat.full.untyped_storage().resize_(0)

    def _use(self, unit: _Unit, order: Sequence[_Unit]) -> None:
        """Make the unit full, and begin with the one that follows."""
        if self.how.stage < 3:
            return
        self._gather(unit)
        following = order[order.index(unit) + 1 :]
        if self.how.prefetch and following:
            self._gather(following[0])
        self._wait(unit)

    def _before_forward(self, unit: _Unit) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any) -> None:
            if not unit.in_backward:  # else a checkpoint runs forward again
                self._use(unit, self._forward)

        return hook

    def _after_forward(self, unit: _Unit) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            if self.how.stage < 3 or unit.in_backward:
                return
            self._free(unit)
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(self._before_backward(unit))  # type: ignore[no-untyped-call]

        return hook

    def _before_backward(self, unit: _Unit) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            unit.in_backward = True
            self._use(unit, self._backward)

        return hook

    # --- gradients ---

    def _has_gradient(self, unit: _Unit) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            unit.missing -= 1
            if unit.missing == 0 and self.how.stage >= 2:
                for each in self._units:  # at most one unit's full gradients are on their way
                    self._receive(each)
                self._send(unit)
                if self.how.stage == 3:
                    self._free(unit)

        return hook

    @torch.no_grad()
    def _send(self, unit: _Unit) -> None:
        """Begin to reduce the unit's gradients; full ones are dropped."""
        unit.missing = 0
        for flat in unit.flats[:1] if _trained(unit) else ():
            dtype = self.how.reduced or flat.full.dtype
            row = torch.zeros(flat.full.numel(), dtype=dtype, device=flat.shard.device)
            start = 0
            for each in flat.parameters:
                if each.grad is not None:
                    row[start : start + each.numel()] = each.grad.flatten()
                start, each.grad = start + each.numel(), None
            if self.how.stage == 0:
                own, work = row, self.comm.all_reduce(row, "mean", async_op=True)
            else:
                own = row.new_empty(flat.shard.numel())
                work = self.comm.reduce_scatter_single(own, row, "mean", async_op=True)
            unit.leaving.append((flat, row, own, work))

    def _receive(self, unit: _Unit) -> None:
        """Add what has been reduced to the shard's gradient."""
        while unit.leaving:
            flat, _, own, work = unit.leaving.pop()
            work.wait()
            own = own.to(flat.shard.dtype)
            flat.shard.grad = own if flat.shard.grad is None else flat.shard.grad + own


def _trained(unit: _Unit) -> list[Parameter]:
    return unit.flats[0].parameters if unit.flats and unit.flats[0].shard.requires_grad else []


def _parts(model: nn.Module, units: Sequence[nn.Module]) -> list[tuple[nn.Module, list[Parameter]]]:
    """Each unit's own parameters, the model's last. Raises BadArgument where one would be used in two units."""
    found: list[tuple[nn.Module, list[Parameter]]] = []
    taken: dict[Parameter, nn.Module] = {}
    for unit in (*units, model):
        own = [each for each in unit.parameters() if each not in taken]
        taken.update(dict.fromkeys(own, unit))
        found.append((unit, own))
    for name, each in model.named_parameters(remove_duplicate=False):
        holder = model.get_submodule(name.rpartition(".")[0])
        inside = [unit for unit in units if any(module is holder for module in unit.modules())]
        if (inside[0] if inside else model) is not taken[each]:
            raise BadArgument(f"a tied parameter must lie in one unit, but {name} is used outside of its own")
    return found
