"""Questions with their answers, from files, the hub or the built-in arithmetic."""
