"""Right and wrong ways to write `Int8Linear`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.int8 import int8_product
from course.reference.quantization.int8linear import Int8Linear


class ByNumpy(nn.Module):
    """Codes by NumPy's rint, scales in its float64."""

    codes: Tensor
    step: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        w = weight.detach().double().numpy()
        step = np.abs(w).max(axis=1, keepdims=True) / 127
        step[step == 0] = 1
        self.register_buffer("codes", torch.from_numpy(np.rint(w / step).astype(np.int8)))
        self.register_buffer("step", torch.from_numpy(step.astype(np.float32)))
        self.bias = None if bias is None else bias.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach().double().numpy().reshape(x.shape[:-1].numel(), x.shape[-1])
        step = np.abs(rows).max(axis=1, keepdims=True) / 127
        step[step == 0] = 1
        codes = np.rint(rows / step).astype(np.int8)
        y = int8_product(torch.from_numpy(codes), self.codes.T).numpy() * step * self.step.numpy().T
        if self.bias is not None:
            y = y + self.bias.numpy()
        return torch.from_numpy(y).to(x.dtype).reshape(*x.shape[:-1], y.shape[1])


class StepByStep(nn.Module):
    """Each row divided by what makes its largest number 127; a clamp for steps of 0."""

    codes: Tensor
    step: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        w = weight.detach().to(torch.float32)
        largest = torch.linalg.vector_norm(w, ord=torch.inf, dim=1)
        largest[largest == 0] = 127
        self.register_buffer("step", largest[:, None] / 127)
        self.register_buffer("codes", torch.round(w * (127 / largest[:, None])).char())
        self.bias = bias.detach().float().clone() if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.float().flatten(0, -2) if x.dim() > 1 else x.float()[None]
        largest = rows.abs().max(1, keepdim=True).values
        largest = largest.masked_fill(largest == 0, 127)
        product = int8_product(torch.round(rows * (127 / largest)).char(), self.codes.t())
        y = product.float() * (largest / 127) * self.step.flatten()
        y = y if self.bias is None else y.add_(self.bias)
        return (
            y.reshape(*x.shape[:-1], -1 if len(y) else len(self.codes)).to(x.dtype) if x.dim() > 1 else y[0].to(x.dtype)
        )


class RowByRow(StepByStep):
    """A product for each row of x."""

    def forward(self, x: Tensor) -> Tensor:
        rows = [StepByStep.forward(self, row) for row in x.reshape(x.shape[:-1].numel(), x.shape[-1])]
        return torch.stack(rows).reshape(*x.shape[:-1], -1) if rows else StepByStep.forward(self, x)


RIGHT = (right(ByNumpy, independent="numpy's rint and float64"), right(StepByStep), right(RowByRow))

layer = partial(edited, Int8Linear)
by_steps = partial(edited, StepByStep)
STEP = "step = rows.abs().amax(1, keepdim=True) / LARGEST"
SAFE = "step = torch.where(step > 0, step, 1.0)"
CODES = "(rows / step).round().to(torch.int8)"
WEIGHT = "codes, step = by_rows(weight.detach())"
BUFFER = 'self.register_buffer("codes", codes)'
OWN_STEP = 'self.register_buffer("step", step)'
OWN_BIAS = 'self.register_buffer("bias", None if bias is None else bias.detach().clone())'
IN_HALF = f"{STEP}; {SAFE.replace('1.0)', '1.0).float()')}"
ONLY_FLOAT16 = "rows = rows.float() if rows.dtype == torch.float16 else rows"
ROWS_OF_X = "x.reshape(x.shape[:-1].numel(), x.shape[-1])"
INPUT = f"codes, step = by_rows({ROWS_OF_X})"
NO_ROW = "if not x.numel():\n            return torch.zeros(*x.shape[:-1], len(self.codes))"
PRODUCT = "int8_product(codes, self.codes.T)"
Y = f"y = {PRODUCT} * step * self.step.T"
BIAS = "y = y + self.bias"
IN_PARTS = "y = torch.stack([(codes * row.float()).sum(1) for row in self.codes], 1) * step * self.step.T"

