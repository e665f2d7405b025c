"""The one family of errors a user of almakit meets: each message is a sentence that says what to do."""


class AlmakitError(ValueError):
    """Something the caller can mend; the message says how."""


class UnknownName(AlmakitError):
    """A name no registry knows; the message offers the nearest ones."""


class BadInput(AlmakitError):
    """Images, labels, targets or settings that cannot be attacked as given."""


class BadModel(AlmakitError):
    """The model does not behave like a deterministic classifier that returns logits."""


class Unavailable(AlmakitError):
    """A file, an optional library or a download that is not at hand."""


def require_text(text: str, what: str) -> str:
    """``text`` itself where files and databases can hold it; half a character, as in a file name that is not UTF-8, is
    refused with a sentence."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{what} is {text!a}, which is not text in UTF-8, so that no record or report could hold it; rename it."
        ) from None
    return text
