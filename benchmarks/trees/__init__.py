"""Boosted trees: what an aim is worth in small forests, and what scoring costs."""
