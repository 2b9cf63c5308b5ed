"""Named wrong answers: unit optimizers."""
