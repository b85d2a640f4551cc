"""The parts of the command ``t2x`` that are too long for ``t2x/cli.py``."""
