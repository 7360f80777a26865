"""Losses for many rare labels, on tables and on embeddings."""
