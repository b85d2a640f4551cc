"""What the recipes of ``t2x.train`` share: configuration sections, the policy that is trained, rows
of data in TRL's formats, and the arguments of its trainers.
"""
