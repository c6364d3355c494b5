"""Sentences with a verdict and the estimates that they rest on."""
