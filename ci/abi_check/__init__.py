"""Compare our declarations of a C interface with the headers that distributions ship."""
