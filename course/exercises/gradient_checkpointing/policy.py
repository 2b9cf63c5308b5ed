"""`policy(op_name)`: which results of a block a selective checkpoint saves, judged by FLOPs and bytes.

The judge knows for each op of several blocks what it costs to run again and how many bytes its result has. A result of
no bytes is a view of another, and may be saved or not.
"""

from __future__ import annotations

from functools import partial

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

# What runs in a forward of each block: products first, then the rest; views stand in VIEWS.
BLOCKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "the GPT on a CPU": (
        ("addmm.default", "_scaled_dot_product_flash_attention_for_cpu.default"),
        ("native_layer_norm.default", "add.Tensor", "gelu.default"),
    ),
    "without biases, on a GPU": (
        (
            "mm.default",
            "_scaled_dot_product_flash_attention.default",
            "_scaled_dot_product_efficient_attention.default",
            "_scaled_dot_product_fused_attention_overrideable.default",
            "_scaled_dot_product_attention_math.default",
        ),
        ("pow.Tensor_Scalar", "mean.dim", "rsqrt.default", "mul.Tensor", "silu.default", "_to_copy.default"),
    ),
    "softmax written out": (
        ("bmm.default", "baddbmm.default", "addmm.default"),
        ("_softmax.default", "native_dropout.default", "masked_fill.Scalar", "div.Tensor", "clone.default"),
    ),
    "convolutions": (
        (
            "convolution.default",
            "_convolution.default",
            "cudnn_convolution.default",
            "cudnn_convolution_transpose.default",
            "convolution_overrideable.default",
            "mkldnn_convolution.default",
            "_scaled_dot_product_cudnn_attention.default",
        ),
        ("native_batch_norm.default", "native_group_norm.default", "relu.default", "max_pool2d_with_indices.default"),
    ),
}
VIEWS = ("view.default", "t.default", "transpose.int", "detach.default", "expand.default", "_unsafe_view.default")
OTHER_OVERLOADS = ("mm.out", "addmm.out", "bmm.dtype", "baddbmm.dtype", "mm.dtype_out", "addmm.dtype")
LOOK_ALIKE = (
    *("digamma.default", "lgamma.default", "cummax.default", "_convert_indices_from_csr_to_coo.default"),
    *("mv.default", "addmv.default", "dot.default", "addbmm.default", "sspaddmm.default", "_sparse_mm.default"),
    *("prod.default", "embedding.default"),
    *("matmul.default", "linear.default", "einsum.default", "addr.default", "ger.default", "outer.default"),
    *("addmm_.default", "baddbmm_.default", "_int_mm.default", "_scaled_mm.default", "_addmm_activation.default"),
    *("conv1d.default", "conv2d.default", "scaled_dot_product_attention.default", "_flash_attention_forward.default"),
    *("_efficient_attention_forward.default", "_native_multi_head_attention.default"),
)
UNKNOWN = ("erfinv.default", "sinh.out", "hypot.default", "addcmul.default", "add.out", "_log_softmax.default")
OVERLOADS, LOOKS, NEW = "other overloads", "names that look alike", "kernels of other devices"
OF_DEVICES = (  # what else a forward may call in ATen of torch 2.13
    *("_mps_convolution.default", "_mps_convolution_transpose.default", "_nnpack_spatial_convolution.default"),
    *("cudnn_convolution_relu.default", "cudnn_convolution_add_relu.default", "miopen_convolution.default"),
    *("miopen_convolution_relu.default", "miopen_convolution_add_relu.default", "miopen_convolution_transpose.default"),
    *("miopen_depthwise_convolution.default", "_scaled_dot_product_attention_math_for_mps.default"),
)
NEAR_THEM = ("_triton_scaled_dot_attention.default", "_conv_depthwise2d.default", "_conj_copy.default")


