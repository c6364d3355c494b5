"""fillerscope: what inserted filler tokens do to a decoder language model.

The public names stand in `__init__.pyi`, for people, type checkers and this module alike. They are loaded on first use,
so that opening a finished run needs no torch and starting the command line stays quick.
"""

import lazy_loader

__version__ = "0.1.0"  # the one place that states it

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
