"""What a worker does with requests that have come in: its stores, their decoding, their bounds."""
