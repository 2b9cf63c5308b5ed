"""Named right answers in another style: unit computational_graphs."""
