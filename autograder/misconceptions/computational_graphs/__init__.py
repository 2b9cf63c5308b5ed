"""Named wrong answers: unit computational_graphs."""
