"""Exact dense search, in float32 and with int8 bounds."""
