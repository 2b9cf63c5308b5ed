"""The command `autograder`, also as `python -m autograder`."""

from __future__ import annotations

from autograder.start import quick_imports

with quick_imports():
    from autograder.cli import main

if __name__ == "__main__":
    main()
