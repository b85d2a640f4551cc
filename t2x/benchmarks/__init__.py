"""Public benchmarks in their own folder layouts: prompts in, pictures where each official evaluator
looks for them, once of the prompts as they are and once of their rewrites.

layout.py         what a benchmark is: facts, prompts, where pictures go, what its evaluator finds
catalogue.py      benchmarks by name
geneval.py        and its neighbours by name: reader, writer and record of facts of one each
folder.py         the folder of a run: its files, its lock, overwriting
marker.py         the file that ties a folder to its settings and keeps it out of training data
running.py        the run: rewrite all, draw all, score all; goes on where it was stopped
drawing.py        pictures by arm into the official layout
scoring.py        our rewards, which are not the benchmark's score
summary.py        means and paired differences by the benchmark's own categories

No prompt of a benchmark is in this package.
"""
