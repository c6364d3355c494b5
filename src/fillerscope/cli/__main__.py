"""`python -m fillerscope.cli`."""

from fillerscope.cli.app import main

if __name__ == "__main__":
    main()
