"""``python -m t2x``, the same as the command ``t2x``."""

from t2x.cli import main

if __name__ == "__main__":
    main()
