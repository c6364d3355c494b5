"""The page: report and explorer over a run, from one payload."""
