"""What a notebook calls: checks, hints and progress, and what they show."""
