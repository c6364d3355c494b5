"""What to measure: the study file, its conditions, sweeps and interventions. Needs no torch."""
