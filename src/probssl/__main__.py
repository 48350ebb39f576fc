"""`probssl` and `python -m probssl`."""

from __future__ import annotations


def main() -> None:
    """The command line."""
    from probssl.cli import app

    app(prog_name="probssl")


if __name__ == "__main__":
    main()
