"""The explorer: a local server over runs, finished or still being measured."""
