"""What the tests share: tiny networks, brute force, random models and properties, small batches, a browser."""
