"""Judging free-text answers: what is the answer in a text, and does it equal the reference?

`grader.py` is what other modules use. Nothing here knows prompts, models or conditions.
"""
