"""The emoji world: a small, complete, trained replica of the text-to-image ecosystem."""
