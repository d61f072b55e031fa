"""Follows the links of a built site that lead to itself."""
