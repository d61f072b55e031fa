"""The directive ``program-help``: what ``ze-ipc VERB --help`` prints, as it prints it today."""

from __future__ import annotations

import argparse
import os
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from ze_ipc.cli.main import _parser


class ProgramHelp(Directive):
    """Its argument are the words after ``ze-ipc``."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """One literal block."""
        os.environ["COLUMNS"] = "90"
        parser = _parser()
        for word in (self.arguments or [""])[0].split():
            (chooser,) = (
                action
                for action in parser._actions
                if isinstance(action, argparse._SubParsersAction)
            )
            parser = chooser.choices[word]
        return [nodes.literal_block(text=parser.format_help(), language="text")]


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("program-help", ProgramHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
