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
# # 01 Computational graphs
#
# **How does a framework know the gradient, and what must it remember?**
#
# You call `loss.backward()`, and every parameter gets a gradient: how much the loss would change if that parameter
# changed a little. This lesson shows what happens inside that call. By the end you will be able to
#
# - read a program as a graph, and walk that graph backward at a small multiple of the cost of running it;
# - test a gradient without calculus, and train a network with an engine of your own;
# - write the backward rule of a tensor operation, broadcasting included, without building a Jacobian;
# - write a loss that does not overflow;
# - predict how many bytes a training step keeps for its backward pass, keep fewer, and train on a batch that does not
#   fit into memory.
#
# You need: Python, the chain rule of one variable, matrix products, and enough PyTorch to read `x @ w.T`.
#
# The lesson has three parts: **numbers**, **tensors** and **memory**. You can do each in one sitting, and none of them
# needs your answers from another. {{ workload(reading=60, sittings=3) }}

# %%
import torch

from course import check, hint, progress

torch.set_num_threads(1)  # the tensors here are tiny: a second thread costs more than it brings

# %% [markdown]
# Where the text says **Predict**, write down your answer before you run the next cell.
#
# # Part I: numbers
#
# ## 1. A program is a graph
#
# Here is a line of Python that computes one number from five. The names `a` to `y` hold *nodes*: a `Node` computes like
# a float, and also records what it did.

# %%
from course.lessons.figures.graph import draw
from course.lessons.graph import Node, named

a, b, c = named(Node(2.0), "a"), named(Node(-1.0), "b"), named(Node(0.5), "c")
x, y = named(Node(3.0), "x"), named(Node(4.0), "y")

f = named(a * x**2 + b * x * y + c * y**2, "f")

draw(f, title="One line of Python, recorded: a x² + b x y + c y² at x = 3, y = 4")

# %% [markdown]
# Nobody declared this graph. Python ran the line, and each `*`, `**` and `+` made a node. A node stores five things:
#
# | what a node stores | in code | example: the node `a * x**2` |
# | --- | --- | --- |
# | its value | `node.value` | {{ term().value : .0f }} |
# | the operation that made it | `node.op` | `*` |
# | the nodes it was computed from | `node.inputs` | `a` and `x**2` |
# | how its value changes with each of its *inputs* | `node.local_derivatives()` | {{ local(0) }} and {{ local(1) }} |
# | how the final result changes with *this node* | `node.grad` | 0.0, until a backward pass adds to it |
#
# The fourth row holds the *local derivatives*. For a product, the local derivative with respect to one factor is the
# other factor. The last row depends on the whole program, and filling it in for the leaves is your task.
#
# A node without inputs is a *leaf*. The node whose derivatives we want, here `f`, is the *root*. A plain number in
# `+ - * /` becomes a leaf, too. The exponent of `**` does not, and neither does the 0 of $\max(0, z)$: they belong to
# the operation.
#
# **Predict.** The program below computes $y - \max(0,\; w_1 x_1 + w_2 x_2 + b)$. How many leaves will its graph
# have, and how many nodes in all?

# %%
w1, w2, x1, x2 = (named(Node(v), n) for v, n in ((1.0, "w1"), (2.0, "w2"), (3.0, "x1"), (-1.0, "x2")))
b, y = named(Node(0.5), "b"), named(Node(2.0), "y")

z = named(w1 * x1 + w2 * x2 + b, "z")
hinge = named(y - z.relu(), "hinge")

draw(hinge, title="The graph of y − max(0, w·x + b): leaves on the left, the root on the right")

# %% [markdown]
# It has {{ spelled(leaves()) }} leaves and {{ spelled(nodes() - leaves()) }} operations: {{ spelled(nodes()) }} nodes.
# `relu(z)` is the usual name for $\max(0, z)$.
#
# What does the graph of a loop look like?

# %%
t = named(Node(1.1), "t")
power = t
for _ in range(3):
    power = power * power

draw(named(power, "t**8"), title="A loop of three rounds becomes three products: t⁸ by squaring")

# %% [markdown]
# The graph records *what ran*: three products, and no loop. Of an `if`, only the branch that was taken is there. And
# the graph has no cycles, because a value can only be computed from values that already exist.
#
# ## 2. Values flow forward, derivatives flow back
#
# How does `f` change if `x` changes a little? In the first picture, `x` reaches `f` along two routes.
#
# **Predict.** For $f = 2x^2 - xy + \tfrac12 y^2$ at $x = 3$, $y = 4$: what is $\partial f/\partial x$, and which part
# of it comes along which route? Then move the slider to the right: first the values appear, then the derivatives.

# %%
from course.lessons.widgets.stepper import step_through

step_through(f, title="Which numbers must be known before the next one can be?")

# %% [markdown]
# Look at one step on the way back. A node $u$ that has its derivative, $\partial f / \partial u$, passes a **share** on
# to each of its inputs: its own derivative times the local one. `x` gets two shares, ${{ shares()[0] : .0f }}$ through
# `x**2` and ${{ shares()[1] : .0f }}$ through `b * x`, and they add up to ${{ sum(shares()) : .0f }}$.
#
# As a formula, for every node $v$:
#
# $$
# \boxed{\;\bar v \;=\; \sum_{u \,\text{uses}\, v} \bar u \;\frac{\partial u}{\partial v}\;}
# \qquad\text{and}\qquad \bar f = 1.
# $$
#
# - $f$ is the root, one number; $\bar v = \partial f / \partial v$ is the derivative of the root with respect to node
#   $v$;
# - the sum runs over all nodes $u$ that have $v$ among their inputs (the *users* of $v$), once for each use;
# - $\partial u / \partial v$ is the local derivative.
#
# This is the chain rule, and everything else in this lesson follows from it. Start with an example by hand.
#
# The line under an exercise's name says what you may not use; an answer that uses it gets no points in grading. Every
# exercise has three hints. You get them one after another from `hint(quadratic_grads)`. This is the first:


# %%
hint("quadratic_grads", 1)


# %% exercise
def quadratic_grads(a: float, b: float, c: float, x: float, y: float) -> tuple[float, float, float]:
    """Value and partial derivatives of f(x, y) = a x**2 + b x y + c y**2.

    a to c    the coefficients; x and y are the point. Any of them may be 0.
    Returns   (value, dx, dy): f, df/dx and df/dy at the point, three numbers, exact to the roundings of float64.
    Example   quadratic_grads(1.0, 2.0, 3.0, 2.0, 1.0) returns (11.0, 6.0, 10.0).
    Not allowed: torch; plain arithmetic is enough.
    """
    value = a * x**2 + b * x * y + c * y**2
    dx = 2 * a * x + b * y
    dy = b * x + 2 * c * y
    return value, dx, dy


# %%
check(quadratic_grads)

# %% [markdown]
# ### A second opinion: nudge the input
#
# You can estimate a derivative without calculus: nudge one input by $h$, run the program again, and divide the change
# of the result by $h$. This *forward* estimate works for any program, so it can test any backward pass. The *central*
# estimate nudges once up and once down, and divides the difference of the two results by $2h$. Write both now. (`nudge`
# is not graded. Until you have written it, the lesson uses its own.)

# %%
from collections.abc import Callable


def nudge(f: Callable[[list[float]], float], at: list[float], which: int, h: float) -> tuple[float, float] | None:
    """Two estimates of the derivative of f with respect to at[which], from three values of f.

    f         takes a list of floats and returns a float
    at        the point; the list itself is not changed
    which     the place in the list of the input that is nudged by h
    Returns   (forward, central)
    Example   nudge(lambda x: x[0] ** 2, [3.0], 0, 0.5) returns (6.5, 6.0).
    """
    return None  # write yours here


# %% [markdown]
# Both estimates approach the derivative as $h$ goes to 0. In floating point, each of them has two errors:
#
# - **truncation**, because a chord is not a tangent. By Taylor's series it shrinks like $h$ for the forward estimate,
#   and like $h^2$ for the central one;
# - **rounding**: two nearly equal results are subtracted, each of them wrong by about $10^{-16}$ of its size, and this
#   error is divided by $h$. So it grows as $h$ shrinks.
#
# **Predict.** Let $f$ and its derivatives be about 1. At which power of ten for $h$ are the two errors about equal, for
# the forward estimate and for the central one?

# %%
from course.lessons.experiments import nudging
from course.lessons.figures.nudging import error_over_nudge

said = nudge(lambda x: x[0] ** 2, [3.0], 0, 0.5)
if said == (6.5, 6.0):
    second_opinion = nudge
    print("This is your nudge.")
else:
    second_opinion = nudging.nudge
    print(f"This is the lesson's nudge, until yours returns (6.5, 6.0) in the example. So far it returns {said}.")

title = "A large nudge truncates, a small one rounds: error of the slope of eˣ at x = 1"
found = nudging.errors(second_opinion)
error_over_nudge(nudging.STEPS, found, nudging.theory(), nudging.BEST, title=title)

# %% [markdown]
# The error follows the truncation (dashed) for large $h$ and the rounding (dotted) for small $h$. Their sum is least at
#
# $$
# h = 2\sqrt{\varepsilon\,\lvert f / f''\rvert} \;\text{ (forward)}, \qquad
# h = \sqrt[3]{3\varepsilon\,\lvert f / f'''\rvert} \;\text{ (central)}.
# $$
#
# - $f$, $f''$ and $f'''$ are the value and its second and third derivative at the point; $h$ has the input's unit;
# - $\varepsilon = 2^{-53}$ is the unit roundoff of float64, half the distance from 1 to the next number.
#
# (Nocedal and Wright, *Numerical Optimization*, 2nd edition, Springer 2006, section 8.1, weigh the same two errors.) So
# the best forward estimate has about half of float64's digits, and the best central one about two thirds: enough to
# test a backward pass.

