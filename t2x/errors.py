"""Errors that the command prints in one line, without a traceback."""

__all__ = ["MemoryRanOutError", "MissingDependencyError", "T2XError", "UnknownNameError"]


class T2XError(Exception):
    """Root of every error raised on purpose: what was given, what is allowed, what to do."""


class UnknownNameError(T2XError, LookupError):
    """A name that no registry knows; the message holds the closest match and the full list."""


class MemoryRanOutError(T2XError, MemoryError):
    """Memory does not suffice for the least part of what was asked; what is loaded stays good."""


class MissingDependencyError(T2XError, ImportError):
    """A known name whose optional dependency is absent; the message holds the extra to install."""
