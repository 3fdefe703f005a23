"""A child that ends before it is asked."""

if __name__ == "__main__":
    raise SystemExit(1)
