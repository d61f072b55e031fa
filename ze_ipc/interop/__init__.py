"""What other libraries and runtimes expect of a range; a module imports its library when used."""
