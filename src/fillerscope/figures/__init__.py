"""The published figures, drawn from a run, one file each."""
