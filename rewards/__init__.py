"""Reward models, one file each; installed as ``t2x.rewards``.

Adding one is a file here, a line in ``t2x/registry.py`` and in ``t2x/reward_facts.py``, a case in
``tests/rewards/cases.py``, with which the contract tests it, a row in the README and a parity test.
"""

if __name__ != "t2x.rewards":
    raise ImportError(
        f"this folder is the package t2x.rewards, not {__name__}: install t2x (pip install -e .) "
        "and import t2x.rewards"
    )
