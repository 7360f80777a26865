"""Other libraries that train for these aims."""
