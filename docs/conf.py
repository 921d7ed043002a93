"""Sphinx configuration."""

project = "hipfile_arrays"
author = "The hipfile_arrays developers"
copyright = "2026, the hipfile_arrays developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
exclude_patterns = ["_build"]
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"