def cases(rng: torch.Generator) -> list[Case]:
    """One for each block; other spellings; names in which a product's name stands; what is left. The order is drawn."""

    def case(name: str, products: tuple[str, ...], others: tuple[str, ...], views: tuple[str, ...] = ()) -> Case:
        size = partial(integer, rng)
        names = [*products, *others, *views]
        drawn = [names[at] for at in torch.randperm(len(names), generator=rng).tolist()]
        flops = [size(1, 999) * 10**6 if each in products else 0 for each in drawn]
        sizes = [0 if each in views else size(1, 64) * 2**10 for each in drawn]
        return Case(name=name, inputs={"ops": [f"aten.{each}" for each in drawn], "flops": [*flops], "bytes": [*sizes]})

    blocks = [case(name, *ops, VIEWS) for name, ops in BLOCKS.items()]
    return [
        *blocks,
        case(OVERLOADS, OTHER_OVERLOADS, UNKNOWN),
        case(LOOKS, ("mm.default",), LOOK_ALIKE),
        case(NEW, OF_DEVICES, NEAR_THEM),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """What the policy says of every op, by its name."""
    return observe({name: answer(name) for name in inputs["ops"]})


def _words(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each answer is one of the two words."""
    others = [f"{name}: {got.get(name)!r:.40}" for name in inputs["ops"] if got.get(name) not in ("save", "recompute")]
    return others[0] if others else None


def _total(inputs: Inputs, got: Values, number: str, word: str) -> dict[str, int]:
    """FLOPs or bytes of the ops that got this word, where there are any."""
    numbers = zip(inputs["ops"], inputs[number], strict=True)
    return {name: count for name, count in numbers if count and got.get(name) == word}


def _no_product_again(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no FLOP of a product is recomputed."""
    again = _total(inputs, got, "flops", "recompute")
    return f"{sum(again.values()) / 1e6:,.0f} MFLOP are recomputed, in {', '.join(again)}" if again else None


def _few_bytes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: nothing with bytes is saved but products."""
    products = {name for name, count in zip(inputs["ops"], inputs["flops"], strict=True) if count}
    more = {name: size for name, size in _total(inputs, got, "bytes", "save").items() if name not in products}
    return f"{sum(more.values()):,} bytes more are kept, of {', '.join(more)}" if more else None


def _both(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: all three of these."""
    return next(
        (wrong for each in (_words, _no_product_again, _few_bytes) if (wrong := each(inputs, got, expected))), None
    )


judged = partial(Property, holds=_both)

EXERCISE = Exercise(
    id="gradient_checkpointing.policy",
    cases=cases,
    probe=probe,
    properties=(
        judged(
            "transformer_blocks",
            'Every name gets one of the two words. "save" is for all matrix products and attention kernels; a sum, a '
            "norm, an activation or a cast is quick to compute again.",
            points=2,
            cases=tuple(BLOCKS)[:2],
        ),
        judged(
            "attention_written_out",
            "Attention that is written out has products too, one for each head. What lies between them (masks, "
            "softmax, dropout) is quick, and its results are the largest of all.",
            points=2,
            cases=tuple(BLOCKS)[2:3],
        ),
        judged(
            "convolutions",
            "Convolutions are products, whichever library computes them: their names contain `convolution`. Norms, "
            "activations and pooling are none.",
            cases=tuple(BLOCKS)[3:],
        ),
        judged(
            "other_overloads",
            "The last part of a name, behind the second dot, is the overload. It does not matter: only the part "
            "between the dots tells what is computed.",
            cases=(OVERLOADS,),
        ),
        judged(
            "look_alikes",
            "Some names have `mm` or `conv` in them and are no product, such as lgamma; and of products and attention "
            "only four names, and those with a certain word or beginning, are asked for: compare the whole name "
            "between the dots.",
            cases=(LOOKS,),
        ),
        judged(
            "any_device",
            "Every device brings kernels of its own: not a list of names that you know, but the word and the beginning "
            "tell them.",
            cases=(NEW,),
            needs=("convolutions", "transformer_blocks"),
        ),
    ),
    hints=(
        "Which of the ops in the table above have FLOPs? What do the others cost, if they are run again?",
        "Split the name at its dots. Which names between the dots stand for a product? Some are whole names, some only "
        "begin alike or have a word in common.",
        'Four matrix products, the names that contain "convolution", and those that begin with "_scaled_dot_product": '
        "save these, whatever the overload; recompute the rest.",
    ),
    promises={
        "an op of ATen that a forward calls": ("other_overloads", "look_alikes"),
        "in any overload": ("other_overloads",),
        "mm, addmm, bmm and baddbmm, and no others": ("transformer_blocks", "attention_written_out", "look_alikes"),
        "names that contain convolution": ("convolutions", "any_device"),
        "names that begin with _scaled_dot_product": ("transformer_blocks", "any_device"),
        "everything else": ("attention_written_out", "look_alikes"),
        "either word is right": ("transformer_blocks",),
    },
    seconds=3.0,
)
