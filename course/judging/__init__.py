"""From observations to a verdict: the trusted half of a judgement, which never runs an answer."""
