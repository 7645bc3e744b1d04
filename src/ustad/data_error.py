"""The error of data that cannot be used, on its own so that the command line starts without numpy and Arrow."""


class DataError(ValueError):
    """Data that cannot be used as it is. The message is one line that a user can act on."""