# %% [markdown]
# ## 3. In what order?
#
# A framework has no formula to differentiate, only the graph. It starts at the root with $\bar f = 1$. Which node comes
# next? Suppose that `x**2` has just passed its share on to `x`. Then `x` holds {{ shares()[0] : .0f }}, but the
# {{ shares()[1] : .0f }} from `b * x` is still missing. If `x` had inputs of its own and passed on its derivative now,
# they would get a wrong number. A node may pass on its derivative only after *all of its users* have passed on theirs.
#
# An order in which *inputs come before users*, so that the root is last, is called a **topological order**:
#
# $$v \text{ is an input of } u \;\Longrightarrow\; \text{position}(v) < \text{position}(u).$$
#
# A backward pass walks through this list from the end, and so reaches each node after all of its users. A graph may
# have many topological orders, and any of them will do. To find one, append each node once everything that it
# depends on is in the list. Test your idea on $u + e^{\mathrm{relu}(u)}$, which the check calls *unequal paths*: one
# path from the root reaches $u$ in one step, another in three.
#
# This rule calls for a recursive function. Here is one on a graph 2,000 nodes deep, such as a recurrent network makes
# of a long text:

# %%
import sys

deep = Node(0.0)
for _ in range(2_000):
    deep = deep + 1.0


def depth(node: Node) -> int:
    """The number of nodes on the longest path from `node` down to a leaf."""
    return 1 + max((depth(each) for each in node.inputs), default=0)


try:
    print("depth:", depth(deep))
except RecursionError as error:
    print(f"RecursionError: {error}. Python allows {sys.getrecursionlimit():,} nested calls here.")

# %% [markdown]
# Python limits how deep calls can be nested, but not how long a list can be. Whatever a recursive function keeps on the
# stack of calls, a loop can keep in a list of its own: the nodes that it still has to come back to.


# %% exercise
from course.lessons.graph import Node


def topological_order(root: Node) -> list[Node]:
    """All nodes that `root` depends on, inputs before users.

    root      the node to start from
    Returns   a list (a tuple will do) that holds `root` and every node that it depends on, directly or not, each
              exactly once, and each after all of its inputs; so `root` is the last. Any order of this kind is right.
              Nodes are told apart as objects: two may hold the same. The graph is not changed.
    Cost      each node's `inputs` are read a few times on average (100 are tolerated), however many paths there are.
    Depth     2,000 nodes and more: Python's stack of calls does not reach that far, and its limit is not to be raised.
    Example   with x = Node(2.0), y = x * x, z = y + x: topological_order(z) returns [x, y, z].
    Not allowed: torch, graphlib, networkx, sympy, course.lessons.figures.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [(root, False)]  # a node, and whether its inputs have been dealt with
    while waiting:
        node, inputs_done = waiting.pop()
        if inputs_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))  # come back to it after its inputs
            waiting.extend((each, False) for each in node.inputs)
    return order


# %%
check(topological_order)

# %% [markdown]
# ## 4. Visit nodes, not paths
#
# You can also multiply the local derivatives along each path from the root to a leaf, and add up the products. This is
# correct, but far too slow. Here is a graph that shows why.


# %%
from course.lessons.figures.replay import derivatives


def ladder(rungs: int) -> Node:
    """`rungs` diamonds in a row: each splits the value in two and adds the halves' results up again."""
    node = named(Node(1.0), "x")
    for _ in range(rungs):
        node = node.relu() + node.relu()
    return node


two = ladder(2)
draw(two, title="A ladder of two diamonds: how many paths lead from x to the end?", derivatives=derivatives(two))

# %% [markdown]
# All local derivatives here are 1, so each path contributes exactly 1, and the derivative at `x` *is* the number of
# paths: {{ paths() : .0f }}. Every further diamond doubles it.
#
# **Predict.** A program starts at the root, and walks on from a node *each time* it arrives there. How many
# arrows does it walk along for 10 diamonds? And for 30?


# %%
import matplotlib.pyplot as plt


def arrows_walked(node: Node) -> int:
    """Arrows walked along by a program that walks on from a node each time it arrives there."""
    return sum(1 + arrows_walked(each) for each in node.inputs)


rungs = range(1, 11)
by_paths = [arrows_walked(ladder(n)) for n in rungs]
by_nodes = [4 * n for n in rungs]

figure, axes = plt.subplots(figsize=(6.5, 3.2))
axes.semilogy(rungs, by_paths, "o-", color="#d55e00", label="path by path")
axes.semilogy(rungs, by_nodes, "s--", color="#0072b2", label="each arrow once")
axes.set(title="Path by path, the work doubles with every diamond", xlabel="diamonds in the ladder")
axes.set_ylabel("arrows walked along")
axes.legend()
plt.show()

print(f"10 diamonds: {by_paths[-1]:,} arrows path by path, {by_nodes[-1]} if each is used once.")
print(f"30 diamonds: {4 * (2**30 - 1):,} arrows path by path, {4 * 30} if each is used once.")

# %% [markdown]
# A diamond has 4 arrows, and everything behind it is walked twice: $A_n = 4 + 2 A_{n-1}$ with $A_0 = 0$, so that $n$
# diamonds take $A_n = 4\,(2^n - 1)$ arrows. A residual network *is* such a ladder: each
# block has a path through it and a path around it, so $n$ blocks have $2^n$ paths (Veit et al., arXiv 1605.06431).
#
# A backward pass therefore visits each node once, when its derivative is complete, and does one multiplication and one
# addition for each arrow. In the formula of section 2, $v$ collects shares from its users. A
# backward pass stands at the user $u$. What must it do there?
#
# This method is called **reverse mode**. All derivatives of one root together cost a small multiple of the program
# itself, often within a factor of 5 (the *cheap gradient principle*: Griewank and Walther 2008, as quoted by Kakade and
# Lee, arXiv 1809.08530). Nudging takes one run for each input: 1.5 billion runs for a model of 1.5 billion parameters.
#
# One convention is left. Ask PyTorch twice for the gradient of $x^2$ at $x = 3$:

# %%
three = torch.tensor(3.0, requires_grad=True)
for call in (1, 2):
    (three * three).backward()
    print(f"after call {call}: grad = {three.grad.item():.0f}")

# %% [markdown]
# A backward pass *adds* to `grad` and does not overwrite it. This is why training loops call `zero_grad`, and
# section 14 will make use of it. Your `backward` must do the same for leaves. The derivatives of inner nodes belong to
# one call only, and must not be mixed with what an earlier call left behind.


# %% exercise
from course.lessons.graph import Node


def backward(root: Node) -> None:
    """Adds d root / d leaf to `leaf.grad`, for every leaf that `root` depends on.

    root      the node whose derivatives are asked for; d root / d root is 1. It may itself be a leaf.
    Returns   nothing that is looked at: the result is in the leaves' `grad`. A second call adds the same once more.
    A node has `value`, `inputs`, `local_derivatives()` (one number for each input) and `grad`, which starts at 0.0.
    Nodes are told apart as objects: two may hold the same.
    Cost      each node's `local_derivatives()` is asked for once per call (twice is tolerated), and its `inputs` are
              read a few times on average (100 are tolerated), however many paths there are. In some graphs of the check
              these numbers are the check's own, so that only who asks can know them.
    Depth     2,000 nodes and more; Python's recursion limit is not to be raised.
    Example   with x = Node(3.0): after backward(x * x + x) x.grad is 7.0, after a second such call 14.0.
    You may call your own `topological_order`, or do without it.
    Not allowed: torch, graphlib, networkx, sympy, course.lessons.figures.
    """
    uses_left = {root: 0}  # how many uses of a node have not handed on their share yet
    found = [root]
    for node in found:  # the list grows while the loop goes through it
        for each in node.inputs:
            if each not in uses_left:
                found.append(each)
            uses_left[each] = uses_left.get(each, 0) + 1
    flowing, ready = {root: 1.0}, [root]
    while ready:
        node = ready.pop()
        if not node.inputs:
            node.grad += flowing[node]
        for each, local in zip(node.inputs, node.local_derivatives(), strict=True):
            flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
            uses_left[each] -= 1
            if uses_left[each] == 0:
                ready.append(each)


# %%
check(backward)

# %% [markdown]
# In one line:
#
# $$
# \text{for each node } u, \text{ from the root back:}\qquad
# \bar v \mathrel{+}= \bar u \,\frac{\partial u}{\partial v} \quad\text{for each input } v \text{ of } u .
# $$
#
# Now compare your engine with PyTorch on the first two graphs of section 1.

# %%
from course.notebook.check import solved

if solved(backward):
    for root in (f, hinge):
        expected = derivatives(root)  # computed by torch, on the same graph
        leaves = [node for node in expected if not node.inputs]
        for leaf in leaves:
            leaf.grad = 0.0
        backward(root)
        for leaf in leaves:
            print(f"d{root.name}/d{leaf.name} = {leaf.grad:g}    by torch: {expected[leaf]:g}")
else:
    print("Once backward passes its check, this cell compares it with PyTorch.")

# %% [markdown]
# `nudge` can test your `backward` without PyTorch. **Predict:** if a node's second share overwrote the first, which of
# the three derivatives in the next cell would be wrong? Break your `backward` in this way, look, and mend it again.


# %%
def program(p: Node, q: Node, r: Node) -> Node:
    """A few operations, all of them smooth."""
    return ((p * q + (q - r).exp()).log() + 1) ** 2


