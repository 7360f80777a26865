"""Thresholds that are chosen on held-out rows."""
