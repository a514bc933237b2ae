"""The one error that a user's mistake raises, everywhere in the package."""


class CreditscopeError(ValueError):
    """A user's mistake, or a file that cannot be used: one line that says what, with which value, and what to do.

    The command line prints the line and exits with code 2; no traceback is shown.
    """
