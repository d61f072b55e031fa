"""The real xe driver as judge: an emulated GPU, a guest with Debian's kernel, and a comparison with the mock."""
