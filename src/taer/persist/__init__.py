"""Saving, loading, comparing and exporting heads."""
