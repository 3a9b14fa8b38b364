"""Transformers for inference alone: weights in float32, bfloat16 or int8, without the package transformers."""
