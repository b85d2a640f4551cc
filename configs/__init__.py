"""One YAML per runnable experiment; installed as package data of ``t2x.configs``."""

if __name__ != "t2x.configs":
    raise ImportError(
        f"this folder is the package t2x.configs, not {__name__}: install t2x (pip install -e .) "
        "and import t2x.configs"
    )
