# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 Optimizers
#
# **What does each term in Adam buy?**
#
# A gradient says which way is down, here and now. It does not say how far to go, and on a small batch even the
# direction is only roughly right. At the end of this lesson you will be able to
#
# - write SGD, momentum, Adagrad, RMSprop, Adadelta and AdamW, and say what breaks without each term;
# - keep a gradient unbiased when some examples are drawn more often than others;
# - measure when a larger batch stops paying, and the bytes that an optimizer keeps;
# - choose an optimizer, a schedule and a rate, and know which of your reasons were measured.
#
# You need: PyTorch's training loop, mean and variance; eigenvalues and singular values for a few sections.
#
# None of the four parts needs another's answers. {{ workload(reading=75, sittings=4) }}

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from course import check, hint, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are tiny: a second thread costs more than it brings

# %% [markdown]
# # Part I: one rate for all
#
# ## 1. A race
#
# Six optimizers start at the same point with the same *learning rate*, or *rate* for short: gradient descent (called
# SGD here, but with the full gradient), momentum, Nesterov, Adagrad, RMSprop and Adam. The first surface is a ravine,
# 100 times more curved across than along. Press play: which optimizer is lowest after {{ STEPS }} steps? Then try the
# other surfaces, one slider at a time.

# %%
from course.lessons.widgets.race import race

race()

# %% [markdown]
# In the ravine Nesterov's method ends lowest, and momentum crosses the floor {{ crossings("momentum") }} times. But no
# optimizer wins on every surface, and one rate for all is not fair: here no step of Adam moves a coordinate by more
# than one rate, so at 0.01 Adam cannot even cross the picture in {{ STEPS }} steps. Tick "each at its own best rate"
# for the best of {{ len(RATES) }}. At the rate 0.01 the best place for the momentum slider is about
# {{ best_momentum() : .2f }}.
#
# Adagrad, RMSprop and Adam give each *coordinate* a rate of its own.
#
# **Predict.** Now the ravine is turned by 45 degrees. What happens to SGD, and what to Adagrad?

# %%
from course.lessons.experiments.race import best_rates
from course.lessons.experiments.race import race as run_race
from course.lessons.experiments.surfaces import grid
from course.lessons.figures.race import race_picture

race_picture(
    grid("turned ravine"),
    run_race("turned ravine", lr=best_rates("turned ravine")),
    title="The ravine turned by 45 degrees, each optimizer at its best rate",
)

# %% [markdown]
# SGD and momentum are unaffected: nothing in them depends on the axes. Adagrad and RMSprop lose most of their lead.
#
# ## 2. How large may a step be?
#
# Gradient descent moves against the gradient $g = \nabla f(x)$ with the rate $\eta$:
#
# $$x_{t+1} = x_t - \eta\, \nabla f(x_t).$$
#
# On a parabola $f(x) = \tfrac{h}{2} x^2$ with curvature $h$ the gradient is $h x$, so $x_{t+1} = (1 - \eta h)\, x_t$.
#
# **Predict.** With $h = 10$: what happens at $\eta = 0.05$, at $0.19$, and at $0.21$?

# %%
curvature = 10.0
for rate in (0.05, 0.1, 0.19, 0.2, 0.21):
    x = 1.0
    for _ in range(50):
        x -= rate * curvature * x
    print(f"rate {rate:4.2f}: each step multiplies x by {1 - rate * curvature:+.1f}; after 50 steps x = {x:.2e}")

# %% [markdown]
# The factor must lie between $-1$ and $1$, so
#
# $$0 < \eta < \frac{2}{h}.$$
#
# A surface of many dimensions has many curvatures, the eigenvalues of its Hessian, but there is one rate for all. The
# largest, $L$, sets the limit $2/L$. The smallest, $\ell$, sets the time, because along its direction a step only
# multiplies the error by $1 - \eta\ell$. With the best rate, $2/(L + \ell)$, the error shrinks in both directions by
# the factor
#
# $$\frac{\kappa - 1}{\kappa + 1} \quad\text{a step, where}\quad \kappa = \frac{L}{\ell}$$
#
# is the *condition number* (Nesterov, *Introductory Lectures on Convex Optimization*, 2004, Theorem 2.1.15). The number
# of steps grows like $\kappa$, which is why the ravine is slow.
#
# The limit has a second consequence. Below are two minima of the same height, a narrow one with curvature
# {{ minima.NARROW_CURVATURE : .0f }} and a wide one with curvature 1. Gradient descent starts from many points, at many
# rates.
#
# **Predict.** At which rate does the narrow minimum stop holding the starts on its side of the ridge between them?

# %%
from course.lessons.experiments import minima
from course.lessons.figures.minima import minima_picture

places = torch.linspace(*minima.VIEW, 401, dtype=torch.float64)
minima_picture(places, minima.heights(places), minima.ends(), minima.bounds())

# %% [markdown]
# Up to a rate of {{ narrow_keeps_all_up_to() : .3f }} the narrow minimum holds every start on its side. Just below
# $2/40 = 0.05$ it holds fewer, because steps jump over it; above, no run can come to rest there.
#
# Noise is another way out. Walkers start in the narrow minimum with a rate of 0.02, and their slopes are noisy, like
# those of a small batch:

# %%
for noise in (0, 4, 6, 8):
    share = minima.wandering(0.02, noise)
    print(f"slopes with noise of standard deviation {noise}: {share:4.0%} are in the wide valley after 1,000 steps")

# %% [markdown]
# Enough noise drives most walkers into the wide valley, which has more room.
#
# ## 3. Momentum: average the past
#
# Across a ravine successive gradients cancel; along its floor they agree. So keep a running sum of them:
#
# $$
# \begin{aligned}
# b_t &= \mu\, b_{t-1} + g_t, \qquad b_1 = g_1,\\
# \theta_t &= \theta_{t-1} - \eta\, b_t .
# \end{aligned}
# $$
#
# - $\theta$ are the parameters, $g_t$ is the gradient at $\theta_{t-1}$, $b$ is the *buffer*, of the same shape;
# - $\mu$ in $[0, 1)$ is the *momentum*, often 0.9.

# %%
buffer = 0.0
for step in range(1, 61):
    buffer = 0.9 * buffer + 1.0
    if step in (1, 2, 5, 10, 60):
        print(f"after {step:2d} gradients of 1: buffer {buffer:.3f}")

# %% [markdown]
# The buffer approaches ten: a sum over about $1/(1 - \mu)$ steps. If you switch momentum on and leave the rate alone,
# your steps become up to ten times longer. In return, on a quadratic the best possible factor improves from
# $\frac{\kappa-1}{\kappa+1}$ to $\frac{\sqrt\kappa-1}{\sqrt\kappa+1}$ (Polyak 1964; with proof in Goh, *Why Momentum
# Really Works*, Distill 2017): at $\kappa = 10{,}000$, ten digits take, by these factors,
# {{ momentum_steps(10_000) : ,.0f }} steps, not {{ plain_steps(10_000) : ,.0f }}.
#
# Textbooks differ on three details. Your function follows PyTorch:
#
# - **A sum, with the rate outside.** Some books take an average, $b_t = \mu b_{t-1} + (1 - \mu) g_t$.
# - **Nesterov looks ahead.** The step uses $g_t + \mu\, b_t$ in place of $b_t$: the buffer after one more step with the
#   same gradient (Sutskever et al., ICML 2013, section 2, in PyTorch's form).
# - **Weight decay comes first.** It pulls the parameters towards 0: $g_t \leftarrow g_t + \lambda\,\theta_{t-1}$, with
#   the decay $\lambda$, *before* all else. So the decay has momentum too.
#
# What an optimizer keeps between steps is its *state*. The tensors themselves must change, *in place* (`-=`, `mul_`,
# `add_`, `lerp_`, `copy_`).
#
# A gradient of shape $(3,)$ for a parameter of shape $(4, 3)$ would be broadcast without an error. So this function,
# like most in this lesson, *refuses* such input.
#
# Every exercise has three hints; `hint(sgd_step)` shows the next one. The first is:

# %%
hint("sgd_step", 1)


# %% exercise
from torch import Tensor