def value_at(at: list[float]) -> float:
    """The program's value, from plain numbers."""
    return program(*(Node(number) for number in at)).value


at, best_h = [2.0, 1.5, 0.5], nudging.BEST["central"]
leaves = [named(Node(number), name) for number, name in zip(at, "pqr", strict=True)]
try:
    backward(program(*leaves))
except Exception as error:
    print(f"Once backward runs, nudge tests it here. So far: {type(error).__name__}: {error}")
else:
    for which, leaf in enumerate(leaves):
        _, estimate = second_opinion(value_at, at, which, best_h)
        difference = abs(leaf.grad / estimate - 1)
        print(f"d/d{leaf.name}: backward {leaf.grad:.12f}, nudged {estimate:.12f}, apart by {difference:.0e}")

# %% [markdown]
# <details><summary>Answer</summary>The derivative with respect to q, the only leaf that is used twice.</details>

# %% [markdown]
# ## 5. The kink
#
# `relu` has a kink at 0. What is its derivative there?

# %%
z_axis = torch.linspace(-1, 1, 201)
figure, axes = plt.subplots(figsize=(6.5, 2.8))
for slope in (0.0, 0.25, 0.5, 0.75, 1.0):
    axes.plot(z_axis, slope * z_axis, color="#8c959f", linewidth=1, linestyle=":")
axes.plot(z_axis, z_axis.clamp(min=0), color="#0072b2", linewidth=2.5, label="max(0, z)")
axes.plot([0], [0], "o", color="#d55e00", label="all dotted lines touch here")
axes.set(title="At the kink, lines of every slope from 0 to 1 touch the curve", xlabel="z", ylabel="max(0, z)")
axes.set_ylim(-0.3, 1.05)
axes.legend(loc="upper left")
plt.show()

# %% [markdown]
# PyTorch can write $\max(0, z)$ in at least three ways. Here are their derivatives at exactly $z = 0$, and that
# of $\mathrm{relu}(z) - \mathrm{relu}(-z)$, which is just $z$:

# %%
spellings = {
    "torch.relu(z)": torch.relu,
    "torch.maximum(z, 0)": lambda z: torch.maximum(z, torch.zeros(())),
    "z.clamp(min=0)": lambda z: z.clamp(min=0),
    "relu(z) - relu(-z), which equals z": lambda z: torch.relu(z) - torch.relu(-z),
}
for name, spelled in spellings.items():
    z0 = torch.tensor(0.0, requires_grad=True)
    (slope,) = torch.autograd.grad(spelled(z0), z0)
    print(f"{name:36} derivative at 0: {slope.item():g}")
forward, central = second_opinion(lambda at: max(0.0, at[0]), [0.0], 0, best_h)
print(f"{'max(0, z), nudged':36} forward {forward:g}, central {central:g}")

# %% [markdown]
# The three spellings of one function have {{ spelled(conventions()) }} different derivatives, and for a function
# without any kink the result is wrong (it should be 1). Autograd differentiates *programs*. At a kink each operation
# follows a **convention**, some number between its left and its right slope, and the chain rule multiplies conventions
# as if they were derivatives. Does it matter? On networks such as ResNet in float32, the value at 0 changed the
# gradients about half of the time, and 0 seemed best for plain SGD (Bertoin et al., NeurIPS 2021, arXiv 2106.12915).
# Nudging does not settle the question: stay away from kinks by more than $h$ when you test with it.
#
# Our convention is that of `torch.relu`: **the derivative of $\max(0, z)$ at $z = 0$ is 0.** With it, differentiate the
# hinge of section 1.


# %% exercise
def hinge_backward(
    w: list[float], x: list[float], b: float, y: float
) -> tuple[list[float], list[float], float, float, float]:
    """All partial derivatives of y - max(0, z) with z = w . x + b, written out by hand.

    w, x      weights and inputs, two lists of the same length n >= 1
    b, y      two floats
    Returns   (dw, dx, db, dy, dz): the derivatives with respect to w and x (lists or arrays of n numbers), b, y and z
              (numbers; an int serves as well as a float). The lists w and x are not changed.
    At z = 0  the derivative of max(0, z) counts as 0; at 0 exactly, not near it.
    Example   hinge_backward([1.0, 2.0], [3.0, -1.0], 0.5, 2.0), where z = 1.5,
              returns ([-3.0, 1.0], [-1.0, -2.0], -1.0, 1.0, -1.0).
    Not allowed: torch.
    """
    z = sum(wi * xi for wi, xi in zip(w, x, strict=True)) + b
    dz = -1.0 if z > 0 else 0.0  # minus: the root is y - max(0, z)
    dw = [dz * xi for xi in x]
    dx = [dz * wi for wi in w]
    return dw, dx, dz, 1.0, dz


# %%
check(hinge_backward)

# %% [markdown]
# ## Part I, put together: your engine trains a network
#
# The data are {{ moon_points() }} points on two half moons, which no straight line can separate. The network has two
# inputs, eight hidden values and one score, which should be positive on the upper moon only.
# A point with label $t = \pm 1$ costs $\max(0, 1 - t \cdot \text{score})$, the *hinge loss* of the literature.
#
# **Predict** from the code of the next cell, within a factor of two: how many nodes does the graph of the mean loss
# over all points have?

# %%
from course.lessons.experiments.moons import moons, start

points = moons()
parameters = [Node(number) for number in start(8)]
*weights, offset = parameters
hidden = [weights[at : at + 4] for at in range(0, len(weights), 4)]  # (w1, w2, b, c) for each hidden value


def score(x1: float, x2: float) -> Node:
    """The network: c · max(0, w1 x1 + w2 x2 + b), summed over the hidden values, plus an offset."""
    return sum((c * (w1 * x1 + w2 * x2 + b).relu() for w1, w2, b, c in hidden), offset)


def mean_hinge() -> Node:
    """The mean of max(0, 1 - t * score) over the points, for the parameters as they are now."""
    return sum((1 - t * score(x1, x2)).relu() for x1, x2, t in points) / len(points)


if solved(topological_order):
    nodes = topological_order(mean_hinge())
    print(f"By your topological_order: {len(nodes):,} nodes, {len(parameters)} of them parameters.")
else:
    print("Once topological_order passes its check, it counts the nodes here.")

# %% [markdown]
# Now train, with all points in each step. PyTorch does the same from the same start, with tensors in place of nodes.

# %%
import time

from course.lessons.experiments.moons import by_torch
from course.lessons.figures.moons import boundaries, grid

steps, learning_rate, picture = 80, 1.0, None
if solved(backward):
    print("This trains on your backward.")
    for parameter, number in zip(parameters, start(8), strict=True):
        parameter.value = number                               # so that the cell can run again
    grids, record, began = {"before": grid(lambda x1, x2: score(x1, x2).value)}, [], time.perf_counter()
    for step in range(steps):
        loss = mean_hinge()                                    # 1. forward: record the graph
        for parameter in parameters:
            parameter.grad = 0.0                               # 2. forget the last gradients
        backward(loss)                                         # 3. backward: your engine
        for parameter in parameters:
            parameter.value -= learning_rate * parameter.grad  # 4. step
        record.append(loss.value)
        if step % 20 == 0:
            print(f"loss before step {step + 1:2}: {loss.value:.3f}")
    trained = time.perf_counter()
    torch_record, torch_parameters = by_torch(points, start(8), steps=steps, rate=learning_rate)
    own, torchs = ((end - begin) / steps * 1e3 for begin, end in ((began, trained), (trained, time.perf_counter())))
    apart = max(abs(p.value - q) for p, q in zip(parameters, torch_parameters, strict=True))
    right = sum((score(x1, x2).value > 0) == (t > 0) for x1, x2, t in points)
    print(f"after step {steps}: loss {mean_hinge().value:.3f}, {right} of {len(points)} points on the right side")
    print(f"largest difference from torch's parameters: {apart:.0e}")
    print(f"milliseconds per step: {own:.1f} with nodes, {torchs:.2f} with torch's tensors")
    grids["after"] = grid(lambda x1, x2: score(x1, x2).value)
    curves = {"torch": torch_record, "your engine": record}
    picture = boundaries(points, grids, curves, title="Trained by your backward, the boundary bends around the moons")
else:
    print("Once backward passes its check, it trains this network here, and torch does the same beside it.")
picture

# %% [markdown]
# The two engines' parameters differ only by rounding, but their times differ a lot: one node for each number is
# expensive. This is a good place for a break. (When you come back to a fresh kernel, select the next cell, then
# *Run > Run All Above Selected Cell*.)
#
# # Part II: tensors
#
# ## 6. One rule per operation
#
# A linear layer with 1,024 inputs and 1,024 outputs, on a batch of 64 rows, computes
# $64 \cdot 1{,}024 \cdot 1{,}024 \approx {{ 64 * 1024**2 / 1e6 : .0f }}$ million products, and as many sums: too many
# for a node each. So a framework makes one node for each *operation on tensors*, and needs one
# rule for each operation: given the derivative of the loss with respect to its output, find the derivatives with
# respect to its inputs.
#
# All derivatives of an operation together form its **Jacobian**: entry $(i, j)$ says how output $i$ depends on input
# $j$. Here are two.

