"""Settings of the site: `make docs`. It needs no network, and warnings are errors."""

import re
from importlib.metadata import version as installed_version

project = "aimfor"
author = "The aimfor authors"
copyright = "The aimfor authors"
release = installed_version("aimfor")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "examples", "gallery/**/*.ipynb"]

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4
# Attributes of records share names, such as precision; what they are is written beside them.
suppress_warnings = ["config.cache", "ref.python"]

# Reference
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {
    "members": True,
    "inherited-members": False,
    "show-inheritance": False,
    # Made by scikit-learn, with links into its own site.
    "exclude-members": "set_fit_request, set_partial_fit_request, set_score_request, set_predict_request",
}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Look
html_theme = "furo"
html_title = "aimfor"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": ["examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r".*\.py",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 0,
    "remove_config_comments": True,
    "plot_gallery": True,
}

# The same pages are read in the repository, where these files lie outside docs/.
OUTSIDE = {"benchmarks/README.md": "/benchmarks.md", "CONTRIBUTING.md": "/contributing.md"}


def link_inside(app, name, source):
    """Point links to files outside docs/ at the pages that include them."""
    for outside, inside in OUTSIDE.items():
        source[0] = re.sub(rf"\]\((?:\.\./)+{re.escape(outside)}", f"]({inside}", source[0])


def setup(app):
    app.connect("source-read", link_inside)
