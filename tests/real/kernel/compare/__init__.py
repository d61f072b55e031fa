"""Scripts of ioctls, run on the real driver and on the mock, and their differences row by row."""
