"""Everything about the text of a prompt that needs no model: syntax, constraints, token budgets, checks."""
