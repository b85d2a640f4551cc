"""Frozen text-to-image and text-to-video models behind one protocol."""
