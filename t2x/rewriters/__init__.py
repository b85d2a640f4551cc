"""Policies that turn a user's prompt into one that the generator understands."""
