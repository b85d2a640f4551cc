"""Long runs over files: killed at any moment, the next run goes on where the last one stopped.

lines.py       prompts out of JSONL or plain lines, as a stream that no line can stop
output.py      the output file, its errors file and its sidecar; where to go on
rewriting.py   the job itself: a file of prompts in, one line of JSON per prompt out
"""
