"""Equations of the papers as pure functions of tensors: no state, no device moves."""
