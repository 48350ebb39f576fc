"""The command line: thin. Every command parses, calls the library and shows what it returns.

One module a group of commands. `probssl --help` lists them in the order in which they are imported here.
"""

# isort: off
from probssl.cli.app import app
from probssl.cli import fit  # noqa: F401 - importing a module registers its commands
from probssl.cli import parts  # noqa: F401
from probssl.cli import compare  # noqa: F401
from probssl.cli import using  # noqa: F401
from probssl.cli import runs  # noqa: F401
from probssl.cli import generating  # noqa: F401
from probssl.cli import reproduce  # noqa: F401
from probssl.cli import data  # noqa: F401

__all__ = ["app"]