# %%
torch.manual_seed(0)
small, weight = torch.randn(4, 3), torch.randn(2, 3)
by_relu = torch.autograd.functional.jacobian(torch.relu, small).reshape(12, 12)
by_linear = torch.autograd.functional.jacobian(lambda x: x @ weight.T, small).reshape(8, 12)
jacobians = {"relu of 4 × 3 numbers: 12 × 12": by_relu, "x @ w.T with w of 2 × 3: 8 × 12": by_linear}
figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
for panel, (name, matrix) in zip(panels, jacobians.items(), strict=True):
    shown = panel.imshow(matrix, cmap="PuOr", vmin=-2.5, vmax=2.5)
    panel.set(title=name, xlabel="input j", ylabel="output i", xticks=range(0, 12, 3), yticks=range(0, len(matrix), 2))
figure.suptitle("These Jacobians are mostly zeros, with one block repeated on the right")
figure.colorbar(shown, ax=panels, label="∂ output i / ∂ input j", shrink=0.8)
plt.show()

# %% [markdown]
# **Predict.** How many bytes would the Jacobian of that layer take, from its input (64 × 1,024) to its output (64 ×
# 1,024), in float32 with 4 bytes per number?

# %%
entries = (64 * 1024) * (64 * 1024)
print(f"the Jacobian: {entries * 4 / 1e9:,.1f} GB")
print(f"its input or its output: {64 * 1024 * 4 / 1e6:,.2f} MB")

# %% [markdown]
# Backward never needs this matrix, only one product with it. Let an operation turn $x \in \mathbb{R}^n$ into
# $y \in \mathbb{R}^m$, let $L$ be the loss, and let a bar again mean the derivative of the root, which is now $L$. Then
#
# $$
# \bar x_j = \sum_{i=1}^{m} \bar y_i\,\frac{\partial y_i}{\partial x_j},
# \qquad\text{in short}\qquad \bar x^{\mathsf T} = \bar y^{\mathsf T} J,
# $$
#
# - $J \in \mathbb{R}^{m \times n}$ is the Jacobian, $J_{ij} = \partial y_i / \partial x_j$;
# - $\bar y \in \mathbb{R}^m$, $\bar y_i = \partial L / \partial y_i$, is what arrives from the operation's users;
# - $\bar x \in \mathbb{R}^n$, $\bar x_j = \partial L / \partial x_j$, is what is passed on.
#
# This is the formula of section 2 for all inputs at once, and is called the **vector-Jacobian product**, or *vjp*. Each
# operation has a function that computes $\bar y^{\mathsf T} J$ directly. For relu it is `dy * (x > 0)`: $n$
# multiplications instead of an $n \times n$ matrix. In code, $\bar y$ is called `dy`, `dout` or `grad_output`, and it
# has the shape of the output.
#
# Because the loss is *one* number, every derivative on the way back has the shape of a value that was already
# there. Here are the same numbers, computed both ways:

# %%
leaf = small.clone().requires_grad_()
dy = torch.randn(4, 2)
(by_vjp,) = torch.autograd.grad(leaf @ weight.T, leaf, grad_outputs=dy)
by_matrix = (dy.flatten() @ by_linear).reshape(4, 3)
print("largest difference between vjp and dy @ J:", (by_vjp - by_matrix).abs().max().item())

# %% [markdown]
# ## 7. Broadcasting is sharing
#
# `torch.ones(4, 3) + torch.ones(3)` adds one row to four rows. The derivative that arrives has shape (4, 3). Which
# shape must be passed on to the row? In the picture, one `r` is added to two numbers.

# %%
p, q, r = (named(Node(v), n) for v, n in ((1.0, "p"), (2.0, "q"), (3.0, "r")))
product = (p + r) * (q + r)
draw(product, title="Broadcasting in small: r is used twice, so its shares add up", derivatives=derivatives(product))

# %% [markdown]
# Broadcasting lets many outputs use one input. Each use sends a share back, and shares add up: **the vjp of copying
# is summing.**
#
# **Predict** the shape that must be passed on to the second tensor in each of these sums, and the dimensions of the
# result over which the derivative is summed: `(4, 3) + (3,)`, `(4, 3) + (4, 1)`, `(4, 3) + ()`,
# `(2, 4, 3) + (4, 1)`, `(4, 1) + (1, 3)`.

# %%
for first, second in (((4, 3), (3,)), ((4, 3), (4, 1)), ((4, 3), ()), ((2, 4, 3), (4, 1)), ((4, 1), (1, 3))):
    shared = torch.ones(second, requires_grad=True)
    result = torch.ones(first) + shared
    result.sum().backward()
    back, each = tuple(shared.grad.shape), int(shared.grad.flatten()[0])
    steps = shared.expand(result.shape).stride()  # steps through memory: 0 where broadcasting repeats a number
    over = [dim for dim, step in enumerate(steps) if step == 0]
    told = f"{first!s:9} + {second!s:6} gives {tuple(result.shape)!s:9}; back to {back!s:6}"
    print(f"{told}, each entry a sum of {each:2} over dimensions {over}")

# %% [markdown]
# Broadcasting compares shapes from the right, and repeats each dimension that is missing or has size 1. What does this
# mean for the way back?


# %% exercise
from torch import Tensor


def unbroadcast(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What flows back to an input of shape `shape` that was broadcast to the shape of `grad`.

    grad      the derivative with respect to the broadcast value, any floating dtype
    shape     the input's shape; it broadcasts to grad.shape. It may be (), and it may equal grad.shape.
    Returns   a tensor of shape `shape` and the dtype of `grad`: over every dimension that broadcasting repeated, `grad`
              is summed, in float32 or finer, as torch's sums are; in float16 no sum on the way passes 65504. `grad`
              itself is not changed; where nothing was repeated, it or a view of it may be returned.
    Example   grad = [[1., 2., 3.], [4., 5., 6.]]: shape (3,) gives [5., 7., 9.], shape (2, 1) gives [[6.], [15.]],
              shape () gives 21.
    Not allowed: Tensor.sum_to_size, torch.autograd, torch.func.
    """
    added = grad.dim() - len(shape)  # dimensions that the input did not have
    grad = grad.sum(dim=tuple(range(added))) if added else grad
    for dim, size in enumerate(shape):
        if size == 1:
            grad = grad.sum(dim=dim, keepdim=True)
    return grad


# %%
check(unbroadcast)

# %% [markdown]
# So on the way back exactly the repeated dimensions are summed. A dimension that was missing disappears again, and one
# of size 1 keeps its size 1.
#
# ## 8. The linear layer
#
# Most of a model's arithmetic is one operation, $y = x\,w^{\mathsf T} + b$. For row $n$ of the batch and
# output $k$:
#
# $$y_{nk} = \sum_{i} x_{ni}\, w_{ki} + b_k .$$
#
# - $x$ has the shape (rows, in), $w$ the shape (out, in), $b$ the shape (out), and $y$, called `out` in code, the shape
#   (rows, out);
# - $n$ counts rows, $i$ inputs and $k$ outputs; $\bar y_{nk} = \partial L / \partial y_{nk}$, called `dout` in code, is
#   what arrives.
#
# Begin with $x_{ni}$: which outputs use it, and with which local derivative? The formula of section 2 then gives
# $\bar x_{ni}$ as a sum. A sum of products over one index is a matrix product: which one? Then do the same for
# $w_{ki}$ and for $b_k$. (If there are several batch dimensions, each combination of their indices is a row.) Do not
# guess from the shapes: they cannot tell you whether to transpose a square matrix.
#
# **Predict** before you run: how much more arithmetic is backward than forward, for a layer inside a model? And for
# the first layer, whose input is data, so that $\bar x$ is not needed?

# %%
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

rows, inputs, outputs = 64, 1024, 1024
layer_w = torch.randn(outputs, inputs, requires_grad=True)
for place, inside in (("a layer inside a model", True), ("the first layer, whose input is data", False)):
    layer_in = torch.randn(rows, inputs, requires_grad=inside)
    with FlopCounterMode(display=False) as forward_flops:
        layer_out = F.linear(layer_in, layer_w)
    with FlopCounterMode(display=False) as backward_flops:
        layer_out.sum().backward()
    forward, back = forward_flops.get_total_flops(), backward_flops.get_total_flops()
    print(f"{place:36}: forward {forward:,}, backward {back:,}")
print(f"2 · rows · in · out = {2 * rows * inputs * outputs:,}")

# %% [markdown]
# Inside a model, backward costs twice as much: one product for $\bar x$ and one for $\bar w$, each as large as the
# product of the forward pass. The first layer needs only $\bar w$, so its backward costs as much as its forward. (The
# bias is not counted.)
#
# Multiplying and adding make 2 operations per weight and row, and forward and backward together make 6. So training
# costs about 6 operations per token and parameter, embeddings not counted (Kaplan et al., arXiv 2001.08361, section
# 2.1). Plans of training runs use this as $6ND$ for $N$ parameters and $D$ tokens (Hoffmann et al., arXiv 2203.15556,
# section 3.3).


# %% exercise
from torch import Tensor


def linear_vjp(dout: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Backward of out = x @ w.T + b.

    dout      (..., out), the derivative with respect to out; all three have one floating dtype
    x         (..., in), the layer's input; `...` is any number of batch dimensions, also none
    w         (out, in), the weight
    Returns   (dx, dw, db) of the shapes of x, w and b: (..., in), (out, in) and (out,), in the dtype of the inputs.
              Sums over rows are added up in float32 or finer, as torch's are (float64 in float64); in float16 no sum
              on the way passes 65504. Nothing that was handed in is changed.
    Example   x = [[1., 2.]], w = [[3., 4.], [5., 6.], [7., 8.]], dout = [[1., 0., -1.]]:
              dx = [[-4., -4.]], dw = [[1., 2.], [0., 0.], [-1., -2.]], db = [1., 0., -1.].
    Not allowed: torch.autograd, torch.func.
    """
    dout_rows = dout.reshape(-1, w.shape[0])
    x_rows = x.reshape(-1, w.shape[1])
    dx = dout @ w
    dw = dout_rows.T @ x_rows  # sums over all rows: they share one weight
    db = dout_rows.sum(dim=0)
    return dx, dw, db


# %%
check(linear_vjp)

# %% [markdown]
# In indices, to compare with yours:
#
# $$
# \bar x_{ni} = \sum_k \bar y_{nk}\, w_{ki}, \qquad
# \bar w_{ki} = \sum_n \bar y_{nk}\, x_{ni}, \qquad
# \bar b_k = \sum_n \bar y_{nk}.
# $$
#
# All rows share one $w$ and one $b$, so the shares of the rows add up, as in broadcasting.
#
# ## 9. A loss that does not overflow
#
# A classifier gives each class $j$ a number $l_j$, its *logit*. The probabilities are $p_j = e^{l_j} / \sum_k e^{l_k}$,
# the *softmax*, and the loss of one row is $-\log p_t$ for the true class $t$, the *cross-entropy*. Its unit is the
# *nat*, because the logarithm is the natural one.
#
# **Predict.** The largest number in float32 is $3.4 \cdot 10^{38}$. From which $l$ on is $e^l$ too large? And what does
# this formula give for the logits (1000, 0)?

# %%
for logit in (80.0, 88.0, 89.0, 1000.0):
    print(f"exp({logit:g}) in float32 = {torch.tensor(logit).exp().item():.4g}")


def textbook(logits: Tensor, target: int) -> Tensor:
    """-log softmax, just as the formula says."""
    return -torch.log(torch.exp(logits) / torch.exp(logits).sum())[target]


print("textbook loss of (1000, 0), target 0:", textbook(torch.tensor([1000.0, 0.0]), 0).item())
print("textbook loss of (0, 1000), target 0:", textbook(torch.tensor([0.0, 1000.0]), 0).item())

# %% [markdown]
# The limit is $\log(3.4 \cdot 10^{38}) \approx {{ largest_exponent() : .1f }}$. Beyond it $e^l$ is inf, and inf / inf
# is nan. The true losses are 0 and 1000: only this way of computing them fails. Logits of 89 do occur, for example when
# the learning rate is too large.
#
# Find the cure yourself, in two steps. First: what happens to the softmax if you add the same number to all
# logits of a row? Which number makes overflow impossible? Second: a probability may underflow to 0, and its logarithm
# is then $-\infty$. Write $-\log p_t$ without taking the logarithm of a probability.
#
# The loss of a batch is the mean over its $N$ rows, $L = -\frac1N \sum_{n} \log p_{n,t_n}$, where $t_n$ is the class of
# row $n$. For its gradient you need $\partial(-\log p_t) / \partial l_j$, once for the true class and once for any
# other. Derive it, and write everything with exponentials, logarithms and sums. This is what PyTorch's
# `F.cross_entropy` gives for one row:

# %%
logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, 1.5]], requires_grad=True)
(pull,) = torch.autograd.grad(F.cross_entropy(logits, torch.tensor([1])), logits)
figure, panels = plt.subplots(1, 2, figsize=(7.5, 2.8), sharey=True)
panels[0].bar(range(5), logits.softmax(1)[0].detach(), color="#0072b2")
panels[0].set(title="probabilities", xlabel="class (the true one is 1)", ylabel="probability, or ∂L/∂logit")
panels[1].bar(range(5), pull[0], color="#d55e00", hatch="//")
panels[1].set(title="gradient of the loss", xlabel="class (the true one is 1)")
panels[1].axhline(0, color="#57606a", linewidth=1)
figure.suptitle("In the gradient, only the bar of the true class points down")
figure.tight_layout()
plt.show()
print(f"sum of the gradient: {pull.sum().item():.0e}")

