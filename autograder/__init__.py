"""What an instructor runs: proof of the exercises, build and release of notebooks, and grading."""
