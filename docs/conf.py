"""How `make docs` builds the documentation: Sphinx, Markdown by MyST, theme furo. No page needs the network."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "creditscope"
author = "The creditscope developers"
project_copyright = author
version = release = version_of("creditscope")

extensions = ["myst_parser", "sphinx.ext.autodoc", "generated_pages", "glossary_links", "mathml", "plain_docstrings"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
autodoc_default_options = {"exclude-members": "model_config, Options"}

html_theme = "furo"
html_title = f"creditscope {release}"
html_static_path = ["_static"]
html_css_files = ["creditscope.css"]
html_js_files = ["creditscope.js"]
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
