"""What a run shows: profiles, heads, accuracy, mechanism, statistics, findings. Needs no torch."""
