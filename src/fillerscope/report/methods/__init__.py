"""The methods section of a report, in prose, from the run itself."""
