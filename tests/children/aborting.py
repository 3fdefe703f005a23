"""A child that its first question kills."""

import os

if __name__ == "__main__":
    os.read(0, 1)
    os.abort()