# %% [markdown]
# A gradient step raises the logit of the true class and lowers all others. The bars of the gradient add up to 0, except
# for rounding.


# %% exercise
import torch
from torch import Tensor


def softmax_cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of a batch, and its gradient with respect to the logits.

    logits    (N, C), floating, N and C at least 1; entries up to 1e4 in size. In float16 C and the
              sum of the N losses are below 65504.
    targets   (N,), int64, each in 0 .. C-1
    Returns   (loss, dlogits): the mean over the N rows, a tensor of shape (), and d loss / d logits, (N, C), both in
              the dtype of the logits. Sums are added up in float32 or finer, as torch's are. Nothing that was handed in
              is changed.
    Example   logits [[0., 0.]], targets [0]: loss 0.6931 (log 2), dlogits [[-0.5, 0.5]].
    Not allowed: torch.autograd, torch.func, F.cross_entropy, F.nll_loss.
    """
    count = len(targets)
    rows = torch.arange(count)
    shifted = logits - logits.max(dim=1, keepdim=True).values
    logsumexp = shifted.exp().sum(dim=1, keepdim=True).log()
    log_p = shifted - logsumexp
    loss = -log_p[rows, targets].mean()
    dlogits = log_p.exp()
    dlogits[rows, targets] -= 1.0
    return loss, dlogits / count


# %%
check(softmax_cross_entropy)

# %% [markdown]
# The cure is to subtract the largest logit $m = \max_k l_k$ first. Numerator and denominator are divided by the same
# $e^m$, so the softmax does not change. But the largest exponent is now 0, and the sum lies between 1 and the
# number of classes. To avoid the logarithm of a probability, use the *log-sum-exp*, lse:
#
# $$
# \mathrm{lse}(l) = \log \sum_k e^{l_k} = m + \log \sum_k e^{l_k - m},
# \qquad L = \frac1N \sum_{n=1}^{N} \bigl( \mathrm{lse}(l_n) - l_{n,t_n} \bigr).
# $$
#
# - $l_n$ is the row of logits of example $n$, $t_n$ its class, $N$ the number of rows; $L$ is the mean over the
#   batch.
#
# (Error bounds: Blanchard, Higham and Higham, IMA Journal of Numerical Analysis 41, 2021.)
#
# The gradient takes one line: $\partial\, \mathrm{lse} / \partial l_j = e^{l_j} / \sum_k e^{l_k} = p_j$. So each bar of
# the gradient is the probability that the model gave to this class, minus 1 if the class is the true one.
#
# ## 10. A network that reads digits
#
# Two linear layers, a relu between them and a loss are all you need to read handwritten digits. Here are
# {{ len(digits().labels) : , }} of them, of 8 × 8 pixels (Alpaydin and Kaynak 1998, *Optical Recognition of Handwritten
# Digits*, UCI Machine Learning Repository, <https://doi.org/10.24432/C50P49>, CC BY 4.0).

# %%
from course.lessons.data import digits_split
from course.lessons.figures.charts import digit_grid

train, test = digits_split()
print(f"{len(train.labels):,} digits to train on, {len(test.labels)} held out")
digit_grid(train.images[:20], train.labels[:20], title="Twenty of the digits, each under its label")


# %% [markdown]
# Here are forward and backward, once with your functions and once with PyTorch's autograd. In `by_hand`, the backward
# half is the forward half in reverse.


# %%
def by_hand(w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Loss and gradients, with your `linear_vjp` and `softmax_cross_entropy`."""
    z = x @ w1.T + b1
    hidden = torch.relu(z)
    logits = hidden @ w2.T + b2
    loss, dlogits = softmax_cross_entropy(logits, t)
    dhidden, dw2, db2 = linear_vjp(dlogits, hidden, w2)
    dz = dhidden * (z > 0)
    _, dw1, db1 = linear_vjp(dz, x, w1)
    return loss, [dw1, db1, dw2, db2]


