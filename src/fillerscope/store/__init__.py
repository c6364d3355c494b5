"""The run folder: files, names, checksums, moments and how shards are merged."""
