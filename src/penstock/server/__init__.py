"""OTLP in: receives, validates, stores durably, and only then answers."""
