"""Three short programs as lecture notes might have them, each with one wrong line.

program's name, line number, new line --mended--> text --run--> the parameter after every step

The faults are common ones: a minus in moving averages, a bias correction that nobody uses, and accumulation that
drops the last group of an epoch where it is smaller than the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from course.lessons.experiments.programs import Programs

PROGRAMS = Programs(
    adam="""\
def adam(p, grads, lr, beta1, beta2, eps):
    path = [p]
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    for t, g in enumerate(grads, start=1):
        m, v = beta1 * m - (1 - beta1) * g, beta2 * v - (1 - beta2) * g**2
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        direction = m_hat / (v_hat.sqrt() + eps)
        p = p - lr * direction
        path.append(p)
    return torch.stack(path)
""",
    adam_in_place="""\
def adam_in_place(p, grads, lr, beta1, beta2, eps):
    p, path = p.clone(), [p]
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    power1, power2 = 1.0, 1.0
    for g in grads:
        power1, power2 = power1 * beta1, power2 * beta2
        m.lerp_(g, 1 - beta1)
        v.lerp_(g * g, 1 - beta2)
        m_hat = m / (1 - power1)
        v_hat = v / (1 - power2)
        p.addcdiv_(m, v.sqrt() + eps, value=-lr)
        path.append(p.clone())
    return torch.stack(path)
""",
    accumulate="""\
def accumulate(p, batches, lr, k, epochs):
    path = [p]
    for epoch in range(epochs):
        for i in range(len(batches) // k):
            group = batches[i * k : (i + 1) * k]
            g = torch.zeros_like(p)
            for batch in group:
                g += (p - batch.mean(dim=0)) / len(group)
            p = p - lr * g
            path.append(p)
    return torch.stack(path)
""",
)


def run(name: str, program: str = "", **inputs: Any) -> Tensor:
    """What the program returns, (steps + 1, ...): the parameter before the first step and after each.

    program  its text, as it stands in the notes if left out. It is executed: it is run where its author's code is
    """
    function: Callable[..., Tensor] = PROGRAMS.defined(name, program)
    return function(**inputs)
