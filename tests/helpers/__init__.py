"""What tests share; importable as ``helpers`` because pytest puts tests/ on the path."""
