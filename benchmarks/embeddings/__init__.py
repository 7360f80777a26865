"""Frozen embeddings of texts, and heads on them."""
