"""Comparing arms on the same prompts and seeds, and showing the outcome."""
