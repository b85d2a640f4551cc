"""Long runs over files: killed at any moment, the next run goes on where the last one stopped.

lines.py       prompts out of JSONL, plain lines or CSV, as a stream that no line can stop
columns.py     one column of CSV
output.py      the output file, its errors file and its sidecar; where to go on
engines.py     who computes: this process, or the workers of a Ray cluster
rewriting.py   the job itself: a file of prompts in, one line of JSON per prompt out
"""
