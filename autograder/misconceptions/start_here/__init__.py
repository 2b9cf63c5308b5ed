"""Named wrong answers: unit start_here."""
