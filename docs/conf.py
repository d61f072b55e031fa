"""The documentation site: ``ci/docs`` builds it, and a warning is an error there."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

project = "ze_ipc"
author = "the ze_ipc authors"
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "error_facts",
    "program_help",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

nitpicky = True
# Names that annotations mention and that have no page: standard types, and parts of the package
# that are not public.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!ze_ipc\.[A-Z]).*"),
    (r"py:.*", r"ze_ipc\.(?!errors\b).*"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
html_title = "ze_ipc"
html_static_path: list[str] = []
html_show_copyright = False
html_show_sphinx = False
