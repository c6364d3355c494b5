"""Answers from an OpenAI-compatible server."""
