"""Wrong ways to write `orthogonalize`: the norm and what is around the steps here, the steps themselves beside it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import orthogonalize_steps
from autograder.misconceptions.optimizers.orthogonalize_steps import both, demand, frobenius, newton_schulz, normalising


def largest_entry(g: Tensor) -> Tensor:
    """Singular values can be larger than any entry."""
    return g.abs().max()


def spectral(g: Tensor) -> Tensor:
    """The largest singular value: `torch.linalg.norm(g, 2)` computes it."""
    norm: Tensor = torch.linalg.matrix_norm(g, 2)
    return norm


def each_row(g: Tensor) -> Tensor:
    """A norm for each row: the singular vectors change."""
    return g.square().sum(dim=1, keepdim=True).sqrt()


def each_column(g: Tensor) -> Tensor:
    """A norm for each column."""
    return g.square().sum(dim=0, keepdim=True).sqrt()


def squared_norm(g: Tensor) -> Tensor:
    """The root forgotten."""
    return g.square().sum()


def sum_of_sizes(g: Tensor) -> Tensor:
    """The sum of the entries' sizes, which is much more than needed."""
    return g.abs().sum()


def mean_square_root(g: Tensor) -> Tensor:
    """The root of the mean square: smaller than the norm by the root of the count."""
    return g.square().mean().sqrt()


def no_norm(g: Tensor) -> Tensor:
    """g as it is."""
    return torch.ones_like(g[0, 0])


def only_if_large(g: Tensor) -> Tensor:
    """Divides where the norm is above 1."""
    return g.square().sum().sqrt().clamp(min=1.0)


def stays_transposed(g: Tensor, steps: int = 5) -> Tensor:
    """Transposed where tall, and handed back so."""
    return newton_schulz(frobenius(g.T if g.shape[0] > g.shape[1] else g), steps)


def always_transposes(g: Tensor, steps: int = 5) -> Tensor:
    """Transposed whatever its shape, and handed back so."""
    return newton_schulz(frobenius(g.T), steps)


def transposed_back_when_wide(g: Tensor, steps: int = 5) -> Tensor:
    """Transposed where tall; back where the result, which is always wide, is tall."""
    x = newton_schulz(frobenius(g.T if g.shape[0] > g.shape[1] else g), steps)
    return x if x.shape[0] > x.shape[1] else x.T


def reshaped_back(g: Tensor, steps: int = 5) -> Tensor:
    """The right shape by reshape, which moves entries to other places."""
    return stays_transposed(g, steps).reshape(g.shape)


def gram_schmidt(g: Tensor, steps: int = 5) -> Tensor:
    """QR, with the signs that Gram-Schmidt gives: one direction after the other."""
    tall = g.shape[0] >= g.shape[1]
    q, r = torch.linalg.qr(g if tall else g.T)
    signed: Tensor = q * r.diagonal().sign()
    return signed if tall else signed.T


def scales_the_update(g: Tensor, steps: int = 5) -> Tensor:
    """Muon's factor for tall matrices, which belongs to the learning rate."""
    return newton_schulz(frobenius(g), steps) * math.sqrt(max(1.0, g.shape[0] / g.shape[1]))


def to_the_norm_of_g(g: Tensor, steps: int = 5) -> Tensor:
    """Multiplied by the norm again at the end."""
    return newton_schulz(frobenius(g), steps) * g.square().sum().sqrt()


def divides_zero_by_zero(g: Tensor, steps: int = 5) -> Tensor:
    """No lower bound of the norm."""
    demand(g, steps)
    return newton_schulz(g / g.norm(), steps)


def in_bfloat16(g: Tensor, steps: int = 5) -> Tensor:
    """As torch.optim.Muon does."""
    return newton_schulz(frobenius(g.bfloat16()), steps)


def in_bfloat16_and_back(g: Tensor, steps: int = 5) -> Tensor:
    """The same in the dtype of g: the digits are gone."""
    return in_bfloat16(g, steps).to(g.dtype)


def in_float32(g: Tensor, steps: int = 5) -> Tensor:
    """float64 is rounded."""
    demand(g, steps)
    return newton_schulz(frobenius(g.float()), steps)


def in_float32_and_back(g: Tensor, steps: int = 5) -> Tensor:
    """The same, hidden."""
    return in_float32(g, steps).to(g.dtype)


def in_float64(g: Tensor, steps: int = 5) -> Tensor:
    """Finer than asked."""
    demand(g, steps)
    return newton_schulz(frobenius(g.double()), steps)


