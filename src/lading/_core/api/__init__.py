"""What users hold: datasets and their methods, on top of jobs and training."""
