"""Named wrong answers, by unit and exercise."""
