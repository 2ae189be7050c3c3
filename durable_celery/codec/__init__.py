"""Values to text and back: what arguments, results and payloads may be, and how they are shown to people.

Rules of this package:
- ``decode(encode(value))`` is equal to ``value`` and of the same type, or ``encode`` refuses and says where and why.
- The text is JSON in ASCII, so every database stores it whole: NUL, emoji and lone surrogates are escapes.
- A JSON object with the key ``$`` is a tagged value; a dict of the user that has this key is itself tagged.
- Decoding runs no code that a text could choose: it builds data classes, enums, named tuples, pydantic models and
  registered types, and of the first four without calling their constructors.
"""

from __future__ import annotations

from durable_celery.codec.decoder import copy, decode
from durable_celery.codec.display import preview
from durable_celery.codec.encoder import encode
from durable_celery.codec.names import register_alias
from durable_celery.codec.plain import from_plain, signature_text
from durable_celery.codec.redaction import redact, redact_call
from durable_celery.codec.registered import register_type

__all__ = [
    "copy",
    "decode",
    "encode",
    "from_plain",
    "preview",
    "redact",
    "redact_call",
    "register_alias",
    "register_type",
    "signature_text",
]