def sgd_step(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[dict[str, Tensor]],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """One step of SGD, in place: afterwards the tensors in `params` hold the new values.

    params        tensors of any shapes, () too, in any floating dtype. They do not require a gradient. In place means
                  in the tensor's own memory: an assignment to a name or to `.data` does not change it.
    grads         their gradients, of the same shapes and dtypes. They are not changed, and their memory belongs to the
                  caller, who may write the next gradients into it.
    state         one dict per parameter, empty before the first step; it comes back as you left it, or as a copy, with
                  a copy of the parameter: all that you remember is in it. With momentum it keeps one tensor of the
                  parameter's shape and dtype (name it as you like), without momentum none.
    lr            the rate, at least 0; it may differ from step to step
    momentum      mu, in [0, 1); 0 means no momentum
    nesterov      whether the direction is g + mu b instead of b; of no effect without momentum
    weight_decay  wd, at least 0: wd p is added to the gradient before all else
    Refused       with a ValueError, before anything is changed: a negative lr or weight_decay, a momentum outside
                  [0, 1), a gradient that has another shape than its parameter.
    Example       p = [1.], lr = 0.1, momentum = 0.9, gradients [2.], then [2.]: p is [0.8], then [0.42].
    Not allowed: torch.optim.
    """
    if lr < 0 or weight_decay < 0:
        raise ValueError(f"lr and weight_decay must be at least 0, got {lr} and {weight_decay}")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
    for p, grad in zip(params, grads, strict=True):
        if grad.shape != p.shape:
            raise ValueError(f"a gradient must have its parameter's shape {tuple(p.shape)}, got {tuple(grad.shape)}")

    for p, grad, kept in zip(params, grads, state, strict=True):
        g = grad + weight_decay * p  # a new tensor: the caller's gradient stays as it is
        if momentum > 0:
            if not kept:
                kept["b"] = g.clone()  # b = g in the first step
            else:
                kept["b"].mul_(momentum).add_(g)  # b <- mu b + g later
            g = g + momentum * kept["b"] if nesterov else kept["b"]
        p -= lr * g  # p <- p - lr g


# %%
check(sgd_step)

# %% [markdown]
# ## 4. The gradient you have is an estimate
#
# The loss is a mean over all examples, $f(\theta) = \frac1n \sum_i f_i(\theta)$, and one full gradient costs $n$
# examples. *Stochastic* gradient descent takes a few at random, and its gradient is right only on average.
#
# Here is logistic regression with a penalty, so that no curvature is below $\ell = 1$, on {{ logistic.EXAMPLES }}
# examples. In one *epoch*, a pass over all of them, the full gradient takes one step, and SGD takes
# {{ logistic.EXAMPLES }} with one example each.
#
# **Predict.** Full gradient or SGD with a constant rate: which is ahead after one epoch? And after forty?

# %%
from course.lessons.experiments import logistic
from course.lessons.figures.convergence import floors, gap_curves

descents = logistic.compare()  # 20 runs of each, 40 epochs
shown = [
    "full gradient, rate 2/(L + ℓ)",
    "SGD, rate 1/(2 L)",
    "SGD, rate 1/(8 L)",
    "SGD, rate 1/(32 L)",
    "SGD, rate falls as 2/(ℓ t)",
]
gap_curves(
    {name: descents.curves[name] for name in shown},
    title="The gap to the minimum, over passes through the data",
)

# %% [markdown]
# After one epoch SGD is far ahead. Then, at a constant rate, it stops at a *noise floor*, and the full gradient
# overtakes it. Even at the minimum the gradients of single examples cancel only on average, so the parameters keep
# jumping around. How far does the floor sink with the rate?

# %%
floors(
    descents.steps,
    descents.floors,
    {"estimate: rate/4 · noise at x*": descents.estimates, "bound: Theorem 4.6": descents.bounds},
    title="The floor over the rate: measured, estimated, and bounded",
)

# %% [markdown]
# The gap settles where what the noise adds in a step equals what descent takes away. Along a direction of curvature $h$
# in which the examples' gradients have the variance $\tau^2$, the noise adds $\tfrac12 \eta^2 h \tau^2$, and descent
# takes away about $2\eta h$ times the gap. So the gap is $\tfrac{\eta}{4}\tau^2$ in each direction, and in all
#
# $$\mathbb E\, f(x_t) - f^\star \;\longrightarrow\; \frac{\eta}{4}\; \mathbb E \lVert g_i(x^\star) \rVert^2
# \qquad\text{for small } \eta,$$
#
# - $f^\star$ is the minimum, at $x^\star$, and $g_i$ the gradient of a random example.
#
# From the rate $1/(16L)$ down the formula is right to {{ floor_over_estimate(16) - 1 : .0%}}; at $1/(2L)$ the floor is
# {{ floor_over_estimate(2) : .1f }} times as high (means of {{ logistic.RUNS }} runs). The *proven* bound (Bottou,
# Curtis and Nocedal, arXiv 1606.04838, Theorem 4.6) is {{ bound_over_floor(0) : .0f }} to
# {{ bound_over_floor(-1) : .0f }} times too high.
#
# A schedule (section 9) starts fast and then lowers the floor; a larger batch (section 11) lowers it too.
#
# ## 5. Uneven draws
#
# If some examples are drawn more often than others, those of rare classes, say, the mean of what was drawn estimates
# the gradient of *another* loss.
#
# Let example $i$ out of $n$, with the gradient $g_i$, be drawn with probability $p_i > 0$. Multiply each drawn gradient
# by a weight $w_i$. **Which weight makes the expectation of one draw, $\sum_i p_i\, w_i\, g_i$, equal to
# $\frac1n \sum_i g_i$, whatever the gradients are?** The exercise needs it.
#
# Without weights:

# %%
gradients, probabilities = torch.tensor([1.0, 3.0]), torch.tensor([0.9, 0.1])
drawn = torch.multinomial(probabilities, 100_000, replacement=True, generator=torch.Generator().manual_seed(0))
print(f"mean of the draws {gradients[drawn].mean():.3f}; the full gradient is 2")


# %% exercise
import torch
from torch import Tensor


def minibatch_gradient(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """An unbiased estimate of the mean gradient, grads.mean(0), from the examples that were drawn.

    grads     (n, d), floating; row i is the gradient of example i
    probs     (n,), the probability of each example in one draw, in the dtype of grads. It may be 0 for some; those are
              never drawn.
    indices   (b,), int64, b at least 1: the examples of the batch, drawn one by one with replacement, so that some
              may repeat. In float16 each n w_i, and the sum of w_i g_i over the draws, is below 65504.
    Returns   (d,), in the dtype of grads: the mean over the b draws of w_i g_i. The weight w_i depends on p_i and n
              alone, and is such that the expectation over all possible draws is the mean gradient, whatever grads hold,
              if every probability is above 0. (An example of probability 0 is never seen: its share is missing.)
              Nothing that was handed in is changed.
    Example   grads [[2.], [4.]], probs [0.25, 0.75]: indices [0] gives [4.], [1] gives [2.6667], and the expectation
              is 0.25 * 4 + 0.75 * 2.6667 = 3, the mean. indices [0, 0, 1] gives [3.5556].
    """
    p = probs[indices]  # (b,)
    weights = 1 / (len(probs) * p)  # sum over i of p_i w_i g_i is the mean if w_i = 1 / (n p_i)
    return (weights[:, None] * grads[indices]).mean(dim=0)


# %%
check(minibatch_gradient)

# %% [markdown]
# A very small $p_i$ has a huge weight, which gives the estimate a large variance, unless $g_i$ is small too.
#
# # Part II: a rate for each, and when
#
# ## 6. Divide by what you have seen
#
# The ravine needs a small rate across and a large one along. If its axes are the axes of the parameters, each parameter
# can have a rate of its own: divide its gradient by the size of the gradients it has had so far, element by element.
#
# $$
# \begin{aligned}
# \text{Adagrad:} && v_t &= v_{t-1} + g_t^2, & d_t &= \frac{g_t}{\sqrt{v_t} + \epsilon}\\
# \text{RMSprop:} && v_t &= \rho\, v_{t-1} + (1 - \rho)\, g_t^2, & d_t &= \frac{g_t}{\sqrt{v_t} + \epsilon}\\
# \text{Adadelta:} && v_t &= \rho\, v_{t-1} + (1 - \rho)\, g_t^2, &
#   d_t &= \frac{\sqrt{u_{t-1} + \epsilon}}{\sqrt{v_t + \epsilon}}\; g_t, \qquad
#   u_t = \rho\, u_{t-1} + (1 - \rho)\, d_t^2
# \end{aligned}
# $$
#
# and in all three $\theta_t = \theta_{t-1} - \eta\, d_t$.
#
# - $v$ and $u$ start at zero; $\rho$ is the share of a moving average that is kept (`decay` in the code), $\epsilon$ a
#   small number, $d$ the direction.
#
# Sources: Adagrad, Duchi, Hazan and Singer, JMLR 12 (2011); RMSprop, Tieleman and Hinton, Coursera lecture 6.5 (2012);
# Adadelta, Zeiler, arXiv 1212.5701, Algorithm 1.
#
# Adagrad *sums*: each gradient lowers the rate of its parameter for good. Rare features keep large rates, but a long
# run becomes slower and slower. And its rate needs tuning: the GPT of section 17 ends {{ tried("Adagrad")[0] : .2f }}
# nats (units of PyTorch's cross-entropy) above the least possible loss at the usual 0.01, and
# {{ min(tried("Adagrad")) : .2f }} at the best of {{ len(tried("Adagrad")) }} rates.
#
# RMSprop *averages*, so it forgets. In Adadelta the ratio of two roots gives $d$ the units of the parameter, which a
# gradient does not have, and the rate is 1 by default.
#
# **Predict.** A parameter has had gradients of about $10^{-4}$, and $\epsilon = 10^{-3}$. By what factor do
# $\sqrt v + \epsilon$ and $\sqrt{v + \epsilon}$ differ?

# %%
seen, eps = 1e-4, 1e-3
print(f"outside: divides by {seen + eps:.4f}")
print(f"inside:  divides by {math.sqrt(seen**2 + eps):.4f}, {math.sqrt(seen**2 + eps) / (seen + eps):.0f} times more")

# %% [markdown]
# Inside the root, $\epsilon$ acts like $\sqrt\epsilon$ outside, and in RMSprop gradients below that barely move their
# parameter. RMSprop has no paper: PyTorch has $\epsilon$ outside, Keras 3 inside, so the same number means something
# else.


# %% exercise
from torch import Tensor


def adaptive_step(
    rule: str,
    param: Tensor,
    grad: Tensor,
    state: dict[str, Tensor],
    *,
    lr: float,
    decay: float = 0.9,
    eps: float = 1e-8,
) -> None:
    """One step of Adagrad, RMSprop or Adadelta on one parameter, in place.

    rule      "adagrad", "rmsprop" or "adadelta"
    param     any shape, float32 or float64. It does not require a gradient. In place means in the tensor's own memory:
              an assignment to a name or to `.data` does not change it.
    grad      shape and dtype of param; not changed
    state     belongs to this parameter; empty before the first step, and kept by the caller between steps. It may hold
              tensors of param's shape and dtype, under names of your choice: one for Adagrad, one for RMSprop, two for
              Adadelta; also single numbers. All that you remember is in it: after some steps of the check a deep copy
              of param and state goes on.
    lr        multiplies the direction d: param <- param - lr d, also in Adadelta; it may differ from step to step
    decay     of the moving averages, which start from 0; not used by Adagrad
    eps       outside the root in Adagrad and RMSprop, inside both roots in Adadelta; nothing else is added to a
              denominator, and 0 is allowed
    Refused   with ValueError, before anything is changed: another rule, lr < 0, decay outside [0, 1) (under
              every rule, Adagrad too).
    Example   param = tensor([1.0]), grad = tensor([2.0]), empty state, lr = 0.1, decay = 0.75, eps = 0: param becomes
              0.9 with "adagrad" (v = 4, d = 1) and 0.8 with "rmsprop" (v = 1, d = 2). With "adadelta" and eps = 1,
              v = 1 and d = 2 / sqrt(2): param becomes 0.8586.
    Not allowed: torch.optim.
    """
    if rule not in ("adagrad", "rmsprop", "adadelta"):
        raise ValueError(f"rule must be adagrad, rmsprop or adadelta, got {rule!r}")
    if lr < 0:
        raise ValueError(f"lr must be at least 0, got {lr}")
    if not 0 <= decay < 1:
        raise ValueError(f"decay must lie in [0, 1), got {decay}")
    if not state:
        state["v"] = torch.zeros_like(param)
        if rule == "adadelta":
            state["u"] = torch.zeros_like(param)
    v = state["v"]
    if rule == "adagrad":
        v += grad**2  # v <- v + g^2
    else:
        v.copy_(decay * v + (1 - decay) * grad**2)  # v <- decay v + (1 - decay) g^2
    if rule == "adadelta":
        u = state["u"]
        d = torch.sqrt(u + eps) / torch.sqrt(v + eps) * grad  # d = g sqrt(u + eps) / sqrt(v + eps)
        u.copy_(decay * u + (1 - decay) * d**2)  # then u <- decay u + (1 - decay) d^2
    else:
        d = grad / (torch.sqrt(v) + eps)  # d = g / (sqrt(v) + eps)
    param -= lr * d


# %%
check(adaptive_step)

# %% [markdown]
# ## 7. Adam
#
# Momentum averages gradients (here with the factor $1 - \mu$, from zero on); RMSprop divides by their size. Adam does
# both, and corrects an error that both make at the start (Kingma and Ba, arXiv 1412.6980, Algorithm 1). AdamW adds
# weight decay that is not divided (Loshchilov and Hutter, arXiv 1711.05101, Algorithm 2, in PyTorch's form):
#
# $$
# \begin{aligned}
# \theta &\leftarrow (1 - \eta\lambda)\,\theta && \text{decay, on the parameter itself}\\
# m_t &= \beta_1 m_{t-1} + (1 - \beta_1)\, g_t && \text{mean of the gradients}\\
# v_t &= \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2 && \text{mean of their squares}\\
# \hat m_t &= \frac{m_t}{1 - \beta_1^t}, \qquad \hat v_t = \frac{v_t}{1 - \beta_2^t}
#   && \text{both began at zero: correct for it}\\
# \theta &\leftarrow \theta - \eta\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}
# \end{aligned}
# $$
#
# - $m$ and $v$ are the *moments*, each of the parameter's shape;
# - $t$ counts the steps *of this parameter*: a layer that joins late starts at 1;
# - $\beta_1 = 0.9$, $\beta_2 = 0.999$, $\epsilon = 10^{-8}$ by default.
#
# *What does the correction buy?* **Predict** the length of the first step for a gradient of 0.01, with $\eta = 0.1$:
# with both corrections, and without.

# %%
beta1, beta2, rate, gradient = 0.9, 0.999, 0.1, 0.01
m, v = (1 - beta1) * gradient, (1 - beta2) * gradient**2
print(f"with both corrections: {rate * (m / (1 - beta1)) / math.sqrt(v / (1 - beta2)):.4f}")
print(f"without any:           {rate * m / math.sqrt(v):.4f}")

# %% [markdown]
# Without them it is three times too long: $m$ is too small by a factor of 10, $\sqrt v$ by about 32. With equal
# gradients it takes {{ uncorrected_until(1.05) : ,d }} steps until a step is less than a twentieth too long.
#
# *What does the division buy?* In the first step every number moves by $\eta$, whatever the size of its gradient.
# Multiply the loss by 1,000, and Adam's steps stay the same. *What does the mean buy?* Where gradients change sign,
# $\hat m$ is small compared with $\sqrt{\hat v}$, and so is the step.
#
# *Why is the decay not divided?* If $\lambda\theta$ is added to the gradient, as in `sgd_step`, it is divided by
# $\sqrt{\hat v}$ as well, and parameters with large gradients decay less. AdamW shrinks all of them by the same share.
# Usually only matrices are decayed, not biases and the gains of norms (as in github.com/karpathy/nanoGPT).
#
# Inside the root, the default $\epsilon$ would act like $10^{-4}$ (section 6).


# %% exercise
import torch
from torch import Tensor


def adamw_step(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[dict[str, Tensor]],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """One step of AdamW, in place: afterwards the tensors in `params` hold the new values.

    params        tensors of any shapes, () too, in any floating dtype. They do not require a gradient. In place means
                  in the tensor's own memory: an assignment to a name or to `.data` does not change it.
    grads         their gradients, of the same shapes and dtypes. They are not changed. None: this parameter had no part
                  in this step; nothing of it changes, neither its moments nor its age.
    state         one dict per parameter, empty before its first gradient; it comes back as you left it, or as a copy,
                  with a copy of the parameter: all that you remember is in it. It keeps two tensors of the parameter's
                  shape and dtype (name them as you like), and the step count t, as a number or as a tensor that holds
                  one, in a dtype that can count to a million.
    lr            the rate, at least 0; it may differ from step to step
    betas         beta1 for the mean of the gradients, beta2 for the mean of their squares, each in [0, 1)
    eps           is added to the root of the corrected v. Nothing else is added to that root. In float16, where 1e-8 is
                  rounded to 0, no v is 0.
    weight_decay  wd: the parameter loses lr wd p, with p as it was before the step
    Refused       with a ValueError, before anything is changed: a negative lr, a beta outside [0, 1), a gradient that
                  has another shape than its parameter.
    Example       p = [1.], lr = 0.1, weight_decay = 0, gradients [2.], then [2.]: p is [0.9], then [0.8].
    Not allowed: torch.optim.
    """
    beta1, beta2 = betas
    if lr < 0:
        raise ValueError(f"lr must be at least 0, got {lr}")
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        raise ValueError(f"betas must lie in [0, 1), got {betas}")
    for p, g in zip(params, grads, strict=True):
        if g is not None and g.shape != p.shape:
            raise ValueError(f"a gradient must have its parameter's shape {tuple(p.shape)}, got {tuple(g.shape)}")

    for p, g, kept in zip(params, grads, state, strict=True):
        if g is None:
            continue
        if not kept:
            kept.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        kept["t"] += 1
        p.mul_(1 - lr * weight_decay)  # p <- p - lr wd p
        kept["m"].mul_(beta1).add_((1 - beta1) * g)  # m <- beta1 m + (1 - beta1) g
        kept["v"].mul_(beta2).add_((1 - beta2) * g**2)  # v <- beta2 v + (1 - beta2) g^2
        m_hat = kept["m"] / (1 - beta1 ** kept["t"])
        v_hat = kept["v"] / (1 - beta2 ** kept["t"])
        p -= lr * m_hat / (v_hat.sqrt() + eps)  # p <- p - lr m_hat / (sqrt(v_hat) + eps)


# %%
check(adamw_step)

# %% [markdown]
# ## 8. Where Adam fails, and a map
#
# Adam was published with a proof of convergence, and the proof was wrong. Here is the counterexample of Reddi, Kale and
# Kumar (arXiv 1904.09237), a game: in each round the player chooses $x$ between $-1$ and $1$, then sees a loss and pays
# it. *Regret* is how much more was paid than with the best fixed choice. Every third loss is $3x$, the other two are
# $-x$; on average that is $x/3$, so the best choice is $x = -1$. Adam plays with $\beta_1 = 0$, a very short memory,
# $\beta_2 = 0.1$, and rates that fall as $1/\sqrt t$. Where does it end?

# %%
from course.lessons.experiments import amsgrad
from course.lessons.figures.convergence import choices_and_regret

games = amsgrad.compare()
choices_and_regret(
    {name: (game.positions, game.average_regret) for name, game in games.items()},
    title="Choices over the rounds, and what they cost on average",
)

# %% [markdown]
# After the large gradient, Adam divides by about that gradient's own size, so the step to the left is one rate long.
# Then it forgets: the two steps to the right are divided by less, and together they are longer. *AMSGrad* divides by
# the largest second moment so far, so nothing is forgotten.
#
# With the usual $\beta_2 = 0.999$ Adam too goes to $-1$: the game does not mean that it fails on ordinary problems.
#
# On another problem the length of a step has a unit. `cities()` is a table of distances between cities.
# *Multidimensional scaling* looks for points in the plane with these distances: it minimises
#
# $$\text{stress}(x) = \sum_{i<j} \bigl(\lVert x_i - x_j \rVert - \delta_{ij}\bigr)^2 .$$
#
# - $x_i$ is the position of city $i$, two numbers in km; $\delta_{ij}$ is the distance in the table, in km.
#
# A solution may be turned, shifted or mirrored, so each map is laid over the true one. Does plain gradient descent find
# it from every random start? (On *classical scaling*, the third map below, see "More".)

# %%
from course.lessons.data.cities import cities
from course.lessons.experiments import scaling_map
from course.lessons.figures.maps import compare_maps

names, distances, _ = cities()
print("Lisbon to Kyiv:", distances[names.index("Lisbon"), names.index("Kyiv")].item(), "km")

world = scaling_map.recover()  # from 100 random starts
compare_maps(
    world.names,
    world.maps["true"],
    {
        "As it was found": world.maps["raw"],
        "The same, aligned to the true map": world.maps["descent"],
        "Classical scaling, no descent": world.maps["classical"],
        "One that is stuck": world.maps["stuck"],
    },
    title="A table of distances holds the map, up to turning and mirroring",
    alone=["As it was found"],
)

# %% [markdown]
# From nearly every one: of 100 starts, {{ min(starts().stuck) }} to {{ max(starts().stuck) }} are stuck, over
# {{ len(starts().stuck) }} seeds. The rate of plain descent, 1 over twice the number of cities, needs no tuning here.
# Adam's is a length, so it has to be chosen *in km*: after {{ starts().adam[0].steps }} steps,
# {{ starts().adam[0].rate : .0f }} km leave {{ fewest_most(starts().adam[0].stuck) }} of 100 starts stuck,
# {{ starts().adam[1].rate : .0f }} km {{ fewest_most(starts().adam[1].stuck) }} (over {{ len(starts().adam[0].stuck) }}
# seeds).
#
# What does a gradient buy? All {{ 2 * len(cities().names) }} slopes, for at most about five evaluations (Griewank and
# Walther, *Evaluating Derivatives*, 2008). Without gradients, one can measure and follow the slope along a random
# direction, or keep random steps that lower the stress (an *evolution strategy*):

# %%
from course.lessons.experiments import gradient_free

for name, row in gradient_free.compare().items():  # the median start; found is within 1% of the least stress
    early = f"off by {row.rms:5.1f} km after {gradient_free.BUDGET} evaluations"
    print(f"{name:18} {early}, map found after {row.evaluations:5,} ({row.steps:5,} steps)")

# %% [markdown]
# Over {{ spelled(len(searches())) }} seeds this takes {{ fewest_most(times_more("steps")) }} times as many steps, and
# {{ fewest_most(times_more("evaluations")) }} times as many evaluations. Theory for random directions: about as many
# times more steps as there are numbers (Nesterov and Spokoiny, 2017).
#
# ## 9. How fast, when?
#
# Large models start with a *warm-up*: the rate grows in a straight line from zero (Vaswani et al., arXiv 1706.03762,
# section 5.3). It helps; why is disputed. Then the rate falls, and the noise floor of section 4 with it, usually along
# half a period of a cosine (Loshchilov and Hutter, arXiv 1608.03983, equation 5):
#
# $$
# \eta(s) = \begin{cases}
# \eta_{\max}\, \dfrac{s}{w} & s < w,\\[2ex]
# \eta_{\min} + \tfrac12 (\eta_{\max} - \eta_{\min}) \Bigl(1 + \cos \pi\, \dfrac{s - w}{T - w}\Bigr)
#   & w \le s \le T,\\[1.5ex]
# \eta_{\min} & s > T,
# \end{cases}
# $$
#
# - $s$ is the step, $w$ the steps of warm-up, $T$ the steps in all, $\eta_{\max}$ the peak, $\eta_{\min}$ the floor.

# %%
from course.lessons.experiments.schedules import SCHEDULES, learning_rates
from course.lessons.figures.schedules import schedule_curves

schedule_curves(
    {name: learning_rates(name, 1_000, peak=3e-4, warmup=100) for name in SCHEDULES},
    title="Five schedules with the same peak: they differ in when the rate falls",
    marks={"warm-up ends": 100},
)

# %% [markdown]
# At $s = 0$ the rate is 0, so the first step only fills Adam's moments.


# %% exercise
import math


def warmup_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The learning rate of one step: a straight line up to `peak`, then half a cosine down to `floor`.

    step      counts from 0
    peak      the rate at step `warmup`, where the way up ends and the way down begins; it may be 0
    warmup    how many steps the way up takes: the rate is 0 at step 0 and grows by the same amount with each step. 0:
              there is no way up, and step 0 has the peak.
    total     the step at which the rate arrives at `floor`, at least warmup + 1; it stays there for every step after it
    floor     the rate that the way down ends with: it may be 0, as high as `peak`, or higher (the formula stays the
              same, the rate then rises); the way up does not know it
    Returns   a number
    Refused   with a ValueError: a negative step, peak, warmup or floor; a total that is not greater than warmup
    Example   with peak=1.0, warmup=4, total=12: steps 0, 1, 4, 6, 8, 12, 100 have the rates
              0.0, 0.25, 1.0, 0.8536, 0.5, 0.0, 0.0.
    Not allowed: torch.optim.
    """
    if step < 0 or peak < 0 or warmup < 0 or floor < 0:
        raise ValueError(f"step and rates must be at least 0, got {step=}, {peak=}, {warmup=}, {floor=}")
    if total <= warmup:
        raise ValueError(f"total must be greater than warmup, got {total=}, {warmup=}")
    if step < warmup:
        return peak * step / warmup
    t = min(1.0, (step - warmup) / (total - warmup))  # the share of the descent that is over
    return floor + (peak - floor) * (1 + math.cos(math.pi * t)) / 2


# %%
check(warmup_cosine)

# %% [markdown]
# ## 10. When a gradient is too long
#
# One bad batch can give a gradient a hundred times longer than usual. *Clipping by the global norm* keeps its direction
# and shortens it (Pascanu, Mikolov and Bengio, arXiv 1211.5063, Algorithm 1):
#
# $$
# N = \sqrt{\textstyle\sum_k \lVert g_k \rVert^2}, \qquad
# g_k \leftarrow g_k \cdot \min\Bigl(1,\; \frac{N_{\max}}{N + 10^{-6}}\Bigr),
# $$
#
# - $g_k$ are the gradients of *all* parameters, $N$ is their norm as one long vector, $N_{\max}$ is the largest norm
#   allowed. The $10^{-6}$ is PyTorch's.
#
# Clipping each gradient by itself would change the direction: with $N_{\max} = 1$, norms of 3 and 4 would both become
# 1.
#
# Adam divides by the size of gradients anyway, so why clip? Because one huge gradient inflates $v$ for a thousand
# steps. And what about an `inf`? Your function should do as PyTorch does:

# %%
spoilt = [torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)]
spoilt[0].grad, spoilt[1].grad = torch.tensor([1.0, math.inf]), torch.tensor([5.0])
norm = torch.nn.utils.clip_grad_norm_(spoilt, 1.0)
print("norm", norm.item(), " gradients", spoilt[0].grad.tolist(), spoilt[1].grad.tolist())


# %% exercise
import torch
from torch import Tensor


def clip_grad_norm_(grads: list[Tensor], max_norm: float) -> Tensor:
    """Shorten all gradients together to a norm of `max_norm` (less by 1e-6), in place; shorter ones stay as they are.

    grads     tensors of any shapes, () and (0, 3) too, and views too, in any floating dtypes, which may differ. All are
              multiplied by one factor: the smaller of 1 and max_norm / (norm + 1e-6). It may be rounded to a tensor's
              dtype, as torch's `_foreach_mul_` does. Where the norm is below max_norm - 1e-6 it is 1, and no bit
              changes. The new numbers go into the memory of the very tensors: `g.data = ...` would give g another.
    max_norm  the limit, at least 0; inf is allowed where the norm is finite
    Returns   the norm *before*, a tensor of shape (), or a number: the Euclidean norm of all numbers in all tensors, as
              if they were one vector. Squares are added up in float32, because float16 ends at 65504, and in float64
              where the tensors are; norms may then be rounded to the tensors' dtype, as torch does. 0 for an empty
              list.
    inf, nan  are no errors. If the norm is inf, the factor is 0: finite numbers become 0, and the infinite one becomes
              0 * inf = nan. If the norm is nan, the factor is nan, and so is everything then.
    Refused   with a ValueError, before anything is changed: a negative max_norm; a max_norm that is nan
    Example   grads [tensor([3.]), tensor([[4.]])], max_norm 1.0: returns 5.0, and the tensors hold 0.6 and 0.8.
    Not allowed: torch.nn.utils.
    """
    if not max_norm >= 0:  # nan < 0 is false
        raise ValueError(f"max_norm must be at least 0, got {max_norm}")
    if not grads:
        return torch.tensor(0.0)
    norms = torch.stack([torch.linalg.vector_norm(g) for g in grads])  # adds up the squares of float16 in float32
    norm = torch.linalg.vector_norm(norms)  # |g| = sqrt(sum of |g_k|^2)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # Python's min(1.0, nan) would be 1.0
    for g in grads:
        g.mul_(factor)
    return norm


# %%
check(clip_grad_norm_)

# %% [markdown]
# ## Find the fault: three programs
#
# Three programs stand in your lecture notes. `adam` and `adam_in_place` should be Adam as in section 7, without decay.
# `accumulate` should go through all its batches in each epoch, in groups of $k$, and take a step for each group with
# the mean of its batches' gradients; the last group may hold fewer batches. The gradient of a batch is
# `p - batch.mean(dim=0)`. Each program has exactly one wrong line.

# %%
from course.lessons.experiments import lecture_notes

for name in lecture_notes.PROGRAMS:
    print(lecture_notes.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# Both Adams now get a gradient of 0.01 in each step. **Predict:** if they were right, how long would each step be, in
# multiples of the rate? And how many steps would `accumulate` take in an epoch?

# %%
constant = {"p": torch.zeros(1), "grads": torch.full((6, 1), 0.01), "lr": 0.1}
for name in ("adam", "adam_in_place"):
    path = lecture_notes.run(name, **constant, beta1=0.9, beta2=0.999, eps=1e-8)
    lengths = [f"{step / 0.1:6.2f}" for step in path.diff(dim=0).flatten().tolist()]
    print(f"{name:14} steps 1 to 6, in rates: {', '.join(lengths)}")

around = torch.arange(10.0).reshape(10, 1, 1)  # ten batches of one example each: 0, 1, ..., 9
for k in (4, 5, 12):
    path = lecture_notes.run("accumulate", p=torch.zeros(1), batches=around, lr=0.1, k=k, epochs=100)
    steps, end = len(path) - 1, path[-1].item()
    print(f"accumulate     10 batches, k = {k:2d}: {steps:3d} steps in 100 epochs, p ends at {end:.2f}")

# %% [markdown]
# Each step of Adam should be one rate long, down. Name the line that contains each fault; it need not be the one where
# the fault shows.


# %% exercise
def mend_the_notes() -> dict[str, tuple[int, str]]:
    """The wrong line of each of the three programs above, and how it must read.

    Returns   for "adam", "adam_in_place" and "accumulate" the number of the wrong line as it is printed above, and the
              line that replaces it, a str without a line break. Its indentation is kept, and may be left out; `torch`
              and `math` are imported.
    Judged    by what the program does with your line in it: it does what it should on any numbers, and any spelling of
              it is right. `accumulate` is also run where the groups come out even, and on fewer batches than k.
    Example   {"adam": (2, "path = []"), ...} would replace the second line of `adam`.
    """
    return {
        "adam": (5, "m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2"),  # plus: an average
        "adam_in_place": (11, "p.addcdiv_(m_hat, v_hat.sqrt() + eps, value=-lr)"),  # the corrected ones
        "accumulate": (4, "for i in range(math.ceil(len(batches) / k)):"),  # rounded up: the last one may be smaller
    }


# %%
check(mend_the_notes)

# %% [markdown]
# # Part III: batches
#
# ## 11. When does a larger batch stop paying?
#
# Twice the batch halves the variance of the gradient. Does that save steps?
#
# **Predict.** A small network learns the digits (8 by 8 pixels, ten classes) by plain SGD, to a training loss of
# {{ runs().target : .1f }}. With batches of 1 that takes {{ steps(1) : ,.0f }} steps. How many does it take with
# batches of 2, 16 and 1,024, each at its best rate?

# %%
from course.lessons.experiments import bootstrap, critical_batch
from course.lessons.figures.batches import noise_along, steps_by_batch

full = critical_batch.recorded()
print(full)
runs, noise = full.data.runs, full.data.noise
best = critical_batch.best(runs)
fit = critical_batch.fit(runs)
sizes = [2 ** (k / 8) for k in range(81)]
steps_by_batch(
    runs.batch_sizes,
    [point.by_seed for point in best],
    (sizes, [fit.steps(size) for size in sizes]),
    marks={
        "critical, measured": fit.critical,
        "noise scale, mean over a run": critical_batch.predicted(noise.simple),
    },
    band=bootstrap.band(runs, sizes),
    target=runs.target,
    title="Larger batches save steps, but only up to the critical size",
)

# %% [markdown]
# It takes {{ steps(2) : ,.0f }} steps with batches of 2, {{ steps(16) : .0f }} with 16, and {{ steps(1024) : .0f }}
# with 1,024 (means of {{ critical_batch.SEEDS }} seeds). Up to 4, twice the batch halves the steps. Far to the right it
# saves nothing: the gradient is already good, and curvature limits the step. In between lies the *critical batch size*.
# McCandlish et al. (arXiv 1812.06162, section 2.3) fit such curves by
#
# $$
# T(B) = T_{\min} + \frac{E_{\min}}{B},
# \qquad B_{\text{crit}} = \frac{E_{\min}}{T_{\min}},
# $$
#
# - $T(B)$ is the number of steps to the target with batches of $B$ examples, $T_{\min}$ the fewest steps, and
#   $E_{\min}$ the fewest examples.
#
# At $B_{\text{crit}}$ both steps and examples are twice their minimum. The curve fits all eleven points within
# {{ worst_fit() : .0%}}, and gives $B_{\text{crit}}$ as {{ critical() : .0f }}.
#
# They also predict its order of magnitude from the gradients of *one* run. A batch of $B$ examples gives the gradient
# $G$ plus noise of covariance $\Sigma / B$. The two are equally long at the batch size
#
# $$
# B_{\text{simple}} = \frac{S}{\lVert G \rVert^2}, \qquad S = \operatorname{tr} \Sigma,
# $$
#
# - $G$ is the full gradient, $\Sigma$ the covariance of the gradients of single examples; its trace $S$ is the sum of
#   the variances of all entries.
#
# Nobody has $G$ during training, but squared lengths of gradients from batches of two sizes, $B_1 < B_2$, can be
# measured:
#
# $$
# \mathbb E \lVert G_{B_1} \rVert^2 = \lVert G \rVert^2 + \frac{S}{B_1}, \qquad
# \mathbb E \lVert G_{B_2} \rVert^2 = \lVert G \rVert^2 + \frac{S}{B_2}.
# $$
#
# Solve these equations for $\lVert G \rVert^2$ and $S$ with pencil and paper; the exercise needs the result. With
# measured values in place of the expectations, the solutions are unbiased estimates. Their *ratio* is not.
#
# **Predict.** Let $\lVert G \rVert^2 = 1$ and $S = 400$, and take 100 draws of batches of 16 and of 64. What can go
# wrong with the mean of the 100 ratios, but not with the ratio of the means?

# %%
rng = torch.Generator().manual_seed(1)
true_signal, true_noise, few, many = 1.0, 400.0, 16, 64  # |G|**2, tr(Sigma), and the two batch sizes
direction = torch.zeros(100)
direction[0] = math.sqrt(true_signal)


def squared_lengths(batch: int, draws: int) -> torch.Tensor:
    """Squared lengths of batch gradients: the signal, and noise of tr(Sigma) / batch over 100 parameters."""
    noise = torch.randn(draws, 100, generator=rng) * math.sqrt(true_noise / batch / 100)
    return (direction + noise).square().sum(1)


short, long = squared_lengths(few, 100), squared_lengths(many, 100)
equations = torch.tensor([[1.0, 1 / few], [1.0, 1 / many]])
g2, s = torch.linalg.solve(equations, torch.stack([short, long]))  # for each draw: |G|**2, and S
print(f"true noise scale                {true_noise / true_signal:8.0f}")
print(f"average first, then divide      {s.mean() / g2.mean():8.0f}")
print(f"ratio of each draw, then average{(s / g2).mean():8.0f}")

# %% [markdown]
# The mean of the ratios came out negative: in three draws of ten the estimate of $\lVert G \rVert^2$ is negative, and
# those near zero dominate. Over {{ SEEDS : ,d }} seeds nine of ten results lie between {{ nine_of_ten("first") }} if
# you average first, and between {{ nine_of_ten("after") }} if you divide first; the farthest is
# {{ farthest("after") }}.
#
# A ratio whose denominator can be zero has such heavy tails that it has no mean. So average the *squared lengths*
# first, then divide once; if $\lVert G \rVert^2$ still comes out negative, take more draws.


# %% exercise
import torch
from torch import Tensor


def gradient_noise_scale(small: Tensor, large: Tensor, b_small: int, b_large: int) -> tuple[float, float, float]:
    """The noise S, the squared gradient |G|^2, and their ratio, the noise scale, from batches of two sizes.

    small     (n, d): n draws, each row the mean gradient of a batch of `b_small` examples
    large     (m, d): m draws of batches of `b_large` examples; m and n may differ, and may be 1. The draws are both in
              float32 or both in float64.
    Returns   (S, |G|^2, S / |G|^2), three numbers, or tensors of shape (). Squared norms are averaged over the draws
              *before* anything is subtracted or divided, so that S and |G|^2 are right on average. S may come out
              negative, and is returned as it is. A |G|^2 above 0 is returned, however small it is, as long as the
              dtype of the draws holds their squares. Draws in float64 are computed in float64, nothing in float32.
    Refused   with a ValueError: b_small that is not less than b_large; an estimate of |G|^2 that is 0 or negative.
    Example   small = [[3., 0.], [1., 0.]], large = [[2., 0.], [1., 1.]], b_small = 1, b_large = 3: the mean squared
              norms are 5 and 3, and (3., 2., 1.5) is returned.
    The draws are not changed.
    """
    if b_small >= b_large:
        raise ValueError(f"b_small must be less than b_large, got {b_small} and {b_large}")
    mean_small = (small.double() ** 2).sum(dim=1).mean().item()  # |G|^2 + S / b
    mean_large = (large.double() ** 2).sum(dim=1).mean().item()  # |G|^2 + S / B
    squared_gradient = (b_large * mean_large - b_small * mean_small) / (b_large - b_small)  # S cancels
    noise = (mean_small - mean_large) / (1 / b_small - 1 / b_large)  # |G|^2 cancels
    if squared_gradient <= 0:
        raise ValueError(
            f"the estimate of |G|^2 must be positive, got {squared_gradient:.3g}: take more draws or larger batches"
        )
    return noise, squared_gradient, noise / squared_gradient


# %%
check(gradient_noise_scale)

# %% [markdown]
# Here is the exact noise scale of the digits, along one run with batches of 1,024.

# %%
print(critical_batch.report(full.data))
noise_along(
    noise.steps,
    noise.loss,
    critical_batch.scales(noise),
    critical=fit.critical,
    title="The noise scale along a run, up to the target",
)

# %% [markdown]
# Over {{ len(noise_by_rate()[0]) }} such runs the mean lies between {{ fewest_most(noise_by_rate()[0], "and") }}, and
# with half the rate between {{ fewest_most(noise_by_rate()[1], "and") }}: a rate near the largest possible keeps
# $\lVert G \rVert^2$ large by bouncing across the ravines. So expect the order of magnitude, from a well-tuned rate.
# (The last line weighs directions by curvature, with the Hessian: McCandlish et al., section 2.2.)
#
# ## 12. Other batch, other rate
#
# A better gradient allows a larger rate. Two rules say how much larger, both for batches *far* below the critical one:
#
# - For SGD, in proportion to the batch (Goyal et al., arXiv 1706.02677, section 2.1).
# - For Adam, like the *square root* of the batch (Malladi et al., arXiv 2205.10287; their rule changes the betas and
#   $\epsilon$ as well). Where noise dominates, $\sqrt{\hat v}$ shrinks like one over the root of the batch, so the
#   division already supplies the other root.
#
# **Predict.** From batches of 4 to 16, by which factor should the best rate grow by each rule? And what will happen
# from 256 to 1,024, far above SGD's $B_{\text{crit}}$?

# %%
from course.lessons.experiments import batch_rates
from course.lessons.figures.batches import rates_by_batch

found, sgd = batch_rates.recorded(), full.data.runs
adam = found.data.adam
print(found)
print(batch_rates.report(sgd, found.data))
sizes = sgd.batch_sizes
rates = {"SGD": batch_rates.best_rates(sgd), "Adam": batch_rates.best_rates(adam)}


def rule(name, share, up_to):
    """A rule for the rate, through the best rates of the smaller batches."""
    return batch_rates.through(sizes, rates[name], share, up_to=up_to)


rules = {
    "SGD": {"proportional to B": rule("SGD", lambda size: size, 8)},
    "Adam": {"proportional to the root of B": rule("Adam", lambda size: size**0.5, batch_rates.critical(adam))},
}
intervals = {"SGD": bootstrap.rates(sgd), "Adam": bootstrap.rates(adam)}
rates_by_batch(sizes, rates, intervals, rules, title="The best rate over the batch size, and two rules")

# %% [markdown]
# From 4 to 16 the rules say 4 for SGD and 2 for Adam; the best rates grew by {{ growth("sgd", 4, 16) : .1f }} and
# {{ growth("adam", 4, 16) : .1f }}. From 256 to 1,024 both grew by {{ growth("sgd", 256, 1024) : .1f }}. Over all sizes
# below the critical one the root holds for Adam (see the exponents above); proportion does not for SGD: batches of 4 to
# 16 are not far below {{ critical() : .0f }}. (For weight decay see "More".)
#
# A surprise: the critical batch size depends on the optimizer too. Adam's is {{ critical("adam") : .0f }}.
#
# ## 13. Let the machine search
#
# We look for an MLP on {{ search.FIT : ,d }} digits, trained by SGD for {{ search.STEPS }} steps, with the least loss
# on the other {{ DIGITS - search.FIT }}: which rate, momentum, width and weight decay? A grid of five values each would
# be $5^4 = 625$ runs. *Optuna* looks where earlier trials were good (by the tree-structured Parzen estimator, TPE;
# Akiba et al., arXiv 1907.10902). Momentum is searched as $1 - \mu$, called `slack`, on a logarithmic axis, because 0.9
# and 0.99 differ as much as 0 and 0.9.

# %%
from course.lessons.experiments import search
from course.lessons.figures.search import best_so_far, trials_by_value

kept = search.recorded().data
if search.installed():
    trials = search.search(20)  # 2 s
else:
    trials = kept.trials
    print("Optuna is not installed here (pip install -c constraints.txt optuna): these are recorded trials.")
print(search.report(kept))
trials_by_value(
    {
        "learning rate": trials.rate,
        "1 - momentum": trials.slack,
        "width (units)": trials.width,
        "weight decay": trials.decay,
    },
    trials.loss,
    title="Twenty trials: the later ones, darker, crowd where the loss is low",
)

# %% [markdown]
# Is the sampler better than random draws? Here are {{ search.STUDIES }} studies of each:

# %%
best_so_far(
    {name: [search.best_so_far(losses) for losses in studies] for name, studies in kept.losses.items()},
    title="The first ten trials are random for both; then TPE learns from them",
)

# %% [markdown]
# It is: to come as far as its median study after 20 trials, random draws need {{ draws_for(reached("tpe")) }}. The
# lowest of 20 held-out losses is optimistic, because it was used to choose: with other seeds its settings do worse. And
# twenty trials are too few to say which number matters most: compare the two lines of importances (how much each number
# decides whether a trial is good).
#
# # Part IV: bytes and a choice
#
# ## 14. What an optimizer keeps
#
# **Predict.** A model has a billion parameters in `bfloat16`, 2 GB. How many GB does AdamW keep besides parameters and
# gradients, if its moments and a *master copy* of the parameters, the one that its steps change, are in float32?

# %%
parameters = 1_000_000_000
print(f"two moments {2 * 4 * parameters / 1e9:.0f} GB, master copy {4 * parameters / 1e9:.0f} GB")

# %% [markdown]
# Twelve bytes for each parameter: the $K = 12$ of the ZeRO paper (arXiv 1910.02054, section 3.1). Late in a run most
# updates would be lost without the master copy: they are smaller than half the last bit of a `bfloat16` (lesson 03).
# With parameters and gradients the sum depends on the recipe:
#
# | recipe | parameters | gradients | state | bytes |
# | --- | --- | --- | --- | --- |
# | float16 (ZeRO, arXiv 1910.02054) | 2 | 2 | 12 | 16 |
# | bfloat16 (Megatron Core, https://docs.nvidia.com/megatron-core) | 2 | 4 | 12 | 18 |
# | float16 with a copy of the gradients (ibid.) | 2 | 2 + 4 | 12 | 20 |
#
# `torch.optim` itself keeps no master copy. Its plain SGD keeps nothing, momentum one moment, AdamW two, and Adafactor
# only row and column means (section 15); the docstring below lists the others. Those with a second moment also keep a
# *step counter* for each tensor, needed or not.
#
# An *8-bit* AdamW keeps its moments in bytes, and for every block of 2,048 numbers a float32 *scale*, the largest
# absolute value among them (Dettmers et al., arXiv 2110.02861, section 2.1): {{ 2 * (1 + 4 / 2048) : .3f }} bytes for
# each parameter instead of 8.


# %% exercise
import math


def optimizer_bytes(
    shapes: list[tuple[int, ...]], name: str, dtypes: dict[str, torch.dtype], block: int | None = None
) -> int:
    """Bytes that an optimizer keeps beside parameters and gradients, after its first step.

    shapes    of the parameters, in any number of dimensions; () is one number. No size is 0, a size may be 1.
              The list may be empty.
    name      "sgd" (without momentum), "momentum" (SGD with it), "adagrad", "rmsprop", "adamw", "adafactor" or "muon"
    dtypes    {"param": dtype of the parameters, "state": dtype of the moments}, floating dtypes of 1 to 8 bytes a
              number; a dtype knows its `itemsize` in bytes
    block     None, or, with moments of 1 byte a number, how many numbers of a moment share a scale
    Returns   the sum of four parts over all shapes (a float that holds it will do):
              moments, in dtypes["state"]: none for sgd, two of the parameter's size for adamw, one for the others but
              adafactor. Adafactor keeps a tensor with fewer than 2 dimensions in full, one of (r, c) as r + c numbers,
              and one of (..., r, c) as r + c numbers for each of the matrices that it is a stack of;
              scales, with a block: each moment is cut into blocks of that many numbers, of which the last may be
              smaller, and each block has one float32 scale. Each moment of each tensor has blocks of its own; for
              Adafactor the row means of a tensor are one moment, and the column means another;
              master copy: 4 bytes a number where a number in dtypes["param"] has fewer than 4, for every optimizer;
              step counters: 4 bytes a tensor for adagrad, rmsprop, adamw and adafactor (in torch.optim a float32 of
              shape () under "step", whatever the other dtypes); none for sgd, momentum and muon.
    Refused   with ValueError: another name, and, as torch.optim.Muon does, a shape for muon that is not 2-D.
    Example   for [(10, 20), (20,)] with parameters in bfloat16 and moments in float32, adamw keeps 2 * 220 * 4 bytes of
              moments, 220 * 4 of master copy, 2 * 4 of counters: 2648. Adafactor: (30 + 20) * 4 + 880 + 8 = 1088.
              With moments in float8_e4m3fn and block=128, adamw keeps 2 * 220 bytes of moments, 2 * (2 + 1) * 4 of
              scales, 880 + 8 of the rest: 1352.
    Not allowed: torch.optim.
    """
    moments = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adamw": 2, "adafactor": 1, "muon": 1}
    if name not in moments:
        raise ValueError(f"name must be one of {', '.join(moments)}, got {name!r}")
    total = 0
    for shape in shapes:
        if name == "muon" and len(shape) != 2:
            raise ValueError(f"muon takes matrices only, got the shape {shape}")
        numbers = math.prod(shape)
        kept = [numbers] * moments[name]
        if name == "adafactor" and len(shape) > 1:
            kept = [numbers // shape[-1], numbers // shape[-2]]  # (..., r, 1) and (..., 1, c)
        total += sum(kept) * dtypes["state"].itemsize
        if block is not None:
            total += sum(math.ceil(each / block) for each in kept) * 4  # a scale for each block, in float32
        if dtypes["param"].itemsize < 4:
            total += numbers * 4  # the master copy, in float32
        if name in ("adagrad", "rmsprop", "adamw", "adafactor"):
            total += 4  # the step counter of this tensor
    return total


# %%
check(optimizer_bytes)

# %%
sizes = [(32, 64), (32,), (10, 32), (10,)]  # a small network for the digits
optimizers = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
}
float32 = {"param": torch.float32, "state": torch.float32}
for name, make in optimizers.items():
    parameters = [nn.Parameter(torch.ones(size)) for size in sizes]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    kept = [each for state in optimizer.state.values() for each in state.values() if isinstance(each, torch.Tensor)]
    yours = f", yours {optimizer_bytes(sizes, name, float32):6,}" if solved(optimizer_bytes) else ""
    print(f"{name:10} measured {sum(each.nbytes for each in kept):6,} bytes{yours}")

# %% [markdown]
# ## What is left for the batch
#
# A training step holds parameters, gradients and the optimizer's state once, and the activations of every example in
# the batch (lesson 01). What does not fit goes through in *micro-batches*, whose gradients are added up. Is the largest
# that fits the fastest? A device works in *waves* of a fixed number of examples, and a wave takes the same time whether
# it is full or not. Each micro-batch also takes time to start.
#
# **Predict.** A wave holds 32 examples and takes 10 ms; a start takes 5 ms; 72 examples fit; the global batch is 256.
# Are micro-batches of 72 faster than those of 64? And of 48?


# %% exercise
def largest_batch(memory: dict[str, int], wanted: int, clock: dict[str, int]) -> tuple[int, int, int]:
    """The largest micro-batch that fits into memory, and how to split a global batch so that a step is fastest.

    memory    "numbers", how many parameters; "param", "grad" and "state", bytes for each of them; "example", bytes of
              activations for each example of a micro-batch, which lie beside the other three; "multiple": only
              multiples of it are allowed as sizes; "budget", bytes of the device. It may be filled to the last byte.
    wanted    examples in the global batch, at least 1. It may be less than "multiple". All micro-batches have one size,
              apart from the last, which holds what is left over.
    clock     a micro-batch takes "start" and, for every begun wave of "wave" examples, "seconds"
    Returns   (largest, size, count), three ints: the largest size that fits; one with which the step takes the
              least time, of equals any; the number of its micro-batches, the last one included.
    Refused   with a ValueError: a budget in which no multiple fits
    Example   memory = {"numbers": 10, "param": 4, "grad": 4, "state": 8, "example": 5, "budget": 200, "multiple": 2},
              wanted = 12, clock = {"start": 1, "wave": 6, "seconds": 10}: 40 bytes are left, for 8 examples. In eights
              and in sixes there are two micro-batches, of 8 + 4 and 6 + 6: 3 and 2 waves. (8, 6, 2) is returned.
    """
    multiple = memory["multiple"]
    room = memory["budget"] - memory["numbers"] * (memory["param"] + memory["grad"] + memory["state"])
    largest = room // memory["example"] // multiple * multiple
    if largest < multiple:
        raise ValueError(f"at least {multiple} examples must fit beside the model, got room for {room} bytes")

    def time(count: int) -> int:
        waves = -(-count // clock["wave"])  # rounded up
        return clock["start"] + waves * clock["seconds"] if count else 0

    def step(size: int) -> int:
        return wanted // size * time(size) + time(wanted % size)  # the full ones, and what is left over

    size = min(range(multiple, largest + 1, multiple), key=step)
    return largest, size, -(-wanted // size)


# %%
check(largest_batch)

# %% [markdown]
# The time of a step rises where a size begins another wave, and falls where fewer micro-batches are needed:

# %%
sizes, wanted = range(8, 73, 8), 256
times = [sum(5 + 10 * math.ceil(len(part) / 32) for part in torch.arange(wanted).split(size)) for size in sizes]
figure, axes = plt.subplots(figsize=(6.5, 2.8))
axes.bar(sizes, times, width=5, color=["#d55e00" if each == min(times) else "#0072b2" for each in times])
axes.bar_label(axes.containers[0])
axes.margins(y=0.12)
axes.set_title("The largest micro-batch that fits is not the fastest")
axes.set(xlabel="examples in a micro-batch", ylabel="time of a step of 256 (ms)", xticks=sizes)
plt.show()

# %% [markdown]
# ## 15. Adafactor: a matrix from its row and column means
#
# Adam's second moment $V$ of a matrix with $r$ rows and $c$ columns has $r c$ numbers. Adafactor keeps the means of its
# rows, $R$, and of its columns, $C$, and rebuilds the matrix from them (Shazeer and Stern, arXiv 1804.04235, section 3,
# there with sums in place of means):
#
# $$
# \begin{aligned}
# R_i &\leftarrow \beta_2 R_i + (1 - \beta_2)\, \tfrac1c \textstyle\sum_j g_{ij}^2, \\
# C_j &\leftarrow \beta_2 C_j + (1 - \beta_2)\, \tfrac1r \textstyle\sum_i g_{ij}^2, \\
# \hat V_{ij} &= \frac{R_i\, C_j}{\tfrac1r \sum_k R_k} .
# \end{aligned}
# $$
#
# - $g$ is the gradient. The divisor is the mean over the whole matrix; without it the units would be those of $g^4$.
#
# For which matrices of squares is $\hat V$ exact? What does it make of the identity?

# %%
for name, squares in (("rank one ", [[1.0, 2.0], [3.0, 6.0]]), ("identity ", [[1.0, 0.0], [0.0, 1.0]])):
    square = torch.tensor(squares)
    rebuilt = torch.outer(square.mean(1), square.mean(0)) / square.mean()
    print(f"{name} {square.tolist()}  rebuilt {rebuilt.tolist()}")

# %% [markdown]
# It is exact where the averaged squares have rank one. For the identity it is right only on average, with no trace of
# the diagonal.


# %% exercise
import torch
from torch import Tensor


def factored_second_moment(g: Tensor, rows: Tensor, cols: Tensor, beta2: float) -> Tensor:
    """Adafactor's estimate of the moving average of g**2, from one number for each row and each column.

    g         (r, c), in float32 or float64: this step's gradient, not 0 everywhere, and of any size at which that dtype
              holds the sum of all squares; it is not changed
    rows      (r,), in the dtype of g, updated *in place*: the moving average of the mean of g**2 along each row
    cols      (c,), updated *in place*: the same along each column. Nothing else is kept between the steps.
    beta2     the share of what was there before; this step's means get 1 - beta2
    Returns   (r, c), in the dtype of g: each of rows times each of cols, over the mean of rows (which is that of cols),
              all after their update.
    Refused   with a ValueError: beta2 outside of [0, 1); rows that are not (r,); cols that are not (c,).
    Example   g = [[1., 2.], [3., 6.]], rows = [0., 0.], cols = [0., 0.], beta2 = 0.5: rows become [1.25, 11.25], cols
              [2.5, 10.], their mean is 6.25, and [[0.5, 2.], [4.5, 18.]] is returned, half of g**2.
    Not allowed: torch.optim.
    """
    if not 0 <= beta2 < 1:
        raise ValueError(f"beta2 must lie in [0, 1), got {beta2}")
    if rows.shape != g.shape[:1] or cols.shape != g.shape[1:]:
        raise ValueError(f"rows and cols must fit g {tuple(g.shape)}, got {tuple(rows.shape)} and {tuple(cols.shape)}")
    squared = g**2
    rows.mul_(beta2).add_(squared.mean(dim=1), alpha=1 - beta2)  # rows = beta2 rows + (1 - beta2) row means
    cols.mul_(beta2).add_(squared.mean(dim=0), alpha=1 - beta2)  # cols = beta2 cols + (1 - beta2) column means
    return torch.outer(rows / rows.mean(), cols)  # both hold the overall size: divide it out before their product


# %%
check(factored_second_moment)

# %% [markdown]
# How good is the estimate for the first layer of an untrained digits network?

# %%
from course.lessons.experiments import factored

found = factored.compare()
print(f"kept: {found.kept} numbers of {found.entries:,}")
print("root of the estimate over root of the exact one, at 5%, 50% and 95% of the entries that are not 0:")
print(f"{found.low:.2f}, {found.middle:.2f}, {found.high:.2f}")
print(f"entries that are 0: {found.white} of pixels that are always white, {found.apart} never active with their unit")

# %% [markdown]
# For nine in ten entries the step is between {{ factors().high : .1f }} times shorter and {{ 1 / factors().low : .1f }}
# times longer than with the full second moment.
#
# ## 16. Muon: all directions alike
#
# Adam treats a weight matrix as a list of unrelated numbers. Muon (Jordan et al., 2024,
# kellerjordan.github.io/posts/muon) treats it as a matrix: it takes the momentum buffer $M = U D V^{\mathsf T}$ and
# steps along $U V^{\mathsf T}$. All singular values become 1, so directions that are rare in the gradients get as long
# a step as frequent ones.
#
# A singular value decomposition would be too slow, so Muon uses the *Newton–Schulz iteration*:
#
# $$
# X_0 = \frac{M}{\lVert M \rVert_F}, \qquad
# A = X_k X_k^{\mathsf T}, \qquad
# X_{k+1} = a\, X_k + \bigl(b\, A + c\, A^2\bigr) X_k,
# $$
#
# - the diagonal of $D$ holds the singular values; $\lVert M \rVert_F$ is the root of the sum of squares, so that no
#   singular value of $X_0$ is above 1;
# - here $(a, b, c) = (3.4445,\, -4.7750,\, 2.0315)$, with five steps. Transposing a tall $M$ before and after makes $A$
#   smaller and leaves the result the same.
#
# The matrices $U$ and $V$ pass through unchanged, and each singular value goes through the polynomial
# $p(\sigma) = a \sigma + b \sigma^3 + c \sigma^5$. **Predict** from $p(1)$: does it converge to 1?

# %%
sigma = torch.linspace(0, 1, 401)
figure, axes = plt.subplots(figsize=(6.5, 3.2))
value = 3.4445 * sigma - 4.7750 * sigma**3 + 2.0315 * sigma**5  # one step
for step, (style, color) in enumerate(((":", "#8c959f"), ("-.", "#56b4e9"), ("--", "#0072b2"), ("-", "#d55e00")), 2):
    value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    axes.plot(sigma, value, linestyle=style, color=color, label=f"after {step}")
axes.axhline(1, color="#8c959f", linewidth=1)
axes.set_title("Five steps lift all but the smallest singular values to between 0.68 and 1.13")
axes.set(xlabel="singular value before", ylabel="singular value after")
axes.legend(loc="lower right")
plt.show()
inside = value[sigma >= 0.02]
print(f"after 5 steps, for singular values from 0.02 to 1: between {inside.min():.2f} and {inside.max():.2f}")

# %% [markdown]
# It does not. The coefficients were chosen to lift small values fast, by the factor $p'(0) = a$ a step, and for a
# direction "about 1" will do.


# %% exercise
import torch
from torch import Tensor


def orthogonalize(g: Tensor, steps: int = 5) -> Tensor:
    """g with all its singular values pushed towards 1, by Muon's Newton-Schulz steps.

    g         (r, c), wide, tall or square, of a floating dtype that holds the sum of its squares, and of any
              scale; it is not changed
    steps     how often X <- a X + b (X X^T) X + c (X X^T)^2 X is applied, a = 3.4445, b = -4.7750, c = 2.0315, to
              X = g / (its Frobenius norm, or 1e-7 where the norm is less); with 0 steps this X is returned
    Returns   (r, c), in the dtype of g and computed in it (or a finer one): the singular vectors of g; after 5 steps
              every singular value that was above 1% of the norm lies between 0.64 and 1.18. A g of zeros gives zeros.
    Refused   with a ValueError: a g that has not two dimensions; negative steps.
    Example   g = [[5., 0.], [0., 0.]], steps = 1: X = [[1., 0.], [0., 0.]]; returned is [[0.701, 0.], [0., 0.]].
    Not allowed: torch.linalg.svd, torch.svd, torch.optim.
    """
    if g.dim() != 2:
        raise ValueError(f"g must be a matrix, got the shape {tuple(g.shape)}")
    if steps < 0:
        raise ValueError(f"steps must be at least 0, got {steps}")
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[0] > g.shape[1]
    X = g.T if tall else g  # so that X X^T is the smaller Gram matrix
    X = X / X.norm().clamp(min=1e-7)  # now no singular value is above 1
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X  # s -> a s + b s^3 + c s^5 for each singular value s
    return X.T if tall else X


# %%
check(orthogonalize)

# %% [markdown]
# ## 17. Which optimizer?
#
# Six that you have not met yet:
#
# | name | what it changes | source |
# | --- | --- | --- |
# | NAdam | Adam with Nesterov's look ahead | Dozat, ICLR workshop 2016 |
# | RAdam | smaller early steps, while the second moment is uncertain | arXiv 1908.03265 |
# | LAMB | Adam's step, scaled per layer to the length of the weights | arXiv 1904.00962 |
# | Lion | the sign of a momentum; one moment | arXiv 2302.06675 |
# | Sophia | divides by an estimate of the Hessian's diagonal, and clips | arXiv 2305.14342 |
# | Shampoo | a matrix for each side of a weight matrix, not a number per entry | arXiv 1802.09568 |
#
# Few of the speed-ups that papers report survive where every rate is tuned equally well: factors of up to two shrink to
# at most 1.4, and to 1.1 at 1.2 billion parameters (Wen et al., arXiv 2509.02046).
#
# The text below comes from a small grammar: each sentence is a chain of random choices, so its entropy per character
# can be computed, and no model gets below it on average. A GPT with {{ parameters("character GPT") : ,d }} parameters
# is trained for 250 steps by SGD with momentum and by AdamW, at guessed rates: how far above this floor does each end?

# %%
from collections.abc import Callable

from rich.progress import track

from course.lessons import grammar
from course.lessons.experiments.problems import gpt_problem
from course.lessons.figures.charts import training_curves
from course.lessons.models import next_token_loss

print(grammar.text(grammar.NORTH, 180, torch.Generator().manual_seed(5)), "...")
problem = gpt_problem()


def training(name: str, make: Callable[..., torch.optim.Optimizer], steps: int = 250) -> list[float]:
    """The loss of each step, in nats per character."""
    rng = torch.Generator().manual_seed(1)
    model = problem.model(rng)
    optimizer, losses = make(model.parameters()), []
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 20, total_iters=20)
    for _ in track(range(steps), name):
        inputs, targets = problem.batch(rng)
        loss = next_token_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        losses.append(loss.item())
    return losses


curves = {
    "SGD with momentum": training("SGD with momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "AdamW": training("AdamW", lambda p: torch.optim.AdamW(p, lr=0.01)),
}
training_curves(curves, floor=problem.least, title="A small GPT learns the grammar: how far to the floor?")

# %% [markdown]
# Neither comes near it. The next table has {{ DIGITS_STEPS }} steps on the digits (training loss) and {{ GPT_STEPS }}
# on this text (held-out windows). Each optimizer has a warm-up, a linear descent to zero and the best rate of a grid
# with the factor $10^{1/4}$. {{ spelled(len(which_optimizer.CHOOSING)).capitalize() }} seeds chose it;
# {{ len(which_optimizer.SEEDS) }} others make the table. AdamW and Muon have a weight decay of 0.1. RMSprop, Adam and
# AdamW have $\beta_2 = {{ which_optimizer.BETA2 : .2f }}$, which suits so few steps better than {{ BETA2 : .3f }}.

# %%
from course.lessons.experiments import which_optimizer
from course.lessons.experiments.problems import digits_problem

measured = which_optimizer.recorded()
print(measured)
print(which_optimizer.table(measured.data))

# %% [markdown]
# For equal *steps* Muon is first on both: its distance from the least loss is
# {{ loss("Muon") / next_best("Muon") : .0%}} of the next best on the GPT and
# {{ loss("Muon", DIGITS_NAME) / next_best("Muon", DIGITS_NAME) : .0%}} on the digits. Between Adam, AdamW, Adafactor
# and RMSprop on the GPT the table decides little: their ranges overlap.
#
# For equal *time* it is another story. The last line for each problem gives Adam as many steps as fit into Muon's time,
# with a rate chosen anew. On the GPT Muon stays ahead; on the digits Adam comes to
# {{ mean(in_muons_time(DIGITS_NAME).losses) / loss("Muon", DIGITS_NAME) : .0%}} of Muon's loss.
#
# Adafactor had another schedule: PyTorch's always caps the rate at $1/\sqrt t$, on the GPT in {{ capped() }} of the
# {{ GPT_STEPS }} steps.
#
# With nothing to overfit, weight decay cannot show its use here, and the time of such small steps is mostly Python's. A
# short version, live, whose last column varies with the machine:

# %%
quick = which_optimizer.measure([digits_problem(steps=60)], ("SGD", "momentum", "AdamW", "Muon"))
print(which_optimizer.table(quick))

# %% [markdown]
# If you must choose today, take AdamW with $\beta_2 = 0.95$ to $0.999$, warm-up, cosine, clipping at 1, and a search
# over the rate, then over the decay, on held-out data. Take Muon for the hidden matrices of a transformer, Adafactor
# where the state does not fit, and SGD with momentum for convolutional networks on images (by custom).
#
# ## 18. What does each term buy?
#
# We take away one term of Adam at a time, on the digits of section 17: the correction of $m$ and $v$; the mean
# ($\beta_1 = 0$); or the division, which leaves momentum as an average. Each form has its own best rate, which stays
# constant, or warms up for a tenth of the {{ ablation.STEPS }} steps and then falls in a straight line.
#
# **Predict.** With warm-up and descent, which missing term costs most? At a constant rate, the steps without the
# correction are too long at first (section 7): does that do harm, or good?
#
# All forms, with three new seeds:

# %%
import inspect

from course.lessons.experiments import ablation, terms

ablated = ablation.recorded()
print(inspect.getsource(terms.step))
print(ablation.table(ablation.live(ablated.data), "terms"))

# %% [markdown]
# In the recorded runs two seeds chose the rates from a grid of factor $10^{1/4}$ (lines: their means), and five others
# judged (points, a little beside their rate).

# %%
from course.lessons.figures.ablation import forms_by_rate

print(ablated)
print(ablation.table(ablated.data, "terms"))
forms_by_rate(
    {schedule: ablated.data.of("terms", schedule) for schedule in ablation.TUNED},
    quantity="training loss (nats)",
    title="Without the correction: the best at a constant rate, not with a schedule",
)

# %% [markdown]
# At a constant rate Adam *without* its correction is the best of the four, with each of the five seeds. Since
#
# $$\frac{m_t}{\sqrt{v_t}} = \varphi_t\, \frac{\hat m_t}{\sqrt{\hat v_t}}, \qquad
# \varphi_t = \frac{1 - \beta_1^t}{\sqrt{1 - \beta_2^t}} ,$$
#
# leaving the correction out multiplies the rate by $\varphi_t$: {{ without_correction(1) : .1f }} in step 1,
# {{ without_correction(12) : .1f }} in step 12, {{ without_correction(ablation.STEPS) : .1f }} in step
# {{ ablation.STEPS }}. This is a schedule. Give it to the whole Adam, with an $\epsilon$ too small to matter:

# %%
from dataclasses import replace

clean, _ = ablation.tasks()["terms"]
for name, schedule in (("no correction", "constant"), ("whole", "as without correction")):
    model = terms.train(clean, replace(terms.FORMS[name], eps=1e-12), schedule, 0.005, seed=7)
    print(f"{name:14} rate {schedule:22} loss {terms.loss_on(model, clean.judged):.6f}")

# %% [markdown]
# The two networks are the same. But take a schedule that you have chosen yourself, and the correction helps: without it
# the loss is {{ scheduled["no correction"].mean / scheduled["whole"].mean : .1f }} times the whole Adam's, and the best
# rate {{ scheduled["whole"].rate / scheduled["no correction"].rate : .1f }} times lower. With the correction, the rate
# that you set is the rate that you get.
#
# With the schedule the mean buys most: without it the loss is
# {{ scheduled["no mean"].mean / scheduled["whole"].mean : .1f }} times the whole Adam's, without the division
# {{ scheduled["no division"].mean / scheduled["whole"].mean : .1f }} times: for three layers of similar size, one rate
# for all is not much worse. For the GPT of section 17 it is.
#
# Decay should be of most use where memorising does harm. So take {{ ablation.EXAMPLES }} digits, a fifth of them with
# labels drawn anew, train for {{ ablation.EPOCHS }} epochs, and judge by the loss on other digits. `around` is AdamW;
# in `through` the decay is added to the gradient.

# %%
print(ablation.table(ablated.data, "decay"))
forms_by_rate(
    {schedule: ablated.data.of("decay", schedule) for schedule in ablation.TUNED},
    quantity="held-out loss (nats)",
    title="Decay does not lower the least held-out loss, but it forgives high rates",
)

# %% [markdown]
# At the best rate decay buys nothing. At ten times that rate the loss, with the schedule, is
# {{ tenfold(decayed["no decay"]) : .2f }} nats without decay, {{ tenfold(decayed["around"]) : .2f }} around and
# {{ tenfold(decayed["through"]) : .2f }} through (two seeds): there the wrong labels are memorised, and decay pays.
#
# A surprise: `around` is no better here than `through`. What differs is the scale: at rates above the best one, the
# best decay is about {{ decay_ratio(decayed["around"], decayed["through"]) }} times larger around. If you swap Adam for
# AdamW here and keep the decay, you have all but switched it off.
#
# ## 19. Put together
#
# Between `loss.backward()` and the next batch stand three functions of yours: `clip_grad_norm_`, `warmup_cosine` and
# `adamw_step`. Here they train the GPT of section 17, beside PyTorch's, which stand in for those of yours that have not
# passed their check.

# %%
from course.lessons.experiments import stand_ins

parts = stand_ins.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
runs = {"PyTorch's": parts.with_yours({}), **({"yours": parts.with_yours(passed)} if passed else {})}


def train_gpt(name, parts, step, steps=250):
    """The loss of each step, in nats per character."""
    rng = torch.Generator().manual_seed(1)
    model = problem.model(rng)
    params = [p.detach() for p in model.parameters()]  # in the same memory, but without a graph
    state, losses = [{} for _ in params], []
    for s in track(range(steps), name):
        inputs, targets = problem.batch(rng)
        loss = next_token_loss(model(inputs), targets)
        grads = list(torch.autograd.grad(loss, list(model.parameters())))
        parts["clip_grad_norm_"](grads, 1.0)
        step(params, grads, state, lr=parts["warmup_cosine"](s, peak=0.03, warmup=25, total=steps))
        losses.append(loss.item())
    return losses


assembled = {f"AdamW, {whose}": train_gpt(f"AdamW, {whose}", run, run["adamw_step"]) for whose, run in runs.items()}
for name, losses in assembled.items():
    print(f"{name}: {sum(losses[-20:]) / 20 - problem.least:.6f} nats above the floor, mean of the last 20 steps")
training_curves(assembled, floor=problem.least, title="AdamW, clipping, warm-up, cosine: how far to the floor?")

# %% [markdown]
# The arithmetic is the same but for rounding.
#
# Add a momentum in Nesterov's form and a scale, and `orthogonalize` becomes Muon. We take the scale
# $0.2 \sqrt{\max(r, c)}$ for $r$ rows and $c$ columns (Moonshot, arXiv 2502.16982), which makes the step about as long
# as AdamW's. Muon takes only the matrices of the blocks; embeddings, biases and norms stay with AdamW.


# %%
def muon_step(params, grads, state, *, lr):
    for matrix, g, kept in zip(params, grads, state, strict=True):
        buffer = kept.setdefault("buffer", torch.zeros_like(matrix))
        buffer.mul_(0.95).add_(g)  # b <- mu b + g
        matrix.mul_(1 - lr * 0.1)  # the weight decay
        matrix -= lr * 0.2 * math.sqrt(max(matrix.shape)) * passed["orthogonalize"](g + 0.95 * buffer)


for whose, run in runs.items():
    own = whose == "yours" and "orthogonalize" in passed
    muon = muon_step if own else stand_ins.muon_step
    name = f"Muon, {whose}"
    step = stand_ins.shared(problem, muon, run["adamw_step"])  # the first takes the matrices of the blocks
    assembled[name] = losses = train_gpt(name, run, step)
    print(f"{name}: {sum(losses[-20:]) / 20 - problem.least:.6f} nats above the floor, mean of the last 20 steps")
training_curves(assembled, floor=problem.least, title="Muon for the matrices of the blocks: nearer to the floor")

# %% [markdown]
# Yours and PyTorch's part sooner than before, because `torch.optim.Muon` orthogonalizes in `bfloat16`.
#
# ## For real
#
# The optimizers that you wrote are in `torch.optim`; so are NAdam, RAdam, Adafactor and Muon, and AMSGrad as
# `amsgrad=True`. LAMB, Lion, Sophia and Shampoo are not. Ten steps of yours beside ten of PyTorch's, on the same
# gradients:

# %%
rng = torch.Generator().manual_seed(2)
shapes = [(4, 3), (3,)]
start = [torch.randn(shape, generator=rng) for shape in shapes]
scripted = [[torch.randn(shape, generator=rng) for shape in shapes] for _ in range(10)]


def torchs(kind: type[torch.optim.Optimizer], **numbers: object) -> list[torch.Tensor]:
    """Where an optimizer of torch comes to in ten steps of the scripted gradients."""
    parameters = [nn.Parameter(each.clone()) for each in start]
    optimizer = kind(parameters, **numbers)
    for gradients in scripted:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    return [each.detach() for each in parameters]


def yours(step, **numbers: object) -> list[torch.Tensor]:
    """Where a step of yours comes to."""
    parameters, states = [each.clone() for each in start], [{} for _ in start]
    for gradients in scripted:
        step(parameters, [each.clone() for each in gradients], states, **numbers)
    return parameters


written = globals()  # where an answer is, if this session has run its cell


def adapted(rule):
    """`adaptive_step` in the form of the others."""

    def step(parameters, gradients, states, **numbers):
        for each in zip(parameters, gradients, states, strict=True):
            written["adaptive_step"](rule, *each, **numbers)

    return step


passing = {name for name in ("sgd_step", "adamw_step", "adaptive_step") if name in written and solved(written[name])}
pairs = (
    ("sgd_step", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, {}),
    ("adamw_step", torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.01}, {}),
    ("adaptive_step", torch.optim.Adagrad, {"lr": 0.1, "eps": 1e-8}, {}),
    ("adaptive_step", torch.optim.RMSprop, {"lr": 0.1, "eps": 1e-8}, {"decay": "alpha"}),
    ("adaptive_step", torch.optim.Adadelta, {"lr": 1.0, "eps": 1e-6}, {"decay": "rho"}),
)
for name, kind, numbers, called in pairs:  # PyTorch calls the decay otherwise
    if name in passing:
        step = adapted(kind.__name__.lower()) if name == "adaptive_step" else written[name]
        there = torchs(kind, **numbers, **dict.fromkeys(called.values(), 0.9))
        here = yours(step, **numbers, **dict.fromkeys(called, 0.9))
        worst = max((a - b).abs().max().item() for a, b in zip(there, here, strict=True))
        print(f"{name} beside torch.optim.{kind.__name__}: largest difference after ten steps {worst:.0e}")
    else:
        print(f"Once {name} passes its check, its comparison with torch.optim.{kind.__name__} stands here.")

# %% [markdown]
# ## At scale
#
# The ZeRO paper (arXiv 1910.02054, section 3.1) says that GPT-2 with 1.5 billion parameters needs at least **24 GB**
# for parameters, gradients and optimizer states with Adam, the first two in 16 bits. Does our count agree?

# %%
width, layers = 1600, 48  # of GPT-2 1.5B (its released configuration, `gpt2-xl`)
vocabulary, context = 50_257, 1_024
block = [
    *[(width,)] * 4,  # two norms
    *[(width, 3 * width), (3 * width,), (width, width), (width,)],  # attention
    *[(width, 4 * width), (4 * width,), (4 * width, width), (width,)],  # the two linear layers
]
gpt2 = [(vocabulary, width), (context, width), *block * layers, (width,), (width,)]
count = sum(math.prod(shape) for shape in gpt2)
mixed = {"param": torch.float16, "state": torch.float32}
mine = globals().get("optimizer_bytes")  # yours, if this session has run its cell
right = mine is not None and solved(mine)
state = mine(gpt2, "adamw", mixed) if right else 12 * count
total = (2 + 2) * count + state
print(f"{count / 1e9:.3f} billion parameters; state {state / 1e9:.1f} GB")
print(f"with parameters and gradients {total / 1e9:.1f} GB; the paper: 24 GB. Error {total / 24e9 - 1:+.1%}")
for name in ("adafactor", "sgd"):
    if right:
        print(f"the same with {name}: {(4 * count + mine(gpt2, name, mixed)) / 1e9:.1f} GB")

# %% [markdown]
# The released model has a few more parameters than its name says. With Adafactor the total is that of plain SGD: its
# factors are tiny compared with the master copy.
#
# ## More
#
# **A map without descent.** *Classical scaling* squares the distances, subtracts from each row and each column its
# mean, adds the mean of all, and takes $-\tfrac12$ of that: the matrix of inner products of the centred positions. Its
# two largest eigenvectors, each times the root of its eigenvalue, are the map (Torgerson, Psychometrika 17, 1952).

# %%
for name in ("descent", "classical", "true"):
    error = world.errors[name]
    print(f"{name:10} distances off by {error.rms:6.1f} km (root mean square), {error.greatest:6.1f} at most")

# %% [markdown]
# The true map is off too: it is flat, and the distances are measured on a sphere.
#
# **Weight decay and the batch.** AdamW's parameters are a moving average of its updates over about $1/(\eta\lambda)$
# steps. Bergsma et al. (arXiv 2505.13738) claim that this time, counted *in epochs*, should stay the same when the
# batch changes. If the batch grows 16-fold and the rate by the root of that, the best decay should then grow 4-fold. On
# our digits it grew {{ best_decays()[-1] / best_decays()[0] : .1f }}-fold:

# %%
from course.lessons.figures.batches import decay_by_batch

grid = batch_rates.recorded().data.decays
decay_by_batch(
    grid.decays,
    {size: grid.times(place) for place, size in enumerate(grid.batch_sizes)},
    dict(zip(grid.batch_sizes, grid.held_out, strict=True)),
    title="Measured as an averaging time, the best weight decay depends less on the batch",
)

# %% [markdown]
# ## What to remember
#
# 1. The largest curvature limits the rate to $2/L$; with momentum the time grows like the root of the condition number.
# 2. A constant rate has a noise floor in proportion to rate over batch size. Schedules and larger batches lower it.
# 3. Adam: mean over root mean square, both corrected for their start at zero; the decay is not divided.
# 4. Far below the critical batch size, twice the batch halves the steps; at it, it saves a quarter; far above, nothing.
# 5. AdamW in mixed precision keeps 12 bytes per parameter. Adafactor, Lion and Muon keep less.
#
# ## What to read
#
# - Bottou, Curtis and Nocedal, *Optimization methods for large-scale machine learning*, arXiv 1606.04838, section 4.
# - Kingma and Ba, *Adam*, arXiv 1412.6980, sections 2 and 3; Loshchilov and Hutter, arXiv 1711.05101, section 2.
# - McCandlish et al., *An empirical model of large-batch training*, arXiv 1812.06162, section 2 and appendix A.
# - Goh, *Why Momentum Really Works*, Distill 2017, doi.org/10.23915/distill.00006.
#
# ## What this lesson simplified
#
# - Surfaces of two variables have no plateaus of a thousand dimensions. Trust them for mechanisms, not for rankings.
# - SGD's noise was treated as if it were the same everywhere; at the largest rate of section 4 it is not.
# - `optimizer_bytes` counts states. Allocators round up, and `foreach` forms need temporary copies.

# %%
progress()
