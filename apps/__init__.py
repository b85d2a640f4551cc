"""Applications; installed as ``t2x.apps``."""

if __name__ != "t2x.apps":
    raise ImportError(
        f"this folder is the package t2x.apps, not {__name__}: install t2x (pip install -e .) "
        "and import t2x.apps"
    )
