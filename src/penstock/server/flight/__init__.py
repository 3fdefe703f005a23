"""Arrow Flight: hot rows and bundles for remote subscribers."""
