"""Ask the user: short visual questions in place of a long prompt (Adaptive Prompt Elicitation,
arXiv 2602.04713).

``Elicitation`` holds one conversation. A *subject* knows what can be asked about a prompt
(``emoji_world``, ``plain_text``, or what a language model proposes), a *belief* is a weighted set
of intents, and ``choosing`` takes the question whose answer is expected to tell most.
"""

from __future__ import annotations

from t2x.asking.elicitation import Elicitation

__all__ = ["Elicitation"]
