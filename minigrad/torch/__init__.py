"""PyTorch's vocabulary: aliases, advice for names that are missing, schedules."""
