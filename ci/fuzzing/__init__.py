"""Builds and runs the fuzz targets of tests/fuzz; see main.py."""