def by_autograd(w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The same with torch's autograd."""
    leaves = [each.detach().requires_grad_() for each in (w1, b1, w2, b2)]
    logits = F.linear(torch.relu(F.linear(x, *leaves[:2])), *leaves[2:])
    loss = F.cross_entropy(logits, t)
    return loss.detach(), list(torch.autograd.grad(loss, leaves))


def fresh_parameters() -> list[Tensor]:
    """64 inputs, 32 hidden units, 10 classes; always the same start."""
    generator = torch.Generator().manual_seed(1)
    w1 = torch.randn(32, 64, generator=generator) / 64**0.5
    w2 = torch.randn(10, 32, generator=generator) / 32**0.5
    return [w1, torch.zeros(32), w2, torch.zeros(10)]


if solved(linear_vjp) and solved(softmax_cross_entropy):
    gradients = by_hand
    print("This trains on your own backward pass.")
else:
    gradients = by_autograd
    print("This trains on torch's autograd, until linear_vjp and softmax_cross_entropy pass their checks.")

# %% [markdown]
# **Predict.** What is the loss before the first step, when the network knows nothing about the ten classes? (It has a
# closed form.)


# %%
import math

from course.lessons.figures.charts import training_curves


def predicted(w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, x: Tensor) -> Tensor:
    """The class with the largest logit, for each row."""
    return (torch.relu(x @ w1.T + b1) @ w2.T + b2).argmax(dim=1)


parameters, losses, accuracy, at_the_kink = fresh_parameters(), [], {}, 0
order = torch.Generator().manual_seed(2)
for _ in range(30):
    for index in torch.randperm(len(train.labels), generator=order).split(50):
        images, labels = train.images[index], train.labels[index]
        at_the_kink += int((images @ parameters[0].T + parameters[1] == 0).sum())  # relu's input, exactly 0
        loss, grads = gradients(*parameters, images, labels)  # forward and backward
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter -= 0.5 * grad  # one step of gradient descent, learning rate 0.5
        losses.append(float(loss))
    accuracy[len(losses)] = (predicted(*parameters, test.images) == test.labels).float().mean().item()

print(f"first loss {losses[0]:.3f}; ln 10 = {math.log(10):.3f}")
print(f"held-out digits read correctly: {accuracy[len(losses)]:.1%} of {len(test.labels)}")
print(f"exactly 0 before the relu, in all steps: {at_the_kink} of {len(losses) * 50 * 32:,} hidden values")
training_curves({"training": losses}, {"held out": accuracy}, title="From guessing to reading, in 900 steps")

# %% [markdown]
# These are the held-out digits that it gets wrong. Would you have read them correctly?

# %%
said = predicted(*parameters, test.images)
wrong = (said != test.labels).nonzero().flatten()[:30]  # thirty are enough, should there be more
title = "Held-out digits that the network misreads"
digit_grid(test.images[wrong], test.labels[wrong], said[wrong], title=title, across=5)

# %% [markdown]
# - An untrained network guesses, so its first loss is close to $-\log\tfrac1{10}$. A much larger one points to a bug,
#   or to initial weights that are too large (with both weights times 3 it is {{ untrained_loss(3) : .1f }} over all
#   digits).
# - The kink of section 5 makes no difference here as long as the count of exact zeros above is 0, as it was for us.
# - The same 13 people wrote the training and the held-out digits. Another person's digits would be harder to read.
#
# ## 11. For real: four lines
#
# The same network, start and order of batches, in the four lines that every PyTorch training loop has:

# %%
from torch import nn

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
with torch.no_grad():
    for parameter, start in zip(model.parameters(), fresh_parameters(), strict=True):
        parameter.copy_(start)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

real_losses, order = [], torch.Generator().manual_seed(2)
for _ in range(30):
    for index in torch.randperm(len(train.labels), generator=order).split(50):
        loss = F.cross_entropy(model(train.images[index]), train.labels[index])  # 1. forward: record the graph
        optimizer.zero_grad()                                                    # 2. forget the last gradients
        loss.backward()                                                          # 3. backward: walk the graph
        optimizer.step()                                                         # 4. step
        real_losses.append(loss.item())

differences = [abs(mine - real) for mine, real in zip(losses, real_losses, strict=True)]
print(f"step 1:   section 10 {losses[0]:.6f}   torch {real_losses[0]:.6f}")
print(f"step {len(losses)}: section 10 {losses[-1]:.6f}   torch {real_losses[-1]:.6f}")
print(f"worst difference over {len(losses)} steps: {max(differences):.1e}")

# %% [markdown]
# The losses agree up to rounding. PyTorch's graph is of the kind that you know: each tensor's `grad_fn` is a node, and
# its `next_functions` are the node's inputs. From the loss, follow the first input that is neither a parameter nor its
# transpose:

# %%
names, node = [], loss.grad_fn
while node is not None:
    names.append(type(node).__name__)
    inputs_of_node = [each for each, _ in node.next_functions if each is not None]
    computed = [each for each in inputs_of_node if type(each).__name__ not in ("AccumulateGrad", "TBackward0")]
    node = computed[0] if computed else None
print("  <-  ".join(names))

# %% [markdown]
# | this lesson | PyTorch |
# | --- | --- |
# | `Node`, `node.inputs` | `tensor.grad_fn`, `grad_fn.next_functions` |
# | a leaf and its `grad +=` | an `AccumulateGrad` node and `parameter.grad` |
# | visit a node after all of its users | the engine counts, for each node, the users that are still to come |
# | `local_derivatives()` times the node's derivative | a vjp for each operation (`derivatives.yaml` in its sources) |
#
# There is one difference that matters for Part III. Your `backward` may be called twice on one graph. May PyTorch's?

# %%
three = torch.tensor(3.0, requires_grad=True)
square = three * three
square.backward()
try:
    square.backward()
except RuntimeError as error:
    print("RuntimeError:", str(error).partition(". ")[0])

# %% [markdown]
# After a backward pass PyTorch frees the values that it had *saved* for it, unless you call
# `backward(retain_graph=True)`. These values are large, and they are the subject of Part III. This is another good
# place for a break.
#
# # Part III: memory
#
# ## 12. What each operation saves
#
# The vjp of relu is `dy * (x > 0)`. It needs `x`, a value of the forward pass, which must be kept until backward has
# used it. Such values are called *saved activations*. Which ones an operation saves follows from its vjp:
#
# | operation | vjp | so it saves |
# | --- | --- | --- |
# | $y = x + c$, $y = c\,x$ with a plain number $c$ | $\bar y$, $c\,\bar y$ | nothing |
# | $y = x^3$ | $\bar y \cdot 3 x^2$ | its input |
# | $y = \mathrm{relu}(x)$ | $\bar y \cdot [x > 0]$ | its input or its output: both tell the sign |
# | $y = \sigma(x) = 1 / (1 + e^{-x})$ | $\bar y \cdot y\, (1 - y)$ | its output |
# | $y = \tanh(x)$ | $\bar y \cdot (1 - y^2)$ | its output |
# | $y = \mathrm{softmax}(x)$ | $y \cdot (\bar y - \textstyle\sum_j \bar y_j y_j)$ | its output |
# | $y = x\, w^{\mathsf T} + b$ | section 8 | $x$ and $w$ (the parameter is there anyway) |
# | $y = x \cdot z$, a product of two tensors | $\bar y \cdot z$ and $\bar y \cdot x$ | both factors |
#
# $[\dots]$ is 1 where the statement holds and 0 elsewhere.
#
# **Predict** how many MiB each operation below saves. Its input $x$ has 256 × 1,024 numbers of 4 bytes: 1 MiB. Replace
# the question marks, then run the measurement. `x * sigmoid(x)` is known as *SiLU* or *swish*. The *GELU* is written
# out in its tanh form, $\tfrac12 x\,\bigl(1 + \tanh(c_1 (x + c_2\, x^3))\bigr)$ with two plain numbers $c_1$ and $c_2$.
# PyTorch also has both as one operation each. Parameters do not count: they are there anyway.

# %%
prediction_in_mib = {
    "x + 1": "?",
    "relu": "?",
    "sigmoid": "?",
    "softmax": "?",
    "linear": "?",
    "x * sigmoid(x)": "?",
    "F.silu": "?",
    "gelu written out": "?",
    "F.gelu": "?",
}

# %% [markdown]
# The meter counts what autograd saves (`torch.autograd.graph.saved_tensors_hooks`), each piece of memory once.

# %%
from course.lessons.figures.charts import saved_bytes_bars
from course.meter import saved_bytes

activation = torch.randn(256, 1024, generator=torch.Generator().manual_seed(3)).requires_grad_()
square_weight, bias = torch.randn(1024, 1024, requires_grad=True), torch.zeros(1024, requires_grad=True)
MIB = 2**20


def gelu_written_out(x: Tensor) -> Tensor:
    """The tanh form of Hendrycks and Gimpel (arXiv 1606.08415), section 2."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


operations = {
    "x + 1": lambda x: x + 1,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: x.softmax(dim=1),
    "linear": lambda x: F.linear(x, square_weight, bias),
    "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
    "F.silu": F.silu,
    "gelu written out": gelu_written_out,
    "F.gelu": lambda x: F.gelu(x, approximate="tanh"),
}
measured = {}
for name, operation in operations.items():
    with saved_bytes(ignore=[square_weight]) as meter:
        kept_result = operation(activation)
    measured[name] = meter.total
    print(f"{name:18} predicted {prediction_in_mib[name]:>2} MiB, measured {meter.total / MIB:.0f} MiB")

saved_bytes_bars(measured, "What each operation on 1 MiB saves for backward")

# %% [markdown]
# - Written out, the SiLU saves {{ spelled(dearer("x * sigmoid(x)", "F.silu")) }} times as much as `F.silu`, and the
#   GELU {{ spelled(dearer("gelu written out", "F.gelu")) }} times as much as `F.gelu`. In `x * sigmoid(x)` *three*
#   tensors are saved: $x$ and $\sigma(x)$ by the product, $\sigma(x)$ by the sigmoid. They are two pieces of memory.
# - The *fused* operation `F.silu` saves $x$ alone, and computes $\sigma(x)$ again in the backward pass. The separate
#   operations cannot: each sees only its own inputs. (A compiler that sees the whole graph, such as `torch.compile`,
#   can.)
#
# What an operation saves may be saved by another one already. **Predict** one more: in `linear → activation → linear`
# each hidden tensor has 1 MiB. Besides input and weights, how many MiB are saved if the activation is a relu? And if
# it is a SiLU?

# %%
for name, function in (("relu", torch.relu), ("silu", F.silu)):
    with saved_bytes(ignore=[square_weight, activation]) as meter:
        kept_result = F.linear(function(F.linear(activation, square_weight)), square_weight)
    print(f"linear, {name}, linear: {meter.total / MIB:.0f} MiB besides input and weights")

# %% [markdown]
# Relu saves its *output*, the very tensor that the next layer saves as its *input*, so here relu costs no memory of its
# own. SiLU saves its input, which no other operation needs.
#
# ## 13. Save less
#
# Now write the fused operation yourself, for $y = x\,\sigma(x)$. The product rule and the sigmoid's row of the
# table give $dy/dx$. Each value in it must either be saved, which costs memory, or computed again, which costs
# arithmetic. Lesson 04 makes the same trade, **arithmetic for memory**, for whole layers.
#
# In PyTorch, an operation with its own backward rule is a class with two static methods. Here are two such classes for
# $x^3$. Only one of them can be differentiated twice:


# %%
class Cube(torch.autograd.Function):
    """x**3, saving x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)  # hand over what backward will need
        return x**3

    @staticmethod
    def backward(ctx, dy):  # dy: what arrives, in the shape of the result
        (x,) = ctx.saved_tensors
        return dy * 3 * x**2  # one value for each argument of forward


