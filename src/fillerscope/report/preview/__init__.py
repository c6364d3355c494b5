"""What a study would do, before it runs: its data, its prompts, its work, and the verdicts that it can reach."""
