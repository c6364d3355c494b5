"""From a name to a model in memory: catalogue, download, checks, conversion, loading, structure."""
