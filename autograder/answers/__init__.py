"""The right and wrong answers of every exercise, one module each: RIGHT and WRONG."""
