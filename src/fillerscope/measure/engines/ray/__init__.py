"""The engine of many processes and machines: shards are mapped over Ray actors that hold a loaded model each."""
