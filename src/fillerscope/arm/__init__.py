"""The ARM intervention and its controls, on arrays and inside a stock model."""