class CubeKeepsSlope(torch.autograd.Function):
    """x**3, saving 3 x**2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(3 * x**2)
        return x**3

    @staticmethod
    def backward(ctx, dy):
        (slope,) = ctx.saved_tensors
        return dy * slope


for cube in (Cube, CubeKeepsSlope):
    at = torch.tensor(2.0, requires_grad=True)
    (first,) = torch.autograd.grad(cube.apply(at), at, create_graph=True)
    second = torch.autograd.grad(first, at)[0].item() if first.requires_grad else "nothing to differentiate"
    print(f"{cube.__name__:15} first derivative at 2: {first.item():g}; second: {second}")

# %% [markdown]
# Inside `forward` nothing is recorded, so to autograd everything computed there is a constant. Only what came in ($x$)
# and what goes out ($y$) have a history when they are saved with `save_for_backward`. So `backward` must start from
# saved *inputs or outputs* and use ordinary operations. These are recorded when someone asks for a second derivative.
#
# Save with `save_for_backward`, not with `ctx.x = x`: only then are the values freed in time, and a later
# change in place is noticed.


# %% exercise
from typing import Any

import torch
from torch import Tensor


class SaveLess(torch.autograd.Function):
    """y = x * sigmoid(x), elementwise, keeping nothing for backward but x itself.

    Used as   y = SaveLess.apply(x), for x of any shape and floating dtype; y is a new tensor of that shape and dtype.
    Keeps     as many bytes as x has, and no more: x itself, also where it is a view. Tensors count however they are
              kept: saved, as attributes of ctx, in closures. (`saved_bytes` of this lesson shows those that are saved.)
    Large x   y and dy/dx are finite and right, also at x = 100 and at x = -100 in float32 and in float16.
    Twice     it can be differentiated twice: the gradient of its gradient, with respect to x and to dy, is right, too,
              where exp(-x) does not overflow, in every dtype and shape.
    Leaves    x and dy as they are: nothing is written into them.
    Example   at x = 1, where sigmoid(x) = 0.7311: y = 0.7311, dy/dx = 0.9277, and the second derivative is 0.3024.
    Not allowed: torch.nn.functional.silu, torch.utils.checkpoint.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """x * sigmoid(x)."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """dy * dy/dx, with the sigmoid computed again."""
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))


# %%
check(SaveLess)

# %% [markdown]
# The check finds every tensor that is still alive, however it is kept. The meter of section 12 would not see an
# attribute of `ctx`.
#
# Without an answer key, `gradcheck` compares a backward rule with nudges in float64, and `gradgradcheck` does the same
# for the second derivative.

# %%
contestants = {"x * sigmoid(x)": operations["x * sigmoid(x)"], "F.silu": F.silu}
if solved(SaveLess):
    contestants["your SaveLess"] = SaveLess.apply
    few = torch.randn(5, dtype=torch.float64, requires_grad=True)
    print("gradcheck:    ", torch.autograd.gradcheck(SaveLess.apply, few))
    print("gradgradcheck:", torch.autograd.gradgradcheck(SaveLess.apply, few))
else:
    print("Once SaveLess passes its check, the picture has a third bar for it.")

measured = {}
for name, operation in contestants.items():
    with saved_bytes() as meter:
        kept_result = operation(activation)
    measured[name] = meter.total
saved_bytes_bars(measured, "One function on 1 MiB: written out it saves two tensors, fused only one")

# %% [markdown]
# ## 14. A batch that does not fit
#
# What is saved for backward grows with the batch:

# %%
for rows in (50, 100, 200, 1_500):
    images, labels = train.images[:rows].clone(), train.labels[:rows].clone()
    with saved_bytes(ignore=model.parameters()) as meter:
        kept_result = F.cross_entropy(model(images), labels)
    print(f"batch of {rows:5,}: {meter.total / 1024:7.1f} KiB saved")

# %% [markdown]
# Suppose that 1,500 rows do not fit into memory, but 200 do. The gradient of a sum is the sum of the gradients, and
# backward *adds* to `grad` (section 4). So run the batch in pieces, *micro-batches*, call backward after each, and step
# once at the end. Each call frees what was saved, so memory holds one piece at a time. (Batch norm mixes the rows of a
# batch, so there pieces give other numbers; dropout draws other masks.)
#
# One detail has distorted real training runs. Losses are *means*, and a mean of means is not the mean of all.
# **Predict** the mean loss per token of two pieces, one of 90 tokens with a mean of 1.0 and one of 10 tokens with a
# mean of 3.0. How far off is the mean of the two means?

# %%
tokens, means = (90, 10), (1.0, 3.0)
over_tokens = sum(n * m for n, m in zip(tokens, means, strict=True)) / sum(tokens)
print(f"mean over all tokens: {over_tokens:.1f}")
print(f"mean of the means:    {sum(means) / len(means):.1f}")
ratio = tokens[0] / tokens[1]
print(f"In the mean of means, a token of the short piece weighs {ratio:.0f} times one of the long piece.")

# %% [markdown]
# When language models are fine-tuned, the pieces are rarely equal: sequences differ in length, and short ones are
# *padded* with targets of $-100$, which do not count. In October 2024 the mean of means was found in widely used
# training libraries ("Fixing Gradient Accumulation", Hugging Face blog, 16 October 2024). For a batch that many workers
# share, Goyal et al. had already said to divide by the size of the whole batch, not by that of a worker's part (arXiv
# 1706.02677, section 3, remark 3).
#
# One large batch would have given the mean over all tokens of the *whole group* of micro-batches:
#
# $$L = \frac1N \sum_{g=1}^{G} \sum_{i \in g} \ell_i, \qquad N = \sum_{g=1}^{G} N_g .$$
#
# - $g$ counts the $G$ micro-batches of a group, $N_g$ is the number of tokens in micro-batch $g$ that are not
#   padding, and $\ell_i$ is the cross-entropy of token $i$. $L$ is the loss of one step.
#
# `F.cross_entropy` expects the classes in dimension 1. For $n$ sequences of $T$ tokens and $C$ classes, make each token
# a row: `logits.flatten(0, 1)` turns $(n, T, C)$ into $(nT, C)$, and `targets.flatten()` turns $(n, T)$ into $(nT)$.
# Targets of $-100$ are left out of the loss and of the count for its mean; the argument is `ignore_index=-100`,
# which is the default.


# %% exercise
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def accumulate_gradients(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: list[tuple[Tensor, Tensor]], every: int
) -> list[float]:
    """Train on large batches in small pieces: one optimizer step for every `every` micro-batches.

    model          model(inputs) returns logits: (n, T, F) floating -> (n, T, C); a token's logits may depend on
                   others of its sequence
    optimizer      holds the model's parameters, of which some may be frozen, or not used by the model
    micro_batches  pairs (inputs, targets): inputs (n, T, F), targets (n, T) int64, -100 where padded. n and T may
                   differ from pair to pair, and a pair may be padding only; a group as a whole never is.
    every          how many micro-batches form a group, at least 1; the last group may be smaller, and counts too
    Returns        the loss of each step: the mean cross-entropy over all tokens of the group that are not padding, as
                   if the group were one batch. One float per step.
    Memory         one micro-batch at a time goes through the model, and what it saved is freed before the next
    Work           every token that is not padding goes through the model once
    Gradients      that lie in any of the parameters before the call do not leak into a step
    Unchanged      the list and its tensors, and the model's mode (train or eval), also during the call
    Example        two pieces of 90 and 10 tokens with mean losses 1.0 and 3.0, every=2: one step, returns [1.2].
    """
    losses = []
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        tokens = sum(int((targets != -100).sum()) for _, targets in group)
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in group:
            logits = model(inputs).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum") / tokens
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


# %%
check(accumulate_gradients)

# %% [markdown]
# Now the 1,500 digits that "did not fit", as one batch and in {{ spelled(pieces()) }} pieces, of which the last is
# smaller. Each digit is a sequence of one token here, so that the shapes agree.

# %%
starts = range(0, 1_500, 200)
pieces = [(train.images[at : at + 200, None].clone(), train.labels[at : at + 200, None].clone()) for at in starts]


def small_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same network, from the same start."""
    torch.manual_seed(4)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return network, torch.optim.SGD(network.parameters(), lr=0.5)


whole, whole_optimizer = small_model()
with saved_bytes(ignore=whole.parameters()) as meter:
    loss = F.cross_entropy(whole(train.images), train.labels)
loss.backward()
whole_optimizer.step()
print(f"one batch of 1,500:  loss {loss.item():.6f}, {meter.total / 1024:6.1f} KiB saved at once")

if solved(accumulate_gradients):
    network, its_optimizer = small_model()
    with saved_bytes(ignore=network.parameters()) as meter:
        piece_loss = F.cross_entropy(network(pieces[0][0]).flatten(0, 1), pieces[0][1].flatten())
    (step_loss,) = accumulate_gradients(network, its_optimizer, pieces, every=len(pieces))
    worst = max((p - q).abs().max().item() for p, q in zip(whole.parameters(), network.parameters(), strict=True))
    print(f"pieces of up to 200: loss {step_loss:.6f}, {meter.total / 1024:6.1f} KiB saved at once")
    print(f"largest difference between the two models after the step: {worst:.0e}")
else:
    print("Once accumulate_gradients passes its check, this cell does the same step in eight pieces.")

