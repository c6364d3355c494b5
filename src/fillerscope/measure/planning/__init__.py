"""What a study will take, told before it runs: work, time, memory and bytes."""
