"""Right and wrong ways to write `policy`."""

from __future__ import annotations

import re
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.policy import policy


def by_torchs_registry(op_name: str) -> str:
    """What torch's counter of FLOPs has a formula for, and names that it lacks."""
    from torch.utils.flop_counter import flop_registry

    counted = {str(op).removeprefix("aten.") for op in flop_registry}
    counted |= {"_scaled_dot_product_flash_attention_for_cpu", "cudnn_convolution", "mkldnn_convolution"}
    counted |= {"cudnn_convolution_transpose", "convolution_overrideable", "_scaled_dot_product_attention_math"}
    counted |= {"_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math_for_mps"}
    transposed = (f"{library}_convolution_transpose" for library in ("miopen", "_mps"))
    fused = (f"{library}_convolution{kind}" for library in ("cudnn", "miopen") for kind in ("", "_relu", "_add_relu"))
    counted |= {*transposed, *fused, "_mps_convolution", "_nnpack_spatial_convolution", "miopen_depthwise_convolution"}
    counted -= {"_scaled_mm", "_int_mm", "_flash_attention_forward", "_efficient_attention_forward"}
    return "save" if op_name.split(".")[1] in counted else "recompute"


def by_a_pattern(op_name: str) -> str:
    """One regular expression over the whole name."""
    product = re.fullmatch(r"aten\.((add|b|baddb)?mm|\w*convolution\w*|_scaled_dot_product_\w+)(\.\w+)?", op_name)
    return "save" if product else "recompute"


def views_too(op_name: str) -> str:
    """Views are saved as well: they have no bytes of their own."""
    views = ("aten.view.", "aten.t.", "aten.transpose.", "aten.detach.")
    return "save" if op_name.startswith(views) or by_a_pattern(op_name) == "save" else "recompute"


RIGHT = (
    right(by_torchs_registry, independent="torch.utils.flop_counter"),
    right(by_a_pattern),
    right(views_too),
)

says = partial(edited, policy)

CONVOLUTION = '"convolution" in name'
KERNEL = f'name.startswith("_scaled_dot_product") or {CONVOLUTION}'
PRODUCTS = '{"mm", "addmm", "bmm", "baddbmm"}'
TWO_KERNELS = '("flash_attention", "flash_attention_for_cpu", "efficient_attention")'
KNOWN = "kernel or name in PRODUCTS"
KERNELS = tuple(f"_scaled_dot_product_{each}" for each in ("flash", "efficient", "cudnn", "fused"))
LIBRARIES = ("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution")

