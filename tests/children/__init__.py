"""Children of processes."""
