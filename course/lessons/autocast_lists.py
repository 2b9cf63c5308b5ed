"""What CUDA's autocast does with an operator, by the operator's name: `op.__name__` of torch's function or method.

LOW     products: every floating input in half precision
HIGH    exp, log and powers, softmax, norms, sums, losses: every floating input in float32
WIDEST  several inputs that must agree: float32 where one of them is, half precision where none is

An operator in none of the three runs on its inputs as they come. Operators that take a list of tensors (cat, stack) and
cells of recurrent networks are left out. The lists are those of torch/include/ATen/autocast_mode.h in torch 2.13, in
the names of https://pytorch.org/docs/stable/amp.html, "Autocast Op Reference".
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOW = _names("""
    addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d einsum linear matmul mm mv prelu scaled_dot_product_attention
""")
HIGH = _names("""
    acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity cross_entropy cumprod
    cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm log log10 log1p
    log2 log_softmax logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss norm
    pdist poisson_nll_loss pow prod reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax
    softplus sum tan triplet_margin_loss
""")
WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot index_put scatter_add tensordot vdot")