WRONG = (
    wrong(
        "everything_recomputed",
        "You recompute all products: that is a plain checkpoint, which pays for the whole forward again. Save them.",
        says((KNOWN, "False")),
    ),
    wrong(
        "everything_saved",
        "You save every result: nothing is recomputed, and more is kept than without a checkpoint.",
        says((KNOWN, "True")),
    ),
    wrong(
        "upside_down",
        "You save what is quick, and recompute the products. Save what takes FLOPs.",
        says(('"save" if', '"recompute" if'), ('else "recompute"', 'else "save"')),
    ),
    wrong(
        "attention_forgotten",
        "The fused attention kernels are products too, two in one: their names begin with _scaled_dot_product.",
        says((KERNEL, CONVOLUTION)),
    ),
    wrong(
        "one_attention_kernel",
        "Each device has its own attention kernels: not one name, but all that begin with _scaled_dot_product.",
        says(('startswith("_scaled_dot_product")', 'startswith("_scaled_dot_product_flash_attention_for_cpu")')),
        says(('startswith("_scaled_dot_product")', f"endswith({TWO_KERNELS})")),
        says((KERNEL, f'name.startswith("_scaled_dot_product") and not name.endswith("math") or {CONVOLUTION}')),
    ),
    wrong(
        "attention_anywhere_in_the_name",
        "You look for attention, or scaled_dot_product, anywhere in the name. Asked for are the names that begin with "
        "_scaled_dot_product.",
        says((KERNEL, f'"attention" in name or {CONVOLUTION}')),
        says((KERNEL, f'"scaled_dot_product" in name or {CONVOLUTION}')),
    ),
    wrong(
        "list_of_known_names",
        "You compare with a list of the kernels that you know. Every device and library brings its own: look for "
        "convolution in the name, and for _scaled_dot_product at its beginning.",
        says((KERNEL, f'name.startswith("_scaled_dot_product") or name.startswith({LIBRARIES})')),
        says((KERNEL, f"name.startswith({KERNELS}) or {CONVOLUTION}")),
    ),
    wrong(
        "convolutions_forgotten",
        "A convolution is a matrix product with weights that are shared: save it.",
        says((KERNEL, 'name.startswith("_scaled_dot_product")')),
    ),
    wrong(
        "cudnns_convolution_forgotten",
        "A convolution has several names, among them one for each library that computes it: all that contain the word, "
        "at the end or not.",
        says((CONVOLUTION, 'name == "convolution"')),
        says((CONVOLUTION, 'name.endswith("convolution")')),
        says((CONVOLUTION, f'{CONVOLUTION} and name != "_convolution"')),
    ),
    wrong(
        "batched_products_forgotten",
        "bmm and baddbmm are products, one for each head or example. Attention that is written out consists of them.",
        says((PRODUCTS, '{"mm", "addmm"}')),
    ),
    wrong(
        "products_with_a_sum_forgotten",
        "addmm and baddbmm are products with a term added. A linear layer with a bias is one.",
        says((PRODUCTS, '{"mm", "bmm"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm"}')),
    ),
    wrong(
        "mm_anywhere_in_the_name",
        "You look for mm anywhere in the name, at its begin or its end. digamma, lgamma and cummax have it too, and so "
        "have kinds that are not asked for, such as _sparse_mm: compare whole names.",
        says(("name in PRODUCTS", '"mm" in name')),
        says(("name in PRODUCTS", 'name.endswith("mm")')),
        says(("name in PRODUCTS", "name.startswith(tuple(PRODUCTS))")),
        says(("name in PRODUCTS", 'name.strip("_") in PRODUCTS')),
    ),
    wrong(
        "more_products_saved",
        "You save mv, addmv, dot, addbmm, matmul, linear or another. Of products only mm, addmm, bmm and baddbmm are "
        "asked for: one with a vector reads as many numbers as it multiplies, and others are rare, or call these four.",
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "mv", "addmv"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "addbmm"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "matmul", "linear"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "einsum"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "matmul"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "_int_mm", "_scaled_mm"}')),
        says((PRODUCTS, '{"mm", "addmm", "bmm", "baddbmm", "addr", "ger", "outer"}')),
    ),
    wrong(
        "conv_anywhere_in_the_name",
        "You look for conv anywhere in the name, and save what only converts indices: look for convolution.",
        says((CONVOLUTION, '"conv" in name')),
    ),
    wrong(
        "only_the_default_overload",
        "You compare the overload too. An op is as slow in any other: look at the name between the dots only.",
        says(("name in PRODUCTS", 'name in PRODUCTS and op_name.endswith(".default")')),
    ),
    wrong(
        "add_begins_the_name",
        "You save whatever begins with add, for addmm: so does a sum.",
        says(("name in PRODUCTS", 'name in PRODUCTS or name.startswith("add")')),
    ),
    wrong(
        "softmax_saved",
        "You save the softmax, as a part of attention. It is quick, and its result, the "
        "square of the length, is the largest of all: recompute it.",
        says(("name in PRODUCTS", 'name in PRODUCTS or "softmax" in name')),
    ),
    wrong(
        "booleans",
        'You return a bool. The words are "save" and "recompute".',
        says(('"save" if kernel or name in PRODUCTS else "recompute"', KNOWN)),
    ),
)
