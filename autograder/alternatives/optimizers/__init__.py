"""Named right answers in another style: unit optimizers."""
