"""How the site is built: `make docs`."""

from fillerscope import __version__

project = "fillerscope"
author = "The fillerscope authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "notebooks/.ipynb_checkpoints"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "fillerscope"
linkcheck_anchors = False
