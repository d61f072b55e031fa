"""Programs of the guest (C, static) and the host's end of the line to them."""
