"""Named right answers in another style, by unit and exercise."""
