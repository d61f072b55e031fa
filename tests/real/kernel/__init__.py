"""The real xe driver as judge: an emulated GPU, a guest, and a comparison with the mock."""