WRONG = (
    wrong(
        "one_step_per_tensor",
        "The whole weight has one step. A channel that is larger than the others sets it, and theirs become a few "
        "codes, or 0. Each row of the weight has its own.",
        layer(
            (
                WEIGHT,
                f"{WEIGHT}\n        step = torch.full_like(step, float(step.max()))\n"
                "        codes = (weight.detach().float() / step).round().to(torch.int8)",
            )
        ),
        layer(
            (
                WEIGHT,
                "codes, step = by_rows(weight.detach().reshape(1, -1))\n"
                "        codes, step = codes.reshape(weight.shape), step.expand(len(weight), 1).clone()",
            )
        ),
    ),
    wrong(
        "one_step_for_all_rows",
        "All rows of x share a step. A row with small numbers then has few codes, and what one token gets depends on "
        "the others in its batch.",
        layer(
            (
                INPUT,
                f"{INPUT}\n        step = torch.full_like(step, float(step.max()) if len(step) else 1.0)\n"
                "        codes = (x.reshape(len(step), -1) / step).round().to(torch.int8)",
            )
        ),
    ),
    wrong(
        "step_of_the_first_call",
        "The steps of x are those of an earlier call. Each row of each x has one of its own: keep none.",
        layer(
            (
                INPUT,
                f"{INPUT}\n        self.first = getattr(self, 'first', step.max() if len(step) else 1.0)"
                "\n        step = self.first + 0 * step"
                "\n        codes = (x.reshape(len(step), -1).float() / step).round().clamp(-127, 127).to(torch.int8)",
            )
        ),
        by_chance=True,
    ),
    wrong(
        "truncates",
        "You cut off what follows the point. To the nearest integer it is .round(): the error is half as large, and "
        "on both sides of 0.",
        layer((".round().to(torch.int8)", ".to(torch.int8)")),
        layer((".round().to", ".floor().to")),
    ),
    wrong(
        "another_range",
        "The largest number of a row has the code 127, the largest in int8 that -x has too: divide by 127, not by "
        "128, by 255 or by half of that.",
        layer((STEP, "step = rows.abs().amax(1, keepdim=True) / 127.5")),
        layer((STEP, "step = rows.abs().amax(1, keepdim=True) * 2 / 255")),
    ),
    wrong(
        "by_the_largest_number",
        "You take the largest number of a row, not the largest magnitude: what is more negative than that leaves int8 "
        "and comes back with the other sign.",
        layer((STEP, "step = rows.amax(1, keepdim=True) / LARGEST")),
    ),
    wrong(
        "another_step_for_zeros",
        "A row of zeros has the step 1. Yours is 0 or tiny: 0 / 0 is nan, and what that is in int8 nobody says.",
        layer((SAFE, "step = step.clamp(min=1e-8)")),
        by_steps(("largest[largest == 0] = 127", "largest[largest == 0] = 1e-6")),
    ),
    wrong(
        "small_steps_become_one",
        "You take a row of small numbers for a row of zeros. Only where all are 0 is the step 1.",
        layer((SAFE, SAFE.replace("> 0", "> 1e-8"))),
    ),
    wrong(
        "steps_in_half",
        "You take steps, or the product of two, in the dtype of the weight or of x. A float16 has three digits, and "
        "fewer below 6e-5: turn the rows into float32 before you look for their largest number, and stay there.",
        layer(("rows = rows.float()", "pass"), (f"return {CODES}, step", f"return {CODES}, step.float()")),
        layer((WEIGHT, f"rows = weight.detach()\n        {IN_HALF}\n        codes = {CODES}")),
        layer((INPUT, f"rows = {ROWS_OF_X}\n        {IN_HALF}\n        codes = {CODES}")),
        layer(("rows = rows.float()", ONLY_FLOAT16), (f"return {CODES}, step", f"return {CODES}, step.float()")),
        layer((OWN_STEP, 'self.register_buffer("step", step.to(weight.dtype))')),
        layer((Y, f"y = {PRODUCT} * (step * self.step.T).to(x.dtype).float()")),
        layer((Y, f"y = {PRODUCT} * step * self.step.T.to(x.dtype).float()")),
    ),
    wrong(
        "step_of_x_forgotten",
        "The product of codes is multiplied by the weight's steps only. x was divided by a step, too.",
        layer((f"{PRODUCT} * step * self.step.T", f"{PRODUCT} * self.step.T")),
    ),
    wrong(
        "step_of_the_weight_forgotten",
        "The product of codes is multiplied by the steps of x only. The weight was divided by one, too.",
        layer((f"{PRODUCT} * step * self.step.T", f"{PRODUCT} * step")),
    ),
    wrong(
        "bias_forgotten",
        "The bias is missing, always or where x has another dtype than it. It is added whatever x is in.",
        layer((BIAS, "y = y + 0 * self.bias")),
        layer((BIAS, f"{BIAS} if x.dtype == self.bias.dtype else y")),
    ),
    wrong(
        "bias_must_be_told",
        "A layer without a bias may be made from its weight alone: bias is None where it is left out.",
        layer(("bias: Tensor | None = None", "bias: Tensor | None")),
    ),
    wrong(
        "bias_scaled",
        "The bias was never divided by a step. Add it after the scales.",
        layer(
            (Y, f"y = {PRODUCT}"),
            (BIAS, "y = y + self.bias"),
            ("return y.to(x.dtype)", "return (y * step * self.step.T).to(x.dtype)"),
        ),
    ),
    wrong(
        "returns_zeros",
        "The layer says 0, or its bias, whatever comes in.",
        layer((Y, "y = torch.zeros(len(codes), len(self.codes))")),
        layer(("return y.to(x.dtype)", "return torch.zeros_like(y).to(x.dtype)")),
    ),
    wrong(
        "x_not_quantized",
        "The weight has codes, and x is multiplied as it is. That is another method (weights alone in 8 bits), and its "
        "product is one of floats.",
        layer((Y, "y = (x.float().reshape(len(codes), codes.shape[1]) @ self.codes.float().T) * self.step.T")),
    ),
    wrong(
        "keeps_a_copy_of_the_weight",
        "Values are right, and the layer holds the weight once more beside its codes, in floats or in integers, as a "
        "buffer, an attribute or in a function. Codes and steps are all that forward needs.",
        layer((BUFFER, f"{BUFFER}\n        self.original = weight.detach()")),
        layer((BUFFER, f"{BUFFER}\n        self.restore = lambda: weight")),
        layer((BUFFER, f"{BUFFER}\n        self.half = [weight.detach().half()]")),
        layer((BUFFER, f"{BUFFER}\n        self.dense = codes * step")),
        layer((BUFFER, f"{BUFFER}\n        self.turned = codes.T.contiguous()")),
        layer((WEIGHT, "codes, step = by_rows(weight)")),  # its graph
        layer((INPUT, f"self.turned = getattr(self, 'turned', self.codes.T.contiguous())\n        {INPUT}")),
        fails=("nothing_beside_the_codes",),
    ),
    wrong(
        "codes_in_floats",
        "The codes are whole numbers in a tensor of floats, which takes as many bytes as the weight did. Convert them "
        "to torch.int8.",
        by_steps(
            ("(w * (127 / largest[:, None])).char()", "(w * (127 / largest[:, None]))"),
            ("self.codes.t()", "self.codes.char().t()"),
        ),
    ),
    wrong(
        "wide_weight_in_forward",
        "The layer keeps int8, and each forward makes a tensor that is larger than the codes, such as the weight in "
        "floats or in wider integers, or does not multiply in int8. int8_product takes the codes as they are.",
        layer((Y, "y = (codes * step) @ (self.codes * self.step).T")),
        layer((Y, "y = (codes.float() @ self.codes.float().T) * step * self.step.T")),
        layer((Y, "y = (codes.int() @ self.codes.T.int()) * step * self.step.T")),
        layer((Y, f"int8_product(codes[:, :1], self.codes[:, :1].T)\n        {IN_PARTS}")),
        fails=("no_float_weight",),
    ),
    wrong(
        "product_in_half",
        "The product of codes is put into the dtype of x before it is scaled. float16 ends at 65,504, which is four "
        "products of 127 by 127, and bfloat16 has 8 bits for it.",
        layer((Y, f"y = {PRODUCT}.to(x.dtype) * step.to(x.dtype) * self.step.T.to(x.dtype)")),
    ),
    wrong(
        "float32_out",
        "y is in float32 whatever x is in.",
        layer(("y.to(x.dtype)", "y")),
        layer(("y.to(x.dtype)", "(y if x.dim() == 1 else y.to(x.dtype))")),
        layer((BIAS, "y = y.to(x.dtype) + self.bias"), ("y.to(x.dtype).reshape", "y.reshape")),
        layer((INPUT, f"{NO_ROW}\n        {INPUT}")),
    ),
    wrong(
        "attributes_not_saved",
        "codes or step is a plain attribute: state_dict() does not have it, and .to(device) leaves it behind.",
        layer((BUFFER, "self.codes = codes")),
        layer((OWN_STEP, "self.step = step")),
    ),
    wrong(
        "step_is_a_parameter",
        "The step is a parameter. An optimizer finds it and moves it; nothing here is to be trained.",
        layer((OWN_STEP, "self.step = nn.Parameter(step)")),
    ),
    wrong(
        "freezes_what_came",
        "You switch requires_grad off for the caller's weight, bias or x. They may be trained elsewhere: take "
        "weight.detach().",
        layer((WEIGHT, f"weight.requires_grad_(False)\n        {WEIGHT}")),
        layer((WEIGHT, f"{WEIGHT}\n        if bias is not None:\n            bias.requires_grad_(False)")),
        layer((INPUT, f"x.requires_grad_(False)\n        {INPUT}")),
    ),
    wrong(
        "bias_stays_a_parameter",
        "The bias that came is a parameter, and becomes one of the layer's: nn.Module registers it. Keep "
        "bias.detach().clone().",
        layer((OWN_BIAS, "self.bias = bias")),
    ),
    wrong(
        "dtype_of_the_weight",
        "y comes in the dtype that the weight had. It is to have that of x.",
        layer(
            (WEIGHT, f"{WEIGHT}\n        self.dtype = weight.dtype"),
            ("return y.to(x.dtype)", "return y.to(self.dtype)"),
        ),
    ),
    wrong(
        "through_another_dtype",
        "x, or y, passes through the dtype of the weight or of the bias. x may have another one, and what is beyond "
        "65,504 is infinite in float16: compute in float32, and turn y into the dtype of x at the end.",
        layer((WEIGHT, f"{WEIGHT}\n        self.dtype = weight.dtype"), (INPUT, f"{INPUT[:-1]}.to(self.dtype))")),
        layer((INPUT, f"{INPUT[:-1]}.to(x.dtype if self.bias is None else self.bias.dtype))")),
        layer((BIAS, "y = y.to(self.bias.dtype) + self.bias")),
    ),
    wrong(
        "rows_only",
        "x may come without leading dimensions, or with several.",
        layer((INPUT, "codes, step = by_rows(x)")),
    ),
    wrong(
        "view_of_a_view",
        "`.view` raises where the numbers of x do not lie side by side. `.reshape` copies them then.",
        layer((ROWS_OF_X, ROWS_OF_X.replace("reshape", "view"))),
    ),
    wrong(
        "quotients_in_half",
        "Your quotients pass through the dtype of the weight or of x, and are rounded there before they are rounded to "
        "codes: 64.508 is 64.5 in float16, and becomes 64. Divide and round in float32.",
        layer((WEIGHT, f"{WEIGHT}\n        codes = (weight.detach() / step).to(weight.dtype).round().to(torch.int8)")),
        layer((INPUT, f"{INPUT}\n        codes = ({ROWS_OF_X} / step).to(x.dtype).round().to(torch.int8)")),
    ),
)
