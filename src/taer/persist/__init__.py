"""Saving, loading and exporting heads."""
