"""Claims of papers, put to the test: what is compared is data (``configs/claims/NAME.yaml``),
fixed before it is run; a queue of short jobs makes the runs; ``docs/claims/NAME/`` keeps every run,
failed ones too, and the verdict is computed from them alone.
"""