# %% [markdown]
# This costs no extra arithmetic, but {{ spelled(pieces()) }} small products keep a GPU less busy than a large one.
#
# ## 15. Bonus: curvature without a Hessian
#
# The gradient is itself the result of a program, so it can be differentiated as well. All second derivatives form
# the **Hessian** $H$, $H_{ij} = \partial^2 f / \partial x_i \partial x_j$. For a model of 1.5 billion parameters it
# would have ${{ 1.5**2 : .2f }} \cdot 10^{18}$ entries. But the product of $H$ with *one* vector $v$ is the
# derivative of one number:
#
# $$(H v)_i = \sum_j H_{ij}\, v_j = \frac{\partial}{\partial x_i} \bigl(\;?\;\bigr),$$
#
# - $f$ maps a tensor $x$ to one number, and $v$, the direction, is a constant tensor of the shape of $x$. Which number
#   stands in the brackets?
#
# So it costs a backward pass through a backward pass. (Pearlmutter, *Fast exact multiplication by the Hessian*, Neural
# Computation 6, 1994, gets $Hv$ at the cost of about one more gradient.) The first backward pass must itself be
# recorded: look for `create_graph` in the documentation of `torch.autograd.grad`.
#
# For $f = x_1^2 x_2$ at $x = (1, 2)$ and $v = (1, 1)$, the next cell builds the Hessian after all.

# %%
point = torch.tensor([1.0, 2.0])
hessian = torch.autograd.functional.hessian(lambda x: x[0] ** 2 * x[1], point)
print("H =", hessian.tolist(), "  H v =", (hessian @ torch.ones(2)).tolist())


# %% exercise
from collections.abc import Callable

import torch
from torch import Tensor


def hvp(f: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> Tensor:
    """The Hessian of f at x, times v.

    f         a function of one tensor of the shape of x that returns one number, a tensor of shape (), made of
              differentiable operations; not linear: the gradient of a linear f does not depend on x, and torch finds no
              second graph
    x, v      the point and the direction, of the same shape and floating dtype; they may be one tensor
    Returns   H v, of the shape and dtype of x. It carries no graph: it does not require grad.
              x and v are not changed, nor are their `requires_grad` and `grad`.
    Cost      a few passes through f. The Hessian is never built: for an x of 100 numbers no tensor of more than 4 times
              its numbers, and at most 1,000 of torch's operations.
    Example   f = x[0]**2 * x[1], x = [1., 2.], v = [1., 1.] gives [6., 2.].
    Not allowed: torch.autograd.functional; difference quotients are too inexact.
    """
    point = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(point), point, create_graph=True)
    (product,) = torch.autograd.grad((gradient * v).sum(), point)
    return product


# %%
check(hvp)

# %% [markdown]
# The number is $\nabla f(x)^{\mathsf T} v$, where $\nabla f(x)$ is the gradient of $f$:
# $\;H v = \nabla_x \bigl( \nabla f(x)^{\mathsf T} v \bigr)$.
#
# ## 16. At scale
#
# How many bytes do a real model's saved activations take? The ZeRO paper (Rajbhandari et al., arXiv 1910.02054, section
# 3.2) says about **60 GB** for GPT-2 with 1.5 billion parameters, a batch of 32 and a sequence length of 1,024. The
# paper's rule of thumb (footnote 3, which names no unit) is $12\, h\, b\, s\, n_{\mathrm{layers}}$. We read it as a
# number of values of 2 bytes each:
#
# - $h$ is the hidden size, $n_{\mathrm{layers}}$ the number of layers, $s$ the tokens per sequence, $b$ the sequences
#   per batch.

# %%
h, heads, layers = 1600, 25, 48  # of GPT-2 1.5B: hidden size, heads, layers (its released configuration, `gpt2-xl`)
s, b = 1024, 32  # tokens per sequence, sequences per batch
by_rule = 12 * h * b * s * layers * 2
error = by_rule / 60e9 - 1
print(f"12 h b s layers values of 2 bytes: {by_rule / 1e9:.1f} GB. The paper: about 60 GB. Error {error:+.1%}")

# %% [markdown]
# The rule reproduces the figure. But is the rule right? The paper does not list what the 12 counts, but you can
# measure. Here is one layer of the model. On PyTorch's `meta` device tensors have shapes but no content, so any laptop
# can run it at full size.


# %%
def meta(*shape: int) -> Tensor:
    """A tensor without content, 2 bytes per number."""
    return torch.empty(*shape, dtype=torch.float16, device="meta", requires_grad=True)


def transformer_layer(x: Tensor, weights: list[Tensor], dropout: float) -> Tensor:
    """Attention, then two linear layers; before each a layer norm, around each a residual connection."""
    w_qkv, w_out, w_up, w_down = weights

    def drop(t: Tensor) -> Tensor:
        return torch.native_dropout(t, dropout, True)[0] if dropout else t

    q, k, v = F.linear(F.layer_norm(x, (h,)), w_qkv).reshape(b, s, 3, heads, h // heads).permute(2, 0, 3, 1, 4)
    attention = drop(torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(h // heads), dim=-1))
    x = x + drop(F.linear((attention @ v).transpose(1, 2).reshape(b, s, h), w_out))
    return x + drop(F.linear(F.gelu(F.linear(F.layer_norm(x, (h,)), w_up)), w_down))


layer_weights = [meta(3 * h, h), meta(h, h), meta(4 * h, h), meta(h, 4 * h)]
per_layer = {}
for dropout in (0.0, 0.1):
    with saved_bytes(ignore=layer_weights) as meter:
        kept_result = transformer_layer(meta(b, s, h), layer_weights, dropout)
    per_layer[dropout] = meter.total
    square = sum(row.bytes for row in meter.rows if row.shape[-2:] == (s, s))
    each, all_layers = meter.total / (b * s * h), layers * meter.total / 1e9
    in_all = f"{all_layers:5.1f} GB in {layers} layers"
    print(f"dropout {dropout}: {each:6.2f} bytes per token, hidden unit and layer; {in_all}")
    print(f"             {square / meter.total:.0%} of it in matrices of {s:,} × {s:,}")

saved_bytes_bars(meter.by_op(), "Most of what a layer of GPT-2 1.5B saves is attention (batch 32, dropout 0.1)")

# %% [markdown]
# We count **{{ saved_by_gpt2(0.0) : .0f }} GB without dropout and {{ saved_by_gpt2(0.1) : .0f }} GB with it**, not 60.
# The largest part is the attention matrices, $b \cdot \mathrm{heads} \cdot s \cdot s$ numbers each, which grow with the
# square of the sequence length. Korthikanti et al. count as we do (arXiv 2205.05198, section 4):
# $b\,s\,h\,(34 + 5\,a\,s/h)$ bytes in each layer, with $a$ heads.

# %%
formula = 34 + 5 * heads * s / h
counted = per_layer[0.1] / (b * s * h)
print(f"their formula {formula:.2f} bytes, our count {counted:.2f} bytes: error {formula / counted - 1:+.2%}")
print("(What they leave out are the means and deviations of the layer norms, 4 bytes each per token.)")

# %% [markdown]
# So the number depends on what is counted. ZeRO's rule does not grow with $s^2$: it leaves out the attention matrices,
# and of the rest it counts {{ 12 * 2 }} bytes where Korthikanti et al. count 34. Implementations that never store the
# attention matrices keep less, too. When you read "activations take so many GB", ask *for which implementation*.
#
# Together with 24 GB of weights, gradients and optimizer states (ZeRO, section 3.1), even the smallest of these numbers
# makes {{ 60 + 24 }} GB and almost fills a GPU of 80 GiB ({{ 80 * 2**30 / 1e9 : .1f }} GB). Lesson 04 saves fewer
# activations and computes the rest again.
#
# ## What to remember
#
# 1. A program that ran is a graph without cycles. Backward visits each node once, after all of its users, and adds up
#    the shares that arrive.
# 2. A backward rule is a vector-Jacobian product. The Jacobian is never built, and every derivative has the shape of
#    its value.
# 3. The vjp of copying is summing. This covers broadcasting, a bias, a shared weight and a batch.
# 4. A linear layer's backward costs twice its forward (the first layer's, which needs no gradient of its input, as much
#    as its forward). What it saves is what its vjp needs from the forward pass.
# 5. You can save memory by computing values again, or by running micro-batches one after another. With micro-batches,
#    divide by the tokens of the whole group.
#
# ## What to read
#
# - Baydin, Pearlmutter, Radul and Siskind, *Automatic differentiation in machine learning: a survey*, JMLR 18 (2018),
#   section 3.2: reverse mode with a worked table.
# - Griewank and Walther, *Evaluating Derivatives*, 2nd edition, SIAM 2008, chapters 3 and 4: proofs of what gradients
#   cost.
# - PyTorch's notes *Autograd mechanics*, the parts *Saved tensors* and *Gradients for non-differentiable functions*.
# - Korthikanti et al., *Reducing activation recomputation in large transformer models*, arXiv 2205.05198, section 4:
#   where each of the 34 bytes comes from.
#
# ## What this lesson simplified
#
# - `Node` computes its local derivatives in the forward pass and keeps them. Frameworks keep tensors, compute the vjp
#   in the backward pass, and then free what they kept.
# - Forward mode, which is cheaper where inputs are few, was left out, and so were sparse gradients and operations in
#   place.
# - Saved bytes are not all of the memory at the peak: backward also makes gradients of activations, and libraries use
#   workspaces. Lesson 04 measures the peak.
# - Plain gradient descent with a fixed learning rate was enough for the digits. Lesson 02 asks what better steps buy.

# %%
progress()
