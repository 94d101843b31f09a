"""What the papers say, as data: ready-made settings to start from."""
