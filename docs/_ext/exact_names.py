"""Links a name in a signature to what its module means by it, where two modules have one of that
name; Sphinx by itself would take any, with a warning."""

from __future__ import annotations

import sys
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx


def exact(app: Sphinx, doctree: nodes.document) -> None:
    for node in doctree.findall(pending_xref):
        name, module = node.get("reftarget", ""), sys.modules.get(node.get("py:module") or "")
        found = getattr(module, name, None) if "." not in name else None
        if node.get("refdomain") == "py" and isinstance(found, type):
            node["reftarget"] = f"{found.__module__}.{found.__qualname__}"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", exact)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
