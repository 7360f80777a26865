"""What the program tells in one sentence, of the data and of a model's files."""


class DataError(ValueError):
    """What is wrong with the data, in one sentence."""


class ModelFileError(ValueError):
    """A file of a model that cannot be read or written."""
