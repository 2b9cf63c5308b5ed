"""What an answer names that it should do without."""

from __future__ import annotations

import graphlib

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import grad as gradient

from course.performing.uses import forbidden


def through_a_module(x: Tensor) -> Tensor:
    return torch.autograd.grad(x.sum(), x)[0]


def through_an_alias(x: Tensor) -> Tensor:
    return F.silu(x)


def through_an_imported_function(x: Tensor) -> Tensor:
    return gradient(x.sum(), x)[0]


def through_a_local_import(x: Tensor) -> Tensor:
    from torch.func import vjp

    return vjp(torch.sin, x)[0]


def through_a_method(x: Tensor) -> Tensor:
    return x.sum_to_size(1)


def through_a_class() -> object:
    return graphlib.TopologicalSorter()


class InAClass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return F.silu(x)


def honest(x: Tensor) -> Tensor:
    functional = x.exp()
    return functional / functional.sum()


def test_names_are_spelled_from_the_module_they_come_from() -> None:
    assert forbidden(through_a_module, ("torch.autograd",)) == ("torch.autograd.grad",)
    assert forbidden(through_an_alias, ("torch.nn.functional.silu",)) == ("torch.nn.functional.silu",)
    assert forbidden(through_an_imported_function, ("torch.autograd",)) == ("torch.autograd.grad",)
    assert forbidden(through_a_local_import, ("torch.func",)) == ("torch.func.vjp",)
    assert forbidden(through_a_class, ("graphlib",)) == ("graphlib.TopologicalSorter",)


def test_methods_of_tensors_are_known_by_their_name() -> None:
    assert forbidden(through_a_method, ("torch.Tensor.sum_to_size",)) == ("sum_to_size",)


def test_methods_of_a_class_are_read_and_its_bases_are_not() -> None:
    assert forbidden(InAClass, ("torch.nn.functional.silu", "torch.autograd")) == ("torch.nn.functional.silu",)


def test_annotations_and_other_parts_of_torch_are_no_use() -> None:
    assert forbidden(honest, ("torch",)) == ()
    assert forbidden(through_an_alias, ("torch.autograd", "torch.nn.functional.cross_entropy")) == ()


def test_an_answer_without_source_names_nothing() -> None:
    assert forbidden(eval("lambda x: torch.sin(x)"), ("torch",)) == ()
