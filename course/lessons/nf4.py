"""NF4: the 16 values of four bits that suit numbers from a normal distribution.

Source: QLoRA, Dettmers et al., arXiv 2305.14314, Appendix E. Each half has quantiles of its own, eight of them up to 0
and nine from 0 on, so that 0 is a value; they are scaled so that the outermost are -1 and 1.
"""

from __future__ import annotations

NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
