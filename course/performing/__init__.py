"""Putting an answer through its probe: the vocabulary of exercises, and the untrusted half of a judgement."""
