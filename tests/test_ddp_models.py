"""Models of lesson 05's exercises: what they are made of is what their parts say."""

from __future__ import annotations

import torch

from course.exercises.ddp.models import built, gradients, nbytes, part


def test_a_model_is_nested_as_the_names_of_its_parts_say():
    model = built([part("body.0.weight"), part("body.1.inner.bias", "frozen")], [torch.ones(3, 2), torch.ones(4)])
    assert [name for name, _ in model.named_modules()] == ["", "body", "body.0", "body.1", "body.1.inner"]
    assert {name: each.requires_grad for name, each in model.named_parameters()} == {
        "body.0.weight": True,
        "body.1.inner.bias": False,
    }


def test_a_tied_part_is_the_parameter_itself():
    model = built([part("a.weight"), part("b.weight", "tied", "a.weight")], [torch.ones(2), torch.zeros(0)])
    assert model.get_parameter("a.weight") is model.get_parameter("b.weight")


def test_a_transposed_part_lies_in_the_memory_of_its_tensor():
    tensor = torch.arange(6.0).view(2, 3)
    weight = built([part("weight", "transposed")], [tensor]).get_parameter("weight")
    assert (weight.shape, weight.is_contiguous(), weight.data_ptr()) == ((3, 2), False, tensor.data_ptr())


def test_a_cache_is_a_buffer_that_the_state_dict_leaves_out():
    model = built([part("mean", "buffer"), part("mask", "cache")], [torch.ones(2), torch.ones(2)])
    assert ([*dict(model.named_buffers())], [*model.state_dict()]) == (["mean", "mask"], ["mean"])


def test_bytes_are_counted_by_kind_and_in_their_dtype():
    parts = [part("a"), part("b", "tied", "a"), part("c", "buffer")]
    values = [torch.ones(3, dtype=torch.bfloat16), torch.zeros(0), torch.ones(2)]
    inputs = {"parts": parts, "values": [values, values]}
    assert (nbytes("parameter")(inputs), nbytes("parameter", "buffer")(inputs)) == (6, 14)


def test_numbers_are_parameters_each_and_their_gradients_one_row():
    parts = [part("scales", "numbers"), part("b", "frozen")]
    model = built(parts, [torch.ones(2), torch.ones(3)])
    assert [name for name, _ in model.named_parameters()] == ["b", "scales.0", "scales.1"]
    assert gradients(parts, model) == {"b": None, "scales": None}
    for each in model.get_submodule("scales").parameters():
        each.grad = torch.tensor(4.0)
    found = gradients(parts, model)["scales"]
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [4.0, 4.0]
