"""Answers written by vLLM on a GPU, for conditions that change the prompt alone."""
