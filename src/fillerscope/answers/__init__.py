"""Answers from a model here or behind an endpoint, and their grading."""
