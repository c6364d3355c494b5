"""Fillers and prompts: token ids, their spans, and where original tokens went."""
