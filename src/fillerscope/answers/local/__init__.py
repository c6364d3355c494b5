"""Answers from a model that is loaded here."""
