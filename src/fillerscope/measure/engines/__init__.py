"""Where shards are computed: in this process."""
