"""Questions to the server: who asks next, which processes answer, and the fresh rows they read."""
