"""What a scheme stores for a matrix, by the bit."""

from __future__ import annotations


def bits_per_weight(
    shape: tuple[int, int],
    bits: int,
    group: int | None = None,
    step_bits: int = 16,
    zero_bits: int = 0,
    codebook_bits: int = 0,
    factors: int = 1,
) -> float:
    """Codes, steps, zero points and codebooks of all factors, over the entries of the matrix (m, n)."""
    m, n = shape
    groups = 1 if group is None else m * -(-n // group)
    stored = m * n * bits + groups * (step_bits + zero_bits) + 2**bits * codebook_bits
    return float(factors * stored / (m * n))
