"""Judging free-text answers: what is the answer in a text, and does it equal the reference?"""
