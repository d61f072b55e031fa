"""The backend over Level Zero: the system's own loader and whatever driver it finds."""
