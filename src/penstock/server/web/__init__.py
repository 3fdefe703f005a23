"""The web port: health, metrics, status and the API."""
