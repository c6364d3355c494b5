"""`python -m fillerscope.cli`."""

from fillerscope.cli.app import main

main()
