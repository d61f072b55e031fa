"""Fuzz targets: LLVMFuzzerTestOneInput in C, one_input(data) in Python; ci/fuzz runs them."""
