"""Share GPU virtual-address ranges between processes."""
