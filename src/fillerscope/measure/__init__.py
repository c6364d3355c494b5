"""A study from start to finish: shards measured, answered and stored."""
