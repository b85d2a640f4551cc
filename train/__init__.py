"""Training recipes, one file each with a straight-line ``main``; installed as ``t2x.train``."""

if __name__ != "t2x.train":
    raise ImportError(
        f"this folder is the package t2x.train, not {__name__}: install t2x (pip install -e .) "
        "and import t2x.train"
    )
