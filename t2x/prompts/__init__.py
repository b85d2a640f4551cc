"""The text of a prompt, without a model: syntax, constraints, token budgets, checks."""
