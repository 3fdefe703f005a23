"""OTLP in: taken from the wire, bounded, checked and handed on; answered when it is durable."""
