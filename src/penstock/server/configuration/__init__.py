"""What a server is told: by file, environment and flags."""
