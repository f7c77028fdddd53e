"""Heads that are kept: saved and loaded, compared, written as ONNX graphs."""