def refuses_nothing(g: Tensor, steps: int = 5) -> Tensor:
    """A vector, a stack of matrices and -1 go in."""
    return newton_schulz(frobenius(g), steps)


def refuses_shapes_only(g: Tensor, steps: int = 5) -> Tensor:
    """range(-1) is empty, and nobody hears of it."""
    demand(g, 0)
    return refuses_nothing(g, steps)


MISCONCEPTIONS = (
    *orthogonalize_steps.MISCONCEPTIONS,
    Misconception(
        name="norm_missing",
        witnesses=both(normalising(no_norm)),
        hint="g goes into the steps as it is. The polynomial takes singular values of at most about 1 towards 1; from "
        "a little above that they run off to infinity, and from far below they need more steps. Divide by the norm "
        "first.",
    ),
    Misconception(
        name="norm_of_something_else",
        witnesses=(
            *both(normalising(largest_entry)),
            *both(normalising(squared_norm)),
            *both(normalising(sum_of_sizes)),
            *both(normalising(mean_square_root)),
        ),
        hint="The Frobenius norm is the root of the sum of all squares. No singular value exceeds it, which cannot be "
        "said of the largest entry or of a root mean square; and a much larger number leaves the singular values too "
        "small.",
    ),
    Misconception(
        name="norm_of_each_row",
        witnesses=(*both(normalising(each_row)), *both(normalising(each_column))),
        hint="You divide each row, or each column, by a norm of its own. That makes another matrix, with other "
        "singular vectors. One number for the whole matrix.",
    ),
    Misconception(
        name="spectral_norm",
        witnesses=both(normalising(spectral)),
        hint="You divide by the largest singular value. The steps would work from there too, even better; but it takes "
        "the very decomposition that the steps are to save. The Frobenius norm costs one pass over g. (For matrices, "
        "`torch.linalg.norm(g, 2)` is the spectral norm, `g.norm()` the Frobenius norm.)",
    ),
    Misconception(
        name="small_ones_not_normalised",
        witnesses=both(normalising(only_if_large)),
        hint="You divide only where the norm is above 1. Gradients are often tiny, and five steps take a singular "
        "value of 1e-4 no further than to 0.05. Divide always, whatever the norm is.",
    ),
    Misconception(
        name="stays_transposed",
        witnesses=(*both(stays_transposed), *both(always_transposes), *both(transposed_back_when_wide)),
        hint="The result has the shape of g transposed. What was transposed before the steps must be transposed back "
        "after them, by the same condition: remember it, because the matrix in the loop is never tall.",
    ),
    Misconception(
        name="gram_schmidt",
        witnesses=both(gram_schmidt),
        hint="Your matrix is orthogonal, and another one. QR and Gram-Schmidt keep the direction of the first column "
        "(or row) and turn all others away from it; U V^T treats all alike, and has the singular vectors of g. Only "
        "matrix products of X with itself keep those.",
    ),
    Misconception(
        name="reshaped_back",
        witnesses=both(reshaped_back),
        hint="The shape is right, the entries are in other places: reshape reads row by row and does not transpose. "
        "Use .T, once before the steps and once after them.",
    ),
    Misconception(
        name="scales_the_update",
        witnesses=(*both(scales_the_update), *both(to_the_norm_of_g)),
        hint="Your result is orthogonalized and then multiplied by something. The factor for tall matrices belongs to "
        "the learning rate, and the norm of g is just what Muon forgets.",
    ),
    Misconception(
        name="zero_by_zero",
        witnesses=(divides_zero_by_zero,),
        fails=("zeros_stay_zeros",),
        hint="A gradient of zeros becomes nan, and with it the weights. Bound the norm from below: clamp(min=1e-7).",
    ),
    Misconception(
        name="in_bfloat16",
        witnesses=(*both(in_bfloat16), *both(in_bfloat16_and_back)),
        hint="Two digits are all that is right: you compute in bfloat16. torch.optim.Muon does, and says so; here the "
        "dtype is that of g, so that the caller decides.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(in_float32, in_float32_and_back, in_float64),
        fails=("dtype_of_g",),
        hint="Your result is right but for its dtype or its digits. It must come in the dtype of g; what is computed "
        "in float32 on the way has float32's seven digits, whatever it is converted to at the end.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(refuses_nothing, refuses_shapes_only),
        fails=("refuses_what_makes_no_sense",),
        hint="Your numbers are right, but nonsense goes through, or ends in torch's own error. A gradient of one "
        "dimension has no singular values, one of four must be reshaped by whoever knows how, and -1 steps are none. "
        "Raise a ValueError.",
    ),
)
