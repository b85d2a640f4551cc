"""Settings of the site: `make docs` builds it into build/docs, without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import t2x

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "t2x"
author = "the t2x authors"
version = release = t2x.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "exact_names",
    "reference_pages",
    "papers_page",
    "listing_pages",
]
exclude_patterns = ["_ext"]

html_theme = "furo"
html_title = "t2x"
html_show_sourcelink = False
html_copy_source = False
# Three thousand names in the sidebar of every page would be most of the time of a build.
toc_object_entries = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False
