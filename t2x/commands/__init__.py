"""The commands of ``t2x``, one module each; heavy libraries are imported when a command runs."""
