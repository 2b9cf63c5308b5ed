"""Named right answers in another style: unit start_here."""
